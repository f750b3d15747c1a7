"""Calls that list and show, and change nothing."""

from __future__ import annotations

import asyncio

from podwright.controller.calls import _device_replies as device_view
from podwright.controller.calls import _object_replies as views
from podwright.controller.calls._call_context import Services
from podwright.controller.state._caller import Caller
from podwright.store import backup_text
from podwright.wire import (
    AllocationList,
    BackupReply,
    BackupRequest,
    ClusterList,
    DeviceList,
    LeaseList,
    ListRequest,
    PartitionInfo,
    PartitionList,
    PartitionName,
)


async def list_clusters(services: Services, caller: Caller, request: ListRequest) -> ClusterList:
    """Clusters, in the order of their definition."""
    return views.clusters(services.state, request)


async def list_allocations(
    services: Services, caller: Caller, request: ListRequest
) -> AllocationList:
    """Allocations, in the order of their definition."""
    return views.allocations(services.state, request, services.privacy.use(caller))


async def list_devices(services: Services, caller: Caller, request: ListRequest) -> DeviceList:
    """Devices, in the order of cluster, domain, offset."""
    return device_view.devices(services.state, request)


async def list_partitions(
    services: Services, caller: Caller, request: ListRequest
) -> PartitionList:
    """Partitions, in the order of their names."""
    return views.partitions(services.state, request, services.version, caller)


async def list_leases(services: Services, caller: Caller, request: ListRequest) -> LeaseList:
    """Leases, in the order of their ids."""
    return views.leases(services.state, request, caller)


async def get_partition(
    services: Services, caller: Caller, request: PartitionName
) -> PartitionInfo:
    """One partition. Raises NotFound, and Denied where its end points are asked for by one to
    whom they are not told."""
    entry = services.state.find(caller, request.name)
    if entry is None or entry.record is None:
        raise services.state.missing(request.name, f"get partition {request.name}", caller)
    if request.attach:
        services.privacy.check_attach(caller, request.name)
    return services.info(entry)


async def backup(services: Services, caller: Caller, request: BackupRequest) -> BackupReply:
    """A copy of the store as of one instant, for administrators."""
    snapshot = await services.state.store.read()
    return BackupReply(content=await asyncio.to_thread(backup_text, snapshot))
