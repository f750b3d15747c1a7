"""The tables and cards of `vipu`: the columns of each table and the lines of each card."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from podwright.ground.tables import Table, card, table, table_of
from podwright.wire import (
    AllocationInfo,
    ClusterInfo,
    DeviceInfo,
    LeaseInfo,
    PartitionInfo,
    QuotaInfo,
    device_sets,
)


def partition_table(partitions: list[PartitionInfo], *, with_owner: bool = False) -> Table:
    """Return the newest of V-IPU's three layouts, column for column (PopRun guide 2.10.1).

    The owner comes last, and only where it is wanted: scripts take the last column for the state.
    """
    columns: dict[str, Callable[[PartitionInfo], object]] = {
        "Cluster": lambda p: p.cluster,
        "Allocation": lambda p: p.allocation,
        "Partition": lambda p: p.name,
        "ILDs": lambda p: p.num_ilds,
        "GW Routing": lambda p: p.gw_routing.value,
        "ILD Routing": lambda p: p.routing.value,
        "Size": lambda p: p.size,
        "GCDs": lambda p: p.num_gcds,
        "State": lambda p: p.ready_state.value,
    }
    if with_owner:
        columns["Owner"] = lambda p: p.owner
    return table_of(
        partitions,
        columns,
        "Partition",
        ("GW Routing", "ILD Routing", "ILDs", "GCDs", "Cluster"),
    )


def cluster_table(clusters: list[ClusterInfo]) -> Table:
    """Our own columns: V-IPU's are not known."""
    return table_of(
        clusters,
        {
            "Cluster": lambda c: c.name,
            "Family": lambda c: c.family,
            "Size": lambda c: c.size,
            "Free": lambda c: c.free,
            "ILDs": lambda c: len(c.ild_sizes),
            "Topology": lambda c: c.topology,
            "ILD Topology": lambda c: c.ild_topology,
            "Simulated": lambda c: c.simulated,
        },
        "Cluster",
        ("ILD Topology", "Topology", "Simulated", "ILDs"),
    )


def allocation_table(allocations: list[AllocationInfo]) -> Table:
    """V-IPU's two columns and its rules (V-IPU user guide, allocations)."""
    columns: dict[str, Callable[[AllocationInfo], object]] = {
        "Allocation ID": lambda a: a.name,
        "Agents": lambda a: " ".join(a.agents),
    }
    return table_of(allocations, columns, "Allocation ID", ruled=True)


def device_table(devices: list[DeviceInfo], owners: Mapping[str, str] | None = None) -> Table:
    """Our own columns. Device: link domain and offset, as --devices takes them.

    owners: of partitions, where the column of owners is wanted.
    """
    columns: dict[str, Callable[[DeviceInfo], object]] = {
        "Cluster": lambda d: d.cluster,
        "Device": lambda d: f"{d.device.domain}:{d.device.offset}",
        "Machine": lambda d: d.device.machine,
        "IPU": lambda d: d.device.index,
        "State": lambda d: d.state,
        "Allocation": lambda d: d.allocation,
        "Partition": lambda d: d.partition,
        "Reason": lambda d: d.attributes.get("drained", ""),
    }
    if owners is not None:
        columns["Owner"] = lambda d: owners.get(d.partition, "")
    return table_of(devices, columns, "Device", ("Allocation", "Cluster"))


def lease_table(leases: list[LeaseInfo]) -> Table:
    """Our own columns: V-IPU has no leases."""
    return table_of(
        leases,
        {
            "Lease": lambda lease: lease.id,
            "Partition": lambda lease: lease.partition,
            "Devices": lambda lease: len(lease.devices) or "all",
            "Holder": lambda lease: lease.holder,
            "Owner": lambda lease: lease.owner,
            "Epoch": lambda lease: lease.epoch,
            "Ends in": lambda lease: (
                f"{lease.expires_in:.0f} s" if lease.state == "HELD" else lease.state
            ),
        },
        "Lease",
        ("Epoch", "Owner", "Devices"),
    )


def quota_table(quotas: list[QuotaInfo]) -> Table:
    """Our own columns: V-IPU has no quotas."""

    def of(used: int, limit: int) -> str:
        return f"{used} of {limit}" if limit >= 0 else f"{used}, no limit"

    return table_of(
        quotas,
        {
            "User": lambda q: q.user or "all together",
            "Allocation": lambda q: q.allocation or "all together",
            "Devices": lambda q: of(q.used_devices, q.devices),
            "Partitions": lambda q: of(q.used_partitions, q.partitions),
        },
        "User",
    )


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
