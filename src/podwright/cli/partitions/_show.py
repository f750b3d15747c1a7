"""The tables and cards of `vipu`: the columns of each table and the lines of each card."""

from __future__ import annotations

import time

from podwright.tables import Table, card, table
from podwright.wire import (
    AllocationInfo,
    ClusterInfo,
    DeviceInfo,
    LeaseInfo,
    PartitionInfo,
    QuotaInfo,
    device_sets,
)


def partition_table(partitions: list[PartitionInfo]) -> Table:
    """Return the newest of V-IPU's three layouts, column for column (PopRun guide 2.10.1)."""
    rows: list[tuple[object, ...]] = [
        (
            p.cluster,
            p.allocation,
            p.name,
            p.num_ilds,
            p.gw_routing.value,
            p.routing.value,
            p.size,
            p.num_gcds,
            p.ready_state.value,
        )
        for p in partitions
    ]
    header = (
        "Cluster", "Allocation", "Partition", "ILDs", "GW Routing", "ILD Routing", "Size",
        "GCDs", "State",
    )  # fmt: skip
    optional = ("GW Routing", "ILD Routing", "ILDs", "GCDs", "Cluster")
    return Table(header, rows, "Partition", optional)


def cluster_table(clusters: list[ClusterInfo]) -> Table:
    """Our own columns: V-IPU's are not known."""
    rows: list[tuple[object, ...]] = [
        (
            c.name,
            c.family,
            c.size,
            c.free,
            len(c.ild_sizes),
            c.topology,
            c.ild_topology,
            c.simulated,
        )
        for c in clusters
    ]
    header = (
        "Cluster", "Family", "Size", "Free", "ILDs", "Topology", "ILD Topology", "Simulated",
    )  # fmt: skip
    return Table(header, rows, "Cluster", ("ILD Topology", "Topology", "Simulated", "ILDs"))


def allocation_table(allocations: list[AllocationInfo]) -> Table:
    """V-IPU's two columns and its rules (V-IPU user guide, allocations)."""
    rows: list[tuple[object, ...]] = [(a.name, " ".join(a.agents)) for a in allocations]
    return Table(("Allocation ID", "Agents"), rows, "Allocation ID", ruled=True)


def device_table(devices: list[DeviceInfo]) -> Table:
    """Our own columns. Device: link domain and offset, as --devices takes them."""
    rows: list[tuple[object, ...]] = [
        (
            d.cluster,
            f"{d.device.domain}:{d.device.offset}",
            d.device.machine,
            d.device.index,
            d.state,
            d.allocation,
            d.partition,
        )
        for d in devices
    ]
    header = ("Cluster", "Device", "Machine", "IPU", "State", "Allocation", "Partition")
    return Table(header, rows, "Device", ("Allocation", "Cluster"))


def lease_table(leases: list[LeaseInfo]) -> Table:
    """Our own columns: V-IPU has no leases."""
    rows: list[tuple[object, ...]] = [
        (
            lease.id,
            lease.partition,
            len(lease.devices) or "all",
            lease.holder,
            lease.owner,
            lease.epoch,
            f"{lease.expires_in:.0f} s" if lease.state == "HELD" else lease.state,
        )
        for lease in leases
    ]
    header = ("Lease", "Partition", "Devices", "Holder", "Owner", "Epoch", "Ends in")
    return Table(header, rows, "Lease", ("Epoch", "Owner", "Devices"))


def quota_table(quotas: list[QuotaInfo]) -> Table:
    """Our own columns: V-IPU has no quotas."""

    def of(used: int, limit: int) -> str:
        return f"{used} of {limit}" if limit >= 0 else f"{used}, no limit"

    rows: list[tuple[object, ...]] = [
        (
            q.user or "all together",
            q.allocation or "all together",
            of(q.used_devices, q.devices),
            of(q.used_partitions, q.partitions),
        )
        for q in quotas
    ]
    return Table(("User", "Allocation", "Devices", "Partitions"), rows, "User")


