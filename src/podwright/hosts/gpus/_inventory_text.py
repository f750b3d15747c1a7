"""A machine's inventory as text for people: its GPUs, their links, its network adapters."""

from __future__ import annotations

from collections import Counter

from podwright.ground.tables import card, table
from podwright.hosts.gpus._inventory_types import Inventory


def inventory_text(inventory: Inventory) -> str:
    """Return a card of the machine, and a table each of GPUs, slices, links and adapters."""
    drivers = ", ".join(f"{vendor} {version}" for vendor, version in inventory.drivers.items())
    text_blocks = [
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
        gpu_header = (
            "GPU",
            "Name",
            "Memory",
            "Bus",
            "NUMA",
            "Near threads",
            "Links",
            "MIG",
            "UUID",
        )
        gpu_rows = [
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
                    for profile, count in Counter(
                        mig_slice.profile for mig_slice in gpu.slices
                    ).items()
                )
                or gpu.mig,
                gpu.uuid,
            )
            for gpu in inventory.gpus
        ]
        text_blocks.append(table(gpu_header, gpu_rows))
    slice_rows = [
        (gpu.index, gpu_slice.profile, f"{gpu_slice.memory >> 20} MiB", gpu_slice.uuid)
        for gpu in inventory.gpus
        for gpu_slice in gpu.slices
    ]
    if slice_rows:
        text_blocks.append(table(("GPU", "Slice", "Memory", "UUID"), slice_rows))
    if len(inventory.gpus) > 1:
        link_rows = [
            (
                f"GPU {gpu.index}",
                *(
                    _gpu_connection_text(*links_and_path)
                    for links_and_path in zip(gpu.links, gpu.paths, strict=True)
                ),
            )
            for gpu in inventory.gpus
        ]
        text_blocks.append(
            table(("Ways", *(f"GPU {gpu.index}" for gpu in inventory.gpus)), link_rows)
        )
    if inventory.nics:
        nic_header = ("Adapter", "Interface", "Kind", "Gb/s", "Up", "NUMA", "Rail", "Near GPUs")
        nic_rows = [
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
        text_blocks.append(table(nic_header, nic_rows))
    return "\n\n".join(text_blocks)


def _gpu_connection_text(link_count: int, pci_path: str) -> str:
    return f"NV{link_count}" if link_count > 0 else pci_path
