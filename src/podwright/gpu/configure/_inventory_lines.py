"""Translates an inventory into the lines of gres.conf and the node lines of slurm.conf. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from podwright.errors import InvalidRequest
from podwright.gpu.configure._inventory import Kind, NodeGpu, SiteInventory
from podwright.gpu.configure._lines import Row, fold, value
from podwright.hosts import write_list

DETECT = ("off", "nvml", "rsmi")


def gres_rows(inventory: SiteInventory, detect: str) -> list[Row]:
    """The rows of gres.conf. detect: `off` lists every GPU; `nvml` or `rsmi` leaves detection to
    slurmd."""
    alike: dict[tuple[NodeGpu, ...], list[str]] = {}
    shared: dict[tuple[str, int], list[str]] = {}
    for kind, names in inventory.kinds().items():
        alike.setdefault(kind.gpus, []).extend(names)
        for gres in kind.shared_gres.items():
            shared.setdefault(gres, []).extend(names)
    all_nodes = fold(inventory.nodes)
    rows: list[Row] = [{"NodeName": all_nodes, "AutoDetect": detect}]
    parts: list[Row] = [
        {"NodeName": fold(names), "Name": name, "Count": str(count)}
        for (name, count), names in shared.items()
    ]
    if detect != "off":
        return rows + parts
    for gpus, names in alike.items():
        if not all(gpu.file for gpu in gpus):
            raise InvalidRequest(
                f"the device files of the GPUs of {fold(names)} are not known, so Slurm cannot "
                "tell them apart",
                operation="write gres.conf",
                would_work="--autodetect=nvml; or survey the node where "
                "/proc/driver/nvidia/capabilities can be read",
            )
        where = fold(names)
        for _, group in groupby(gpus, key=_together):
            those = list(group)
            row = {"NodeName": where, "Name": "gpu", "Type": those[0].type}
            row["File"] = _files([gpu.file for gpu in those])
            if "," in those[0].file:
                row["MultipleFiles"] = row.pop("File")
            row["Cores"] = write_list(those[0].cores)
            if those[0].links:
                row["Links"] = ",".join(map(str, those[0].links))
            rows.append(row)
    return rows + parts


def _together(gpu: NodeGpu) -> tuple[object, ...]:
    """GPUs with the same key are written in one line."""
    return gpu.type, gpu.cores, gpu.links, gpu.file if "," in gpu.file else ""


def _files(files: Sequence[str]) -> str:
    """`/dev/nvidia[0-3]`, where only the numbers at the end differ and rise one by one."""
    if len(files) == 1:
        return files[0]
    stem = files[0].rstrip("0123456789")
    tails = [file.removeprefix(stem) for file in files]
    plain = all(t.isdigit() and (t == "0" or t[0] != "0") for t in tails)
    if plain and all(file.startswith(stem) for file in files):
        numbers = [int(t) for t in tails]
        if numbers == sorted(numbers):
            return f"{stem}[{write_list(numbers)}]"
    return ",".join(files)


def node_row(row: Row, kind: Kind, detect: str) -> Row:
    """The row of a node with the values of the inventory.

    Keys that the inventory replaces or makes obsolete are removed, and every other key stays. Where
    slurmd detects GPUs, the type must be a part of the name that slurmd generates; for a MIG slice
    this is its profile.
    """
    obsolete = ("cpus", "procs", "boards", "socketsperboard")
    spec = {"CoreSpecCount": kind.core_spec_count, "MemSpecLimit": kind.mem_spec_limit >> 20}
    replaced = [
        *("sockets", "corespersocket", "threadspercore", "gres", "feature", "features"),
        *(key.lower() for key, number in spec.items() if number),
    ]
    state = value(row, "state")
    out = {
        k: v
        for k, v in row.items()
        if k.lower() not in (*obsolete, *replaced, "state")
        and (k.lower() != "realmemory" or not kind.memory)
    }
    out["Sockets"] = str(kind.sockets)
    out["CoresPerSocket"] = str(kind.cores_per_socket)
    out["ThreadsPerCore"] = str(kind.threads_per_core)
    if kind.memory:
        out["RealMemory"] = str(kind.memory >> 20)
    out.update((key, str(number)) for key, number in spec.items() if number)
    shared = kind.shared_gres
    other_gres = [
        word
        for word in value(row, "gres").split(",")
        if word and word.split(":")[0] not in ("gpu", *shared)
    ]
    gres = re.sub(r"gpu:\w+_(\d+g\.)", r"gpu:\1", kind.gres) if detect == "nvml" else kind.gres
    parts = [f"{name}:{count}" for name, count in shared.items()]
    out["Gres"] = ",".join([gres, *parts, *other_gres])
    features = value(row, "feature") or value(row, "features")
    out["Feature"] = ",".join(dict.fromkeys([*filter(None, features.split(",")), *kind.words]))
    out["State"] = state or "UNKNOWN"
    return out
