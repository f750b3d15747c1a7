"""Calls that ask what there is, and change nothing."""

from __future__ import annotations

from podwright.controller import _device_view as device_view
from podwright.controller import _views as views
from podwright.controller._caller import Caller
from podwright.controller._core import Core, Entry
from podwright.controller._privacy import Privacy
from podwright.wire import (
    AllocationList,
    ClusterList,
    DeviceList,
    LeaseList,
    ListRequest,
    PartitionInfo,
    PartitionList,
    PartitionName,
)


class ReadingCalls:
    """The part of the controller that lists."""

    version: str
    _core: Core
    _privacy: Privacy

    async def list_clusters(self, caller: Caller, request: ListRequest) -> ClusterList:
        """Clusters, in the order of their definition."""
        return views.clusters(self._core, request)

    async def list_allocations(self, caller: Caller, request: ListRequest) -> AllocationList:
        """Allocations, in the order of their definition."""
        return views.allocations(self._core, request)

    async def list_devices(self, caller: Caller, request: ListRequest) -> DeviceList:
        """Devices, in the order of cluster, domain, offset."""
        return device_view.devices(self._core, request)

    async def list_partitions(self, caller: Caller, request: ListRequest) -> PartitionList:
        """Partitions, in the order of their names."""
        return views.partitions(self._core, request, self.version)

    async def list_leases(self, caller: Caller, request: ListRequest) -> LeaseList:
        """Leases, in the order of their ids."""
        return views.leases(self._core, request)

    async def get_partition(self, caller: Caller, request: PartitionName) -> PartitionInfo:
        """One partition. Raises NotFound, and Denied where its end points are asked for by one to
        whom they are not told."""
        if request.attach:
            self._privacy.check_attach(caller, request.name)
        entry = self._core.partitions.get(request.name)
        if entry is None or entry.record is None:
            raise self._core.missing(request.name, f"get partition {request.name}")
        return self._info(entry)

    def _info(self, entry: Entry) -> PartitionInfo:
        return views.partition_info(self._core, entry, entry.known, self.version)
