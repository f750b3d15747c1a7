"""What Slurm's files must say of an inventory: gres.conf, node lines, topology.conf. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from podwright.hosts import write_list
from podwright.slurm.gpus._inventory import Gpu, Inventory, Kind, Switch
from podwright.slurm.gpus._lines import Row, fold, value
from podwright.wire import InvalidRequest

DETECT = ("off", "nvml", "rsmi")


def gres_rows(inventory: Inventory, detect: str) -> list[Row]:
    """The lines of gres.conf. detect: who counts: off (we say it all), nvml or rsmi (slurmd)."""
    alike: dict[tuple[Gpu, ...], list[str]] = {}
    for kind, names in inventory.kinds().items():
        alike.setdefault(kind.gpus, []).extend(names)
    every = fold(inventory.nodes)
    rows: list[Row] = [{"NodeName": every, "AutoDetect": detect}]
    if detect != "off":
        return rows
    for gpus, names in alike.items():
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
    return rows


def _together(gpu: Gpu) -> tuple[object, ...]:
    """GPUs with the same key stand in one line."""
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
    """A node's line, with what the inventory knows; what else it says stays.

    Where slurmd detects, a type must be part of the name that it makes: of a slice the profile is.
    """
    gone = ("cpus", "procs", "boards", "socketsperboard")
    mine = ("sockets", "corespersocket", "threadspercore", "gres", "feature", "features")
    state = value(row, "state")
    out = {
        k: v
        for k, v in row.items()
        if k.lower() not in (*gone, *mine, "state")
        and (k.lower() != "realmemory" or not kind.memory)
    }
    out["Sockets"] = str(kind.sockets)
    out["CoresPerSocket"] = str(kind.cores_per_socket)
    out["ThreadsPerCore"] = str(kind.threads_per_core)
    if kind.memory:
        out["RealMemory"] = str(kind.memory)
    others = [
        word for word in value(row, "gres").split(",") if word and word.split(":")[0] != "gpu"
    ]
    gres = re.sub(r"gpu:\w+_(\d+g\.)", r"gpu:\1", kind.gres) if detect == "nvml" else kind.gres
    out["Gres"] = ",".join([gres, *others])
    said = value(row, "feature") or value(row, "features")
    out["Feature"] = ",".join(dict.fromkeys([*filter(None, said.split(",")), *kind.words]))
    out["State"] = state or "UNKNOWN"
    return out


def units(switches: Iterable[Switch]) -> tuple[Switch, ...]:
    """The switches as Slurm's tree can have them, in which a node hangs on one switch alone.

    On a fabric of rails a node hangs on a switch of each rail. Switches with the same nodes, or
    with the same units below them, are one to Slurm: a job inside it stays inside on every rail.
    No root is made up: fabrics that nothing joins stay apart. Raises InvalidRequest.
    """
    left = list(switches)
    unit: dict[str, Switch] = {}
    found: dict[tuple[str, ...], Switch] = {}
    owner: dict[str, str] = {}
    for switch in [s for s in left if s.nodes]:
        key = tuple(sorted(switch.nodes))
        if key not in found:
            _claim(owner, switch.name, key)
            found[key] = switch
        unit[switch.name] = found[key]
    left = [switch for switch in left if switch.switches]
    while left:
        ready = [s for s in left if all(below in unit for below in s.switches)]
        if not ready:
            names = ", ".join(switch.name for switch in left)
            raise InvalidRequest(f"the switches {names} stand below each other in a circle")
        for switch in ready:
            below = tuple(sorted({unit[name].name for name in switch.switches}))
            if below not in found:
                _claim(owner, switch.name, below)
                found[below] = switch._replace(switches=below)
            unit[switch.name] = found[below]
        left = [switch for switch in left if switch not in ready]
    return tuple(found.values())


def _claim(owner: dict[str, str], switch: str, members: tuple[str, ...]) -> None:
    for member in members:
        if member in owner:
            raise InvalidRequest(
                f"{member} hangs on the switches {owner[member]} and {switch}, which do not have "
                "the same members",
                asked="make a tree for Slurm",
                would_work="On a fabric of rails, the switches of all rails have the same nodes; "
                "leave out what joins nodes in another way",
            )
        owner[member] = switch


def tree_rows(switches: Iterable[Switch]) -> list[Row]:
    """topology.conf for topology/tree."""
    return [
        {"SwitchName": s.name, "Nodes": fold(s.nodes)}
        if s.nodes
        else {"SwitchName": s.name, "Switches": fold(s.switches)}
        for s in units(switches)
    ]


def block_rows(inventory: Inventory) -> list[Row]:
    """topology.conf for topology/block: a block for each NVLink domain of several nodes."""
    rows: list[Row] = [
        {"BlockName": name, "Nodes": fold(nodes)} for name, nodes in inventory.domains.items()
    ]
    base = min(len(nodes) for nodes in inventory.domains.values())
    sizes = [base]
    while sizes[-1] * 2 <= base * len(inventory.domains):
        sizes.append(sizes[-1] * 2)
    return [*rows, {"BlockSizes": ",".join(map(str, sizes))}]
