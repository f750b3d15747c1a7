"""Converts the output of `podwright inventory --json` from many machines into the tables of an
inventory."""

from __future__ import annotations

from collections import Counter
from typing import Any

from podwright.hosts.gpus import BadInventory, Gpu, Inventory, read_inventories


def survey_tables(survey_text: str, source_name: str) -> list[dict[str, Any]]:
    """One table for each machine. Raises ValueError."""
    inventories = list(read_inventories(survey_text, source_name))
    if not any(inventory.gpus for inventory in inventories):
        raise BadInventory(f"{source_name}: no machine in it has GPUs")
    machine_counts = Counter(
        gpu.fabric
        for inventory in inventories
        for gpu in {machine_gpu.fabric: machine_gpu for machine_gpu in inventory.gpus}.values()
    )
    shared_fabrics = {fabric for fabric, count in machine_counts.items() if fabric and count > 1}
    domain_names = {
        fabric: f"nvlink{number}" for number, fabric in enumerate(sorted(shared_fabrics), 1)
    }
    return [_machine_table(inventory, domain_names) for inventory in inventories]


def _machine_table(machine: Inventory, domain_by_fabric: dict[str, str]) -> dict[str, Any]:
    file_counts = Counter(file for gpu in machine.gpus for file in set(gpu.files))
    least_numa_nodes = max((gpu.node for gpu in machine.gpus), default=0) + 1
    cores = machine.sockets * machine.cores_per_socket
    numa_nodes = next(
        count
        for count in range(max(least_numa_nodes, machine.sockets), cores + 1)
        if cores % count == 0
    )
    node_table: dict[str, Any] = {
        "name": machine.host,
        "sockets": machine.sockets,
        "cores_per_socket": machine.cores_per_socket,
        "threads_per_core": machine.threads_per_core,
        "numa_nodes": numa_nodes,
        "memory": machine.memory >> 20,
        "gpus": [row for gpu in machine.gpus for row in _gpu_rows(gpu, file_counts)],
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
    fabric = machine.gpus[0].fabric if machine.gpus else ""
    if domain := domain_by_fabric.get(fabric):
        node_table["domain"] = domain
    return node_table


def _gpu_rows(gpu: Gpu, file_counts: Counter[str]) -> list[dict[str, Any]]:
    """A GPU, or each of its slices."""
    common_values: dict[str, Any] = {"numa": max(gpu.node, 0), "uuid": gpu.uuid}
    if gpu.cores:
        common_values["cores"] = gpu.cores
    if gpu.slices:
        # Without the driver's capability files, all slices of a GPU share its one device file.
        files_differ = len({gpu_slice.files for gpu_slice in gpu.slices}) == len(gpu.slices)
        return [
            {
                **common_values,
                "uuid": gpu_slice.uuid,
                "type": f"{gpu.type}_{gpu_slice.profile}".replace("+", "."),
                "memory": round(gpu_slice.memory / (1 << 30)),
                "file": ",".join(gpu_slice.files) if files_differ else "",
            }
            for gpu_slice in gpu.slices
        ]
    own_files = [file for file in gpu.files if file_counts[file] == 1]
    gpu_row = {**common_values, "type": gpu.type, "memory": round(gpu.memory / (1 << 30))}
    if own_files:
        gpu_row["file"] = own_files[0]
    link_counts = {count for count in gpu.links if count >= 0}
    if len(link_counts) > 1:  # where all are alike they tell Slurm nothing
        gpu_row["links"] = list(gpu.links)
    return [gpu_row]
