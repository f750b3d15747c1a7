"""Replies that describe partitions, leases, clusters and allocations, made from the state in
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from operator import attrgetter
from typing import Final

import msgspec

from podwright.controller.calls._list_pages import ListPage, defined_after
from podwright.controller.state._caller import Caller
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import MAX_AUTO_RESETS, ControllerState
from podwright.controller.state._leases import HeldLease, lease_info_of, mask_of
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._process_cutoff import waits_for
from podwright.controller.state._records import FenceRecord, PartitionRecord
from podwright.wire import (
    AllocationInfo,
    AllocationList,
    ClusterInfo,
    ClusterList,
    DrainInfo,
    LeaseInfo,
    LeaseList,
    ListRequest,
    OperationState,
    PartitionInfo,
    PartitionList,
    ReadyState,
)

#: Fields that a partition's record and what callers see of it have in common, but for those that
#: are not of the same type: a record's lists are tuples, and its devices are blocks.
_SHARED_FIELDS: Final = tuple(
    name
    for name in PartitionInfo.__struct_fields__
    if name in PartitionRecord.__struct_fields__ and name not in ("errors", "gcds", "hosts")
)
_shared_values: Final = attrgetter(*_SHARED_FIELDS)


def partition_info(
    state: ControllerState, entry: PartitionEntry, record: PartitionRecord, version: str
) -> PartitionInfo:
    """The full description of a partition."""
    cluster = entry.cluster
    now = state.now()
    ready_state, operation_state = record.ready, record.operation
    if entry.fences and operation_state is OperationState.IDLE:
        operation_state = OperationState.FENCING
        fenced_mask = 0
        for fence in entry.fences.values():
            fenced_mask |= fence.lease.mask
        if fenced_mask == mask_of(0, record.size):
            ready_state = ReadyState.PENDING
    return PartitionInfo(
        **dict(zip(_SHARED_FIELDS, _shared_values(record), strict=True)),
        ready_state=ready_state,
        operation_state=operation_state,
        errors=list(record.errors),
        gcds=[cluster.refs[domain][offset : offset + size] for domain, offset, size in record.gcds]
        if cluster
        else [],
        ilds=list(dict.fromkeys(block.domain for block in record.blocks)),
        auto_reset_count=record.auto_resets,
        auto_reset_max=MAX_AUTO_RESETS if record.auto_reset else 0,
        auto_reset_last=record.auto_reset_at,
        leases=[
            *(lease_info_of(lease, record.size, now) for lease in entry.leases.values()),
            *(
                _fenced_lease_info(state, entry, fence, record.size)
                for fence in entry.fences.values()
            ),
        ],
        server_version=version,
        simulated=bool(cluster and cluster.layout.simulated),
        hosts=list(record.hosts),
    )


def check_filters(state: ControllerState, request: ListRequest, action: str) -> None:
    """Raise NotFound for a filter by an unknown cluster or allocation."""
    if not (request.cluster or request.allocation):
        return
    # Those of clusters that are gone can still be listed.
    if not state.partitions.any_in(request.cluster, request.allocation):
        state.inventory.candidates(request.cluster, request.allocation, action)


def partitions(
    state: ControllerState, request: ListRequest, version: str, caller: Caller
) -> PartitionList:
    """Those that a caller may know of, in the order of their names. Raises NotFound for unknown
    filters."""
    page = ListPage[PartitionInfo](request)
    check_filters(state, request, "list partitions")
    names, _ = state.known_names(caller, request.page_token)
    for partition_name in names:
        entry = state.partitions[partition_name]
        if (record := entry.record) is None or not _passes_filter(record, request):
            continue
        if page.full:
            break
        page.add(partition_name, partition_info(state, entry, record, version), record.size)
    return PartitionList(partitions=page.items, next_page_token=page.token)


def _passes_filter(record: PartitionRecord, request: ListRequest) -> bool:
    return request.cluster in ("", record.cluster) and request.allocation in ("", record.allocation)


def leases(state: ControllerState, request: ListRequest, caller: Caller) -> LeaseList:
    """Leases that a caller may know of, in the order of their ids."""
    page = ListPage[LeaseInfo](request)
    check_filters(state, request, "list leases")
    now = state.now()
    for lease_id in _lease_ids(state, request.page_token, caller):
        lease = state.leases.get(lease_id)
        entry = state.partitions.get(lease.record.partition) if lease else state.fences[lease_id]
        if entry is None or (record := entry.record) is None or not _passes_filter(record, request):
            continue
        if not state.sight.leases(caller, entry):
            continue
        if page.full:
            break
        if lease is not None:
            page.add(lease_id, lease_info_of(lease, record.size, now))
        else:
            page.add(
                lease_id, _fenced_lease_info(state, entry, entry.fences[lease_id], record.size)
            )
    return LeaseList(leases=page.items, next_page_token=page.token)


def _lease_ids(state: ControllerState, page_token: str, caller: Caller) -> Iterator[str]:
    """The ids of leases and of fences behind a token, in order; for a caller who may not know of
    all, those of his own partitions."""
    if state.sight.all_leases(caller):
        return merge(state.leases.ids.after(page_token), state.fences.ids.after(page_token))
    entries = map(state.partitions.get, state.own_names(caller))
    own_ids = (
        lease_id
        for entry in entries
        if entry is not None
        for lease_id in (*entry.leases, *entry.fences)
    )
    return iter(sorted(lease_id for lease_id in own_ids if lease_id > page_token))


def _fenced_lease_info(
    state: ControllerState, entry: PartitionEntry, fence: FenceRecord, partition_size: int
) -> LeaseInfo:
    """An ended lease, and what its devices wait for."""
    host_texts = [f"host {host}" for host in fence.hosts if host]
    if len(host_texts) < len(fence.hosts):
        host_texts.append("its hosts")
    lease_info = lease_info_of(HeldLease(fence.lease, 0.0), partition_size, 0.0)
    machine_texts = [f"machine {machine}" for machine in waits_for(state, entry, fence)]
    return msgspec.structs.replace(
        lease_info, state="FENCING", waits_for=[*host_texts, *machine_texts]
    )


def clusters(state: ControllerState, request: ListRequest) -> ClusterList:
    """Clusters, in the order of their definition."""
    page = ListPage[ClusterInfo](request)
    check_filters(state, request, "list clusters")
    clusters = state.inventory.clusters
    for cluster_name in defined_after(clusters, request.page_token):
        if request.cluster in ("", cluster_name):
            if page.full:
                break
            page.add(
                cluster_name,
                cluster_info(state, clusters[cluster_name]),
                clusters[cluster_name].size,
            )
    return ClusterList(clusters=page.items, next_page_token=page.token)


def cluster_info(
    state: ControllerState, cluster: IndexedCluster, *, machines: bool = True
) -> ClusterInfo:
    """A cluster, complete. machines: with the names of its machines, of which there may be many."""
    layout = cluster.layout
    return ClusterInfo(
        name=layout.name,
        family=layout.family.name,
        size=cluster.size,
        free=cluster.index.free(),
        machines=cluster.machines() if machines else [],
        ild_sizes=[len(refs) for refs in cluster.refs],
        topology=layout.topology.value,
        ild_topology=layout.domain_topology.value,
        simulated=layout.simulated,
        drained=sorted(cluster.drained),
        drains=[
            DrainInfo(machine=name, **msgspec.structs.asdict(record))
            for name, record in sorted(cluster.drains.items())
        ],
        down=sorted(machine for machine in state.down if machine in cluster.places),
    )


def allocations(
    state: ControllerState, request: ListRequest, may_see: Callable[[IndexedCluster, str], bool]
) -> AllocationList:
    """Allocations, as they were defined. may_see: whether the caller may know of one."""
    page = ListPage[AllocationInfo](request)
    check_filters(state, request, "list allocations")
    allocations_by_path = {
        f"{cluster_name}/{allocation_name}": (cluster, allocation_name)
        for cluster_name, cluster in state.inventory.clusters.items()
        if request.cluster in ("", cluster_name)
        for allocation_name in cluster.allocations
        if request.allocation in ("", allocation_name) and may_see(cluster, allocation_name)
    }
    for allocation_path in defined_after(allocations_by_path, request.page_token):
        if page.full:
            break
        listed_allocation = allocation_info(*allocations_by_path[allocation_path])
        page.add(allocation_path, listed_allocation, listed_allocation.size)
    return AllocationList(allocations=page.items, next_page_token=page.token)


def allocation_info(cluster: IndexedCluster, name: str) -> AllocationInfo:
    """An allocation, complete."""
    return AllocationInfo(
        name=name,
        cluster=cluster.layout.name,
        size=cluster.index.size(name),
        free=cluster.index.free(name),
        agents=list(cluster.allocations[name]),
        scheduler=cluster.closed.get(name, ""),
        owner=cluster.owned.get(name, ""),
    )
