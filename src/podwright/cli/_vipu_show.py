"""How `vipu` lays out what it lists: the columns of each table and the lines of each card."""

from __future__ import annotations

import time

from podwright.cli._tables import card, table
from podwright.wire import (
    AllocationInfo,
    ClusterInfo,
    DeviceInfo,
    LeaseInfo,
    PartitionInfo,
    QuotaInfo,
    device_sets,
)


def partition_table(partitions: list[PartitionInfo]) -> str:
    """The newest of V-IPU's three layouts, column for column (PopRun guide 2.10.1)."""
    header = (
        "Cluster", "Allocation", "Partition", "ILDs", "GW Routing", "ILD Routing", "Size",
        "GCDs", "State",
    )  # fmt: skip
    return table(
        header,
        (
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
        ),
    )


def cluster_table(clusters: list[ClusterInfo]) -> str:
    """Our columns: V-IPU's are not known."""
    return table(
        ("Cluster", "Family", "Size", "Free", "ILDs", "Topology", "ILD Topology", "Simulated"),
        (
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
        ),
    )


def allocation_table(allocations: list[AllocationInfo]) -> str:
    """V-IPU's two columns and its rules (V-IPU user guide, allocations)."""
    return table(
        ("Allocation ID", "Agents"), ((a.name, " ".join(a.agents)) for a in allocations), ruled=True
    )


def device_table(devices: list[DeviceInfo]) -> str:
    """Our columns. Device: link domain and offset, as --devices takes them."""
    return table(
        ("Cluster", "Device", "Machine", "IPU", "State", "Allocation", "Partition"),
        (
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
        ),
    )


def lease_table(leases: list[LeaseInfo]) -> str:
    """Our columns: leases are ours."""
    return table(
        ("Lease", "Partition", "Devices", "Holder", "Owner", "Epoch", "Ends in"),
        (
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
        ),
    )


def quota_table(quotas: list[QuotaInfo]) -> str:
    """Our columns: V-IPU has no quotas."""

    def of(used: int, limit: int) -> str:
        return f"{used} of {limit}" if limit >= 0 else f"{used}, no limit"

    return table(
        ("User", "Allocation", "Devices", "Partitions"),
        (
            (
                q.user or "all together",
                q.allocation or "all together",
                of(q.used_devices, q.devices),
                of(q.used_partitions, q.partitions),
            )
            for q in quotas
        ),
    )


def attribute_table(devices: list[DeviceInfo]) -> str:
    """V-IPU's columns; agent and IPU stand on their first line only (V-IPU user guide)."""
    rows: list[tuple[object, ...]] = []
    agent = ""
    for info in devices:
        for place, key in enumerate(sorted(info.attributes)):
            machine = info.device.machine
            first = " " if machine == agent else machine
            index = " " if place else info.device.index
            rows.append((first, index, key, info.attributes[key]))
            agent = machine
    return table(("Agent", "IPU", "Attribute", "Value"), rows)


def partition_card(info: PartitionInfo, gcd: int | None = None) -> str:
    """A partition for people: its settings, and the devices of one GCD or of all."""
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
    """A cluster for people."""
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
    """An allocation for people."""
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
