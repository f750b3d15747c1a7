"""Converts the output of `podwright inventory --json` from many machines into the tables of an
inventory."""

from __future__ import annotations

from collections import Counter
from typing import Any

from podwright.hosts.gpus import BadInventory, Gpu, Inventory, read_inventories


def surveyed(text: str, source: str) -> list[dict[str, Any]]:
    """One table for each machine that has GPUs. Raises ValueError."""
    inventories = [inventory for inventory in read_inventories(text, source) if inventory.gpus]
    if not inventories:
        raise BadInventory(f"{source}: no machine in it has GPUs")
    fabrics = Counter(
        gpu.fabric
        for inventory in inventories
        for gpu in {g.fabric: g for g in inventory.gpus}.values()
    )
    wide = {fabric for fabric, machines in fabrics.items() if fabric and machines > 1}
    names = {fabric: f"nvlink{n}" for n, fabric in enumerate(sorted(wide), 1)}
    return [_table(inventory, names) for inventory in inventories]


def _table(machine: Inventory, domains: dict[str, str]) -> dict[str, Any]:
    shared = Counter(file for gpu in machine.gpus for file in set(gpu.files))
    nodes = max((gpu.node for gpu in machine.gpus), default=0) + 1
    cores = machine.sockets * machine.cores_per_socket
    numa = next(n for n in range(max(nodes, machine.sockets), cores + 1) if cores % n == 0)
    table: dict[str, Any] = {
        "name": machine.host,
        "sockets": machine.sockets,
        "cores_per_socket": machine.cores_per_socket,
        "threads_per_core": machine.threads_per_core,
        "numa_nodes": numa,
        "memory": machine.memory >> 20,
        "gpus": [row for gpu in machine.gpus for row in _rows(gpu, shared)],
        "nics": [
            {
                "device": nic.name if nic.rdma else "",
                "interface": nic.interface,
                "numa": max(nic.node, 0),
                "rail": nic.rail,
            }
            for nic in machine.nics
            if nic.rail >= 0
        ],
    }
    if domain := domains.get(machine.gpus[0].fabric):
        table["domain"] = domain
    return table


def _rows(gpu: Gpu, shared: Counter[str]) -> list[dict[str, Any]]:
    """A GPU, or each of its slices."""
    common: dict[str, Any] = {"numa": max(gpu.node, 0), "uuid": gpu.uuid}
    if gpu.cores:
        common["cores"] = gpu.cores
    if gpu.slices:
        # Without the driver's capability files, all slices of a GPU share its one device file.
        files_differ = len({piece.files for piece in gpu.slices}) == len(gpu.slices)
        return [
            {
                **common,
                "uuid": piece.uuid,
                "type": f"{gpu.type}_{piece.profile}".replace("+", "."),
                "memory": round(piece.memory / (1 << 30)),
                "file": ",".join(piece.files) if files_differ else "",
            }
            for piece in gpu.slices
        ]
    own = [file for file in gpu.files if shared[file] == 1]
    row = {**common, "type": gpu.type, "memory": round(gpu.memory / (1 << 30))}
    if own:
        row["file"] = own[0]
    different = {count for count in gpu.links if count >= 0}
    if len(different) > 1:  # where all are alike they tell Slurm nothing
        row["links"] = list(gpu.links)
    return [row]
