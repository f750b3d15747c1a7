"""A machine's inventory as text for people: its GPUs, their links, its network adapters."""

from __future__ import annotations

from collections import Counter

from podwright.hosts.gpus._values import Inventory
from podwright.tables import card, table


def inventory_text(inventory: Inventory) -> str:
    """Return a card of the machine, and a table each of GPUs, slices, links and adapters."""
    drivers = ", ".join(f"{vendor} {version}" for vendor, version in inventory.drivers.items())
    parts = [
        card(
            (
                ("Host", inventory.host),
                ("Sockets", inventory.sockets),
                ("Cores", inventory.sockets * inventory.cores_per_socket),
                (
                    "Threads",
                    inventory.sockets * inventory.cores_per_socket * inventory.threads_per_core,
                ),
                ("Memory", f"{inventory.memory >> 30} GiB"),
                ("Drivers", drivers),
                ("GPUs", len(inventory.gpus)),
            )
        )
    ]
    if inventory.gpus:
        header = ("GPU", "Name", "Memory", "Bus", "NUMA", "Near threads", "Links", "MIG", "UUID")
        rows = [
            (
                gpu.index,
                gpu.name,
                f"{gpu.memory >> 20} MiB",
                gpu.bus,
                gpu.node if gpu.node >= 0 else "",
                gpu.cpus,
                max(gpu.links, default=0) if len(gpu.links) > 1 else "",
                ", ".join(
                    f"{count} of {profile}"
                    for profile, count in Counter(s.profile for s in gpu.slices).items()
                )
                or gpu.mig,
                gpu.uuid,
            )
            for gpu in inventory.gpus
        ]
        parts.append(table(header, rows))
    slices = [
        (gpu.index, piece.profile, f"{piece.memory >> 20} MiB", piece.uuid)
        for gpu in inventory.gpus
        for piece in gpu.slices
    ]
    if slices:
        parts.append(table(("GPU", "Slice", "Memory", "UUID"), slices))
    if len(inventory.gpus) > 1:
        ways = [
            (
                f"GPU {gpu.index}",
                *(_connection(*pair) for pair in zip(gpu.links, gpu.paths, strict=True)),
            )
            for gpu in inventory.gpus
        ]
        parts.append(table(("Ways", *(f"GPU {gpu.index}" for gpu in inventory.gpus)), ways))
    if inventory.nics:
        columns = ("Adapter", "Interface", "Kind", "Gb/s", "Up", "NUMA", "Rail", "Near GPUs")
        nics = [
            (
                nic.name,
                nic.interface,
                nic.kind,
                nic.gbps or "",
                nic.up,
                nic.node if nic.node >= 0 else "",
                nic.rail if nic.rail >= 0 else "",
                ",".join(map(str, nic.gpus)),
            )
            for nic in inventory.nics
        ]
        parts.append(table(columns, nics))
    return "\n\n".join(parts)


def _connection(links: int, path: str) -> str:
    return f"NV{links}" if links > 0 else path
