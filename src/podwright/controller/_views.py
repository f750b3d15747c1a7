"""What others are shown: listings, made of what is in memory."""

from __future__ import annotations

from podwright.controller._core import AUTO_RESETS, Core, Entry
from podwright.controller._leases import to_info
from podwright.controller._records import PartitionRecord
from podwright.wire import (
    AllocationInfo,
    AllocationList,
    ClusterInfo,
    ClusterList,
    DeviceInfo,
    DeviceList,
    LeaseList,
    ListRequest,
    OperationState,
    PartitionInfo,
    PartitionList,
)


def partition_info(
    core: Core, entry: Entry, record: PartitionRecord, version: str
) -> PartitionInfo:
    """A partition, complete."""
    site = entry.site
    now = core.now()
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
        ready_state=record.ready,
        operation_state=record.operation,
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
        leases=[to_info(lease, record.size, now) for lease in entry.leases.values()],
        server_version=version,
        simulated=bool(site and site.cluster.simulated),
        until=record.until,
    )


def check_filters(core: Core, request: ListRequest, asked: str) -> None:
    """Raises NotFound for a cluster or an allocation that is nowhere."""
    if not (request.cluster or request.allocation):
        return
    if not any(
        request.cluster in ("", record.cluster) and request.allocation in ("", record.allocation)
        for record in core.records()  # those of clusters that are gone can still be listed
    ):
        core.inventory.candidates(request.cluster, request.allocation, asked)


def partitions(core: Core, request: ListRequest, version: str) -> PartitionList:
    """Partitions, in the order of their names. Raises NotFound for unknown filters."""
    check_filters(core, request, "list partitions")
    return PartitionList(
        partitions=[
            partition_info(core, entry, record, version)
            for _, entry in sorted(core.partitions.items())
            if (record := entry.record) is not None
            and (not request.cluster or record.cluster == request.cluster)
            and (not request.allocation or record.allocation == request.allocation)
        ]
    )


def leases(core: Core, request: ListRequest) -> LeaseList:
    """Leases, in the order of their ids."""
    check_filters(core, request, "list leases")
    now = core.now()
    return LeaseList(
        leases=[
            to_info(lease, record.size, now)
            for _, lease in sorted(core.leases.items())
            if (entry := core.partitions.get(lease.record.partition)) is not None
            and (record := entry.record) is not None
            and (not request.cluster or record.cluster == request.cluster)
            and (not request.allocation or record.allocation == request.allocation)
        ]
    )


def clusters(core: Core, request: ListRequest) -> ClusterList:
    """Clusters, in the order of their definition."""
    check_filters(core, request, "list clusters")
    return ClusterList(
        clusters=[
            ClusterInfo(
                name=name,
                family=site.cluster.family.name,
                size=site.cluster.size,
                free=site.index.free(),
                machines=site.machines(),
                ild_sizes=[site.cluster.domain_size(d) for d in range(len(site.cluster.domains))],
                topology=site.cluster.topology.value,
                ild_topology=site.cluster.domain_topology.value,
                simulated=site.cluster.simulated,
                drained=sorted(site.drained),
                down=sorted(core.down.intersection(site.places)),
            )
            for name, site in core.inventory.sites.items()
            if not request.cluster or name == request.cluster
        ]
    )


def allocations(core: Core, request: ListRequest) -> AllocationList:
    """Allocations, in the order of their definition."""
    check_filters(core, request, "list allocations")
    return AllocationList(
        allocations=[
            AllocationInfo(
                name=name,
                cluster=cluster,
                size=site.index.size(name),
                free=site.index.free(name),
                agents=list(machines),
                scheduler=site.closed.get(name, ""),
                owner=site.owned.get(name, ""),
            )
            for cluster, site in core.inventory.sites.items()
            if not request.cluster or cluster == request.cluster
            for name, machines in site.allocations.items()
            if not request.allocation or name == request.allocation
        ]
    )


def devices(core: Core, request: ListRequest) -> DeviceList:
    """Devices, in the order of cluster, domain, offset."""
    check_filters(core, request, "list devices")
    waiting = {
        (q.cluster, q.block.domain, q.block.offset + i)
        for q in core.quarantine.values()
        for i in range(q.block.size)
    }
    kept = {
        (pool[0], block.domain, block.offset + i)
        for pool, reservation in core.reservations.items()
        for piece in reservation.held
        for block in piece.blocks
        for i in range(block.size)
    }
    out: list[DeviceInfo] = []
    for cluster, site in core.inventory.sites.items():
        if request.cluster and cluster != request.cluster:
            continue
        allocation_of = {m: name for name, machines in site.allocations.items() for m in machines}
        owners: dict[int, str] = {}
        owners_of = ""
        for refs in site.refs:
            for ref in refs:
                if ref.machine != owners_of:
                    owners, owners_of = core.owners(ref.machine), ref.machine
                allocation = allocation_of.get(ref.machine, "")
                if request.allocation and allocation != request.allocation:
                    continue
                partition = owners.get(ref.index, "")
                if ref.machine in core.down or ref.index in site.unhealthy.get(ref.machine, ()):
                    state = "DOWN"
                elif (cluster, ref.domain, ref.offset) in waiting or (
                    partition and _resetting(core, partition)
                ):
                    state = "RESETTING"
                elif not partition and ref.machine in site.drained:
                    state = "DRAINED"
                elif (cluster, ref.domain, ref.offset) in kept:
                    state = "RESERVED"
                else:
                    state = "IN_USE" if partition else "FREE"
                known = site.attributes.get(ref.machine, ())
                out.append(
                    DeviceInfo(
                        cluster=cluster,
                        device=ref,
                        allocation=allocation,
                        state=state,
                        partition=partition,
                        attributes=dict(known[ref.index]) if ref.index < len(known) else {},
                    )
                )
    return DeviceList(devices=out)


def _resetting(core: Core, partition: str) -> bool:
    entry = core.partitions.get(partition)
    return bool(
        entry
        and entry.record
        and entry.record.operation in (OperationState.RESETTING, OperationState.REMOVING)
    )
