"""`podwright inventory`: this machine's GPUs, their links, its cores and its network adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.cli.shared import _option_table as opt
from podwright.cli.shared._verb import Verb

if TYPE_CHECKING:
    from podwright.hosts.gpus import Inventory


class InventoryOptions(opt.OptionTable):
    """The options of `inventory`."""

    json = opt.flag("print JSON, one line")


def _run(arguments: InventoryOptions) -> int:
    """Run it. Returns the exit code."""
    import os

    from podwright.cli.shared._arguments import complain
    from podwright.hosts.gpus import take_inventory

    inventory = take_inventory(os.environ)
    if inventory.simulated:
        complain("SIMULATED: these GPUs exist only in software.")
    for note in inventory.notes:
        complain(f"podwright inventory: {note}")
    print(inventory.to_json() if arguments.json else _text(inventory))
    return 0


def _text(inventory: Inventory) -> str:
    from collections import Counter

    from podwright.cli.shared._tables import card, table

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


VERBS = (
    Verb(
        "inventory",
        InventoryOptions,
        _run,
        help="show the GPUs of this machine, and what lies around them",
        description="Show the GPUs of this machine: links, near cores, memory node, and the "
        "network adapters nearest to each. With --json it is one line. Of several nodes: `srun -N4 "
        "--ntasks-per-node=1 sh -c 'podwright inventory --json > node-$SLURMD_NODENAME.json'`, "
        "then `cat node-*.json > nodes.json` (srun mixes long lines that several nodes print).",
    ),
)
