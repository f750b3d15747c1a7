"""What others are shown: listings, made of what is in memory."""

from __future__ import annotations

import msgspec

from podwright.controller._cluster_index import IndexedCluster
from podwright.controller._core import AUTO_RESETS, Core, Entry
from podwright.controller._cutoff import waits_for
from podwright.controller._leases import HeldLease, mask_of, to_info
from podwright.controller._list_pages import ListPage, after, defined_after
from podwright.controller._records import FenceRecord, PartitionRecord
from podwright.wire import (
    AllocationInfo,
    AllocationList,
    ClusterInfo,
    ClusterList,
    LeaseInfo,
    LeaseList,
    ListRequest,
    OperationState,
    PartitionInfo,
    PartitionList,
    ReadyState,
)


def partition_info(
    core: Core, entry: Entry, record: PartitionRecord, version: str
) -> PartitionInfo:
    """A partition, complete."""
    site = entry.site
    now = core.now()
    ready, operation = record.ready, record.operation
    if entry.fences and operation is OperationState.IDLE:
        operation = OperationState.FENCING
        fenced = 0
        for fence in entry.fences.values():
            fenced |= fence.lease.mask
        if fenced == mask_of(0, record.size):
            ready = ReadyState.PENDING
    return PartitionInfo(
        name=record.name,
        cluster=record.cluster,
        allocation=record.allocation,
        size=record.size,
        num_gcds=record.num_gcds,
        num_replicas=record.num_replicas,
        num_ilds=record.num_ilds,
        routing=record.routing,
        gw_routing=record.gw_routing,
        sync_type=record.sync_type,
        reconfigurable=record.reconfigurable,
        ready_state=ready,
        operation_state=operation,
        errors=list(record.errors),
        gcds=[site.refs[d][o : o + s] for d, o, s in record.gcds] if site else [],
        ilds=list(dict.fromkeys(block.domain for block in record.blocks)),
        owner=record.owner,
        owner_uid=record.owner_uid,
        creator=record.creator,
        job=record.job,
        epoch=record.epoch,
        created_at=record.created_at,
        auto_reset=record.auto_reset,
        relocatable=record.relocatable,
        auto_reset_count=record.auto_resets,
        auto_reset_max=AUTO_RESETS if record.auto_reset else 0,
        auto_reset_last=record.auto_reset_at,
        leases=[
            *(to_info(lease, record.size, now) for lease in entry.leases.values()),
            *(_fenced(core, entry, fence, record.size) for fence in entry.fences.values()),
        ],
        server_version=version,
        simulated=bool(site and site.cluster.simulated),
        until=record.until,
        movable=record.movable,
    )


def check_filters(core: Core, request: ListRequest, action: str) -> None:
    """Raises NotFound for a cluster or an allocation that is nowhere."""
    if not (request.cluster or request.allocation):
        return
    if not any(
        request.cluster in ("", record.cluster) and request.allocation in ("", record.allocation)
        for record in core.records()  # those of clusters that are gone can still be listed
    ):
        core.inventory.candidates(request.cluster, request.allocation, action)


def partitions(core: Core, request: ListRequest, version: str) -> PartitionList:
    """Partitions, in the order of their names. Raises NotFound for unknown filters."""
    page = ListPage[PartitionInfo](request)
    check_filters(core, request, "list partitions")
    for name in after(core.partitions, request.page_token):
        entry = core.partitions[name]
        if (record := entry.record) is None or not _wanted(record, request):
            continue
        if page.full:
            break
        page.add(name, partition_info(core, entry, record, version), record.size)
    return PartitionList(partitions=page.items, next_page_token=page.token)


def _wanted(record: PartitionRecord, request: ListRequest) -> bool:
    return request.cluster in ("", record.cluster) and request.allocation in ("", record.allocation)


def leases(core: Core, request: ListRequest) -> LeaseList:
    """Leases, in the order of their ids."""
    page = ListPage[LeaseInfo](request)
    check_filters(core, request, "list leases")
    now = core.now()
    for name in after((*core.leases, *core.fences), request.page_token):
        lease = core.leases.get(name)
        entry = core.partitions.get(lease.record.partition) if lease else core.fences[name]
        if entry is None or (record := entry.record) is None or not _wanted(record, request):
            continue
        if page.full:
            break
        if lease is not None:
            page.add(name, to_info(lease, record.size, now))
        else:
            page.add(name, _fenced(core, entry, entry.fences[name], record.size))
    return LeaseList(leases=page.items, next_page_token=page.token)


def _fenced(core: Core, entry: Entry, fence: FenceRecord, size: int) -> LeaseInfo:
    """A lease that is over, and what its devices wait for."""
    hosts = [f"host {host}" for host in fence.hosts if host]
    if len(hosts) < len(fence.hosts):
        hosts.append("its hosts")
    info = to_info(HeldLease(fence.lease, 0.0), size, 0.0)
    machines = [f"machine {machine}" for machine in waits_for(core, entry, fence)]
    return msgspec.structs.replace(info, state="FENCING", waits_for=[*hosts, *machines])


def clusters(core: Core, request: ListRequest) -> ClusterList:
    """Clusters, in the order of their definition."""
    page = ListPage[ClusterInfo](request)
    check_filters(core, request, "list clusters")
    sites = core.inventory.sites
    for name in defined_after(sites, request.page_token):
        if request.cluster in ("", name):
            if page.full:
                break
            page.add(name, cluster_info(core, sites[name]), sites[name].cluster.size)
    return ClusterList(clusters=page.items, next_page_token=page.token)


def cluster_info(core: Core, site: IndexedCluster) -> ClusterInfo:
    """A cluster, complete."""
    cluster = site.cluster
    return ClusterInfo(
        name=cluster.name,
        family=cluster.family.name,
        size=cluster.size,
        free=site.index.free(),
        machines=site.machines(),
        ild_sizes=[cluster.domain_size(d) for d in range(len(cluster.domains))],
        topology=cluster.topology.value,
        ild_topology=cluster.domain_topology.value,
        simulated=cluster.simulated,
        drained=sorted(site.drained),
        down=sorted(core.down.intersection(site.places)),
    )


def allocations(core: Core, request: ListRequest) -> AllocationList:
    """Allocations, in the order of their definition."""
    page = ListPage[AllocationInfo](request)
    check_filters(core, request, "list allocations")
    places = {
        f"{cluster}/{name}": (site, name)
        for cluster, site in core.inventory.sites.items()
        if request.cluster in ("", cluster)
        for name in site.allocations
        if request.allocation in ("", name)
    }
    for place in defined_after(places, request.page_token):
        if page.full:
            break
        info = allocation_info(*places[place])
        page.add(place, info, info.size)
    return AllocationList(allocations=page.items, next_page_token=page.token)


def allocation_info(site: IndexedCluster, name: str) -> AllocationInfo:
    """An allocation, complete."""
    return AllocationInfo(
        name=name,
        cluster=site.cluster.name,
        size=site.index.size(name),
        free=site.index.free(name),
        agents=list(site.allocations[name]),
        scheduler=site.closed.get(name, ""),
        owner=site.owned.get(name, ""),
    )
