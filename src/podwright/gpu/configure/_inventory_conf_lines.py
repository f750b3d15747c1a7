"""Translates an inventory into the lines of gres.conf and the node lines of slurm.conf. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from podwright.errors import InvalidRequest
from podwright.gpu.configure._inventory import Kind, NodeGpu, SiteInventory
from podwright.hosts import fold_names, write_list
from podwright.slurm.site.conf_lines import Row, value
from podwright.slurm.site.releases import SlurmVersion, release_of

DETECTION_MODES = ("off", "nvml", "rsmi")


def gres_rows(inventory: SiteInventory, detection_mode: str, version: SlurmVersion) -> list[Row]:
    """The rows of gres.conf. detection_mode: `off` lists every GPU; `nvml` or `rsmi` leaves
    detection to slurmd.

    Where Slurm places by whole sockets, a GPU has the cores of its socket: with those of one NUMA
    node of several, Slurm loses the GPU.
    """
    whole_sockets = release_of(version).gres_cores_are_sockets
    names_by_gpus: dict[tuple[NodeGpu, ...], list[str]] = {}
    names_by_gres: dict[tuple[str, int], list[str]] = {}
    for node_kind, node_names in inventory.kinds().items():
        if node_kind.gpus:
            gpus = _with_socket_cores(node_kind) if whole_sockets else node_kind.gpus
            names_by_gpus.setdefault(gpus, []).extend(node_names)
        for name_and_count in node_kind.shared_gres.items():
            names_by_gres.setdefault(name_and_count, []).extend(node_names)
    gpu_nodes = fold_names(name for name, kind in inventory.nodes.items() if kind.gpus)
    gpu_rows: list[Row] = [{"NodeName": gpu_nodes, "AutoDetect": detection_mode}]
    shared_rows: list[Row] = [
        {"NodeName": fold_names(names), "Name": gres_name, "Count": str(count)}
        for (gres_name, count), names in names_by_gres.items()
    ]
    if detection_mode != "off":
        return gpu_rows + shared_rows
    for gpus, node_names in names_by_gpus.items():
        if not all(gpu.file for gpu in gpus):
            raise InvalidRequest(
                f"the device files of the GPUs of {fold_names(node_names)} are not known, so Slurm "
                "cannot tell them apart",
                operation="write gres.conf",
                would_work="--autodetect=nvml; or survey the node where "
                "/proc/driver/nvidia/capabilities can be read",
            )
        node_list = fold_names(node_names)
        for _, gpu_group in groupby(gpus, key=_shared_line_key):
            line_gpus = list(gpu_group)
            row = {"NodeName": node_list, "Name": "gpu", "Type": line_gpus[0].type}
            row["File"] = _folded_files([gpu.file for gpu in line_gpus])
            if "," in line_gpus[0].file:
                row["MultipleFiles"] = row.pop("File")
            row["Cores"] = write_list(line_gpus[0].cores)
            if line_gpus[0].links:
                row["Links"] = ",".join(map(str, line_gpus[0].links))
            gpu_rows.append(row)
    return gpu_rows + shared_rows


def _with_socket_cores(node_kind: Kind) -> tuple[NodeGpu, ...]:
    """The GPUs of a node, each near all cores of the sockets that it is near."""
    size = node_kind.cores_per_socket
    return tuple(
        gpu._replace(
            cores=tuple(
                core
                for socket in sorted({core // size for core in gpu.cores})
                for core in range(socket * size, (socket + 1) * size)
            )
        )
        for gpu in node_kind.gpus
    )


def _shared_line_key(gpu: NodeGpu) -> tuple[object, ...]:
    """GPUs with the same key are written in one line."""
    return gpu.type, gpu.cores, gpu.links, gpu.file if "," in gpu.file else ""


def _folded_files(files: Sequence[str]) -> str:
    """`/dev/nvidia[0-3]`, where only the numbers at the end differ and rise one by one."""
    if len(files) == 1:
        return files[0]
    stem = files[0].rstrip("0123456789")
    texts = [file.removeprefix(stem) for file in files]
    are_numbers = all(tail.isdigit() and (tail == "0" or tail[0] != "0") for tail in texts)
    if are_numbers and all(file.startswith(stem) for file in files):
        numbers = [int(tail) for tail in texts]
        if numbers == sorted(numbers):
            return f"{stem}[{write_list(numbers)}]"
    return ",".join(files)


def node_row(row: Row, node_kind: Kind, detection_mode: str) -> Row:
    """The row of a node with the values of the inventory.

    Keys that the inventory replaces or makes obsolete are removed, and every other key stays. Where
    slurmd detects GPUs, the type must be a part of the name that slurmd generates; for a MIG slice
    this is its profile.
    """
    obsolete_keys = ("cpus", "procs", "boards", "socketsperboard")
    reserved_resources = {
        "CoreSpecCount": node_kind.core_spec_count,
        "MemSpecLimit": node_kind.mem_spec_limit >> 20,
    }
    replaced_keys = [
        *("sockets", "corespersocket", "threadspercore", "gres", "feature", "features"),
        *(key.lower() for key, number in reserved_resources.items() if number),
    ]
    node_state = value(row, "state")
    new_row = {
        row_key: row_value
        for row_key, row_value in row.items()
        if row_key.lower() not in (*obsolete_keys, *replaced_keys, "state")
        and (row_key.lower() != "realmemory" or not node_kind.memory)
    }
    new_row["Sockets"] = str(node_kind.sockets)
    new_row["CoresPerSocket"] = str(node_kind.cores_per_socket)
    new_row["ThreadsPerCore"] = str(node_kind.threads_per_core)
    if node_kind.memory:
        new_row["RealMemory"] = str(node_kind.memory >> 20)
    new_row.update((key, str(number)) for key, number in reserved_resources.items() if number)
    shared_counts = node_kind.shared_gres
    other_gres = [
        item
        for item in value(row, "gres").split(",")
        if item and item.split(":")[0] not in ("gpu", *shared_counts)
    ]
    gres = (
        re.sub(r"gpu:\w+_(\d+g\.)", r"gpu:\1", node_kind.gres)
        if detection_mode == "nvml"
        else node_kind.gres
    )
    shared_items = [f"{name}:{count}" for name, count in shared_counts.items()]
    features = value(row, "feature") or value(row, "features")
    all_features = dict.fromkeys([*filter(None, features.split(",")), *node_kind.words])
    if all_gres := ",".join(filter(None, [gres, *shared_items, *other_gres])):
        new_row["Gres"] = all_gres
    if all_features:
        new_row["Feature"] = ",".join(all_features)
    new_row["State"] = node_state or "UNKNOWN"
    return new_row