def attribute_table(devices: list[DeviceInfo]) -> Table:
    """V-IPU's columns. Agent and IPU are in their first line only (V-IPU user guide)."""
    rows: list[tuple[object, ...]] = []
    agent = ""
    for info in devices:
        for place, key in enumerate(sorted(info.attributes)):
            machine = info.device.machine
            first = " " if machine == agent else machine
            index = " " if place else info.device.index
            rows.append((first, index, key, info.attributes[key]))
            agent = machine
    return Table(("Agent", "IPU", "Attribute", "Value"), rows, "Attribute")


def partition_card(info: PartitionInfo, gcd: int | None = None) -> str:
    """Return a partition for people: its settings, and the devices of one GCD or of all."""
    holders = [
        f"{lease.holder or lease.owner} ({lease.id}{', FENCING' * (lease.state == 'FENCING')})"
        for lease in info.leases
    ]
    settings = card(
        [
            ("Partition", info.name),
            ("Cluster", info.cluster),
            ("Allocation", info.allocation),
            ("State", info.ready_state.value),
            ("Operation", info.operation_state.value),
            *(("Error", error) for error in info.errors),
            ("Size", info.size),
            ("GCDs", info.num_gcds),
            ("Replicas", info.num_replicas),
            ("ILDs", info.num_ilds),
            ("ILD Routing", info.routing.value),
            ("GW Routing", info.gw_routing.value),
            ("Sync Type", info.sync_type.value),
            ("Reconfigurable", info.reconfigurable),
            ("Relocatable", info.relocatable),
            ("Movable", info.movable),
            ("Auto Reset", _auto_reset(info)),
            ("Owner", info.owner),
            ("Job", info.job),
            ("Created", _moment(info.created_at)),
            ("Held by", ", ".join(holders)),
            *([("Attached to", ", ".join(info.hosts))] if info.hosts else []),
            ("Simulated", info.simulated),
        ]
    )
    devices = table(
        ("GCD", "Device", "Machine", "IPU", "Address"),
        (
            (
                number,
                f"{d.domain}:{d.offset}",
                d.machine,
                d.index,
                f"{d.ip}:{d.server_port}" if d.server_port else d.ip,
            )
            for number, group in enumerate(info.gcds)
            if gcd is None or gcd == number
            for d in group
        ),
    )
    text = f"{settings}\n\n{devices}"
    if not info.reconfigurable:
        return text
    places = [f"{d.domain}:{d.offset}" for gcd in info.gcds for d in gcd]
    subsets = table(
        ("Id", "IPUs", "Devices"),
        (
            (subset.id, len(subset.routing), " ".join(places[at] for at in subset.routing))
            for subset in device_sets(info)
        ),
    )
    return f"{text}\n\nWhat programs attach to:\n\n{subsets}"


def cluster_card(info: ClusterInfo) -> str:
    """Return a cluster for people."""
    return card(
        [
            ("Cluster", info.name),
            ("Family", info.family),
            ("Size", info.size),
            ("Free", info.free),
            ("ILD Sizes", " ".join(map(str, info.ild_sizes))),
            ("Topology", info.topology),
            ("ILD Topology", info.ild_topology),
            ("Machines", " ".join(info.machines)),
            ("Simulated", info.simulated),
        ]
    )


def allocation_card(info: AllocationInfo) -> str:
    """Return an allocation for people."""
    return card(
        [
            ("Allocation", info.name),
            ("Cluster", info.cluster),
            ("Size", info.size),
            ("Free", info.free),
            ("Agents", " ".join(info.agents)),
            *([("Scheduler", f"{info.scheduler} alone creates here")] if info.scheduler else []),
            *([("Owner", f"{info.owner} alone creates here")] if info.owner else []),
        ]
    )


def _auto_reset(info: PartitionInfo) -> str:
    if not info.auto_reset:
        return "no"
    return f"yes, {info.auto_reset_count} of {info.auto_reset_max} done"


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else ""
