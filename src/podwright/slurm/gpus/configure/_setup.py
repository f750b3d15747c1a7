"""The plan of a GPU cluster's Slurm: which files change, and to what. Reads files, writes none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.slurm.gpus.configure import _gates as gates
from podwright.slurm.gpus.configure import _imex as imex
from podwright.slurm.gpus.configure import _sampling as samples
from podwright.slurm.gpus.configure import _summaries as summaries
from podwright.slurm.gpus.configure._defaults import (
    NodeShare,
    cluster_defaults,
    memory_notes,
    partition_defaults,
    rooms,
)
from podwright.slurm.gpus.configure._inventory import PlannedPartition, SiteInventory
from podwright.slurm.gpus.configure._inventory_lines import gres_rows, node_row
from podwright.slurm.gpus.configure._lines import (
    MARK,
    OURS,
    Row,
    fold,
    logical,
    names_in,
    part,
    read_row,
    replaced,
    value,
    with_rows,
)
from podwright.slurm.gpus.configure._topology import Topology, plan_topology, topology_notes
from podwright.slurm.site.changes import FileChanges
from podwright.slurm.site.edit import WAS, changed, commented, joined, settings, undone
from podwright.slurm.site.files import read
from podwright.slurm.site.releases import Version, release_of

_HEAD = f"# GPUs, by podwright slurm configure --gpus{OURS}\n"
_NEW = f"# There was no such file before.{OURS}\n"
_TOPOLOGIES = ("topology.conf", "topology.yaml")
_FILES = ("gres.conf", *_TOPOLOGIES, "cgroup.conf")


class Wishes(NamedTuple):
    """What an administrator chooses. confine: jobs reach their own GPUs alone (cgroups). imex:
    files of the nodes of each NVLink domain, and a channel for each job. health: a program that
    Slurm runs on each node every five minutes; empty for none. gate: our own, which is Prolog and
    Epilog as well. sampling: of each job's GPUs. summary: of each job, at its end."""

    detect: str = "off"
    topology: str = "auto"
    confine: bool = False
    imex: bool = False
    health: str = ""
    gate: gates.GateScript | None = None
    sampling: samples.Sampling | None = None
    summary: summaries.Summary | None = None


def configure(
    conf: Path,
    inventory: SiteInventory,
    version: Version,
    wishes: Wishes,
    resolve: Callable[[str], str] = imex.resolved,
) -> tuple[FileChanges, list[str]]:
    """The plan, and what an administrator should hear. Raises InvalidRequest."""
    etc = conf.parent
    base = undone(read(conf), MARK)
    now = settings(base)
    _check_includes(etc, base, inventory)
    topology = plan_topology(inventory, version, wishes.topology)
    notes = [*topology_notes(topology, version), *_notes(inventory, now)]
    found = rooms(inventory, base, str(conf))
    wanted = _settings(inventory, now, topology, version, wishes, found)
    memory = _counts_memory({**now, **{key.lower(): said for key, said in wanted.items()}})
    wanted |= cluster_defaults(found, now, memory=memory)
    notes += memory_notes(found, now, memory=memory)
    text = changed(base, wanted, str(conf), MARK)
    text = _nodes(text, inventory, str(conf), wishes.detect)

    def more(partition: PlannedPartition, row: Row) -> Row:
        own = partition_defaults(found, partition.nodes, row, now, memory)
        if name := topology.of_partition(partition.nodes):
            own["Topology"] = name
        return own

    text = _partitions(text, inventory, str(conf), more)
    plan = FileChanges()
    domains = imex.imex_texts(etc, base, inventory, resolve) if wishes.imex else {}
    notes += imex.notes([*domains], inventory)
    plan.texts.update(dict.fromkeys(imex.known(etc)))
    plan.texts[etc / "gres.conf"] = _gres(etc / "gres.conf", inventory, wishes.detect, [*domains])
    plan.texts.update(domains)  # once gres.conf says that they are ours
    plan.texts.update(_topology_files(etc, topology, version))
    cgroup = etc / "cgroup.conf"
    held = undone(read(cgroup), MARK) if cgroup.exists() else ""
    if wishes.confine:
        new = "" if cgroup.exists() and _NEW not in read(cgroup) else _NEW
        plan.texts[cgroup] = new + changed(held, {"ConstrainDevices": "yes"}, str(cgroup), MARK)
    elif settings(held).get("constraindevices", "no").lower() != "yes":
        notes.append("jobs can open GPUs of other jobs: --confine sets ConstrainDevices=yes")
    if wishes.gate:
        plan.texts[wishes.gate.script] = gates.script(wishes.gate, conf, now)
        notes += gates.notes(wishes.gate, now)
    if wishes.sampling:
        plan.texts[wishes.sampling.script] = samples.script(wishes.sampling, now)
    if wishes.summary:
        theirs = wishes.gate.path if wishes.gate else now.get("epilog", "")
        plan.texts[wishes.summary.script] = summaries.script(wishes.summary, conf, theirs)
        notes += summaries.notes(now)
    plan.texts[conf] = text
    return plan, notes


def take_back(conf: Path) -> FileChanges:
    """The plan that undoes it, byte for byte. Raises InvalidRequest."""
    plan = FileChanges()
    plan.texts.update(
        dict.fromkeys(
            (
                *imex.known(conf.parent),
                *gates.known(conf),
                *samples.known(conf),
                *summaries.known(conf),
            )
        )
    )
    for path in (*(conf.parent / name for name in _FILES), conf):
        if not path.exists():
            continue
        text = read(path)
        if any(line.startswith(WAS) and line.endswith(OURS + "\n") for line in _lines(text)):
            raise InvalidRequest(
                "native mode was set up after the GPUs, and changed the same lines",
                asked=f"take the GPUs back out of {path}",
                would_work="podwright slurm configure --undo first",
            )
        if OURS in text:
            plan.texts[path] = None if _NEW in text else undone(text, MARK)
    return plan


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _topology_files(etc: Path, topology: Topology, version: Version) -> dict[Path, str | None]:
    """Both files: the one that Slurm is to read, and the other without what was ours."""
    wanted = topology.files()
    out: dict[Path, str | None] = {}
    for name in _TOPOLOGIES:
        path = etc / name
        there = read(path) if path.exists() else ""
        if name in wanted:
            out[path] = _own_file(path, wanted[name])
        elif OURS in there:
            out[path] = None if _NEW in there else undone(there, MARK)
    yaml = etc / "topology.yaml"
    left = out.get(yaml, read(yaml) if yaml.exists() else None)
    if (
        wanted
        and left is not None
        and yaml.name not in wanted
        and release_of(version).several_topologies
    ):
        raise InvalidRequest(
            f"{yaml} is there, so Slurm would not read topology.conf",
            asked=f"--topology={topology.kind}",
            would_work="--topology=none, which leaves the network as it is; or move it away",
        )
    return out


def _notes(inventory: SiteInventory, now: Mapping[str, str]) -> list[str]:
    notes = []
    for partition in inventory.partitions:
        kinds = {inventory.nodes[name].gres for name in partition.nodes}
        if partition.exclusive and len(kinds) > 1:
            # Seen on 22.05.8 and 24.11.5: more switches than needed; --switches=1 did not start.
            notes.append(
                f"partition {partition.name} is exclusive and mixes {' and '.join(sorted(kinds))}: "
                "Slurm does not keep such jobs on one switch; give each kind a partition of its own"
            )
    select = now.get("selecttype", "")
    if select and not select.endswith("cons_tres"):
        notes.append(
            f"SelectType was {select}: running jobs end when slurmctld starts with another"
        )
    parted = [name for name, kind in inventory.nodes.items() if kind.mps and len(kind.gpus) > 1]
    if parted:
        notes.append(
            f"jobs with --gres=mps share one GPU of a node at a time, so {fold(parted)} leaves the "
            "others idle: shards are given out of all GPUs"
        )
    wide = {kind.numa_nodes // kind.sockets for kind in inventory.kinds()} - {0, 1}
    if wide:
        notes.append("several NUMA nodes on a socket: Slurm places by socket, so nearest is coarse")
    return notes


def _settings(
    inventory: SiteInventory,
    now: Mapping[str, str],
    topology: Topology,
    version: Version,
    wishes: Wishes,
    found: Mapping[str, NodeShare],
) -> dict[str, str]:
    shared = sorted({name for kind in inventory.kinds() for name in kind.shared_gres})
    out = {"GresTypes": joined(now.get("grestypes", ""), "gpu", *shared)}
    if not now.get("selecttype", "").endswith("cons_tres"):
        out["SelectType"] = "select/cons_tres"
        # A node of unknown memory has 1 MiB to Slurm: there it is not counted.
        known = all(room.memory_per_gpu for room in found.values())
        out["SelectTypeParameters"] = "CR_Core_Memory" if known else "CR_Core"
    if topology.plugin:
        out["TopologyPlugin"] = topology.plugin
    if "slurmdbd" in now.get("accountingstoragetype", ""):
        out["AccountingStorageTRES"] = joined(now.get("accountingstoragetres", ""), "gres/gpu")
    if wishes.confine:
        out["ProctrackType"] = "proctrack/cgroup"
        tasks = [t for t in now.get("taskplugin", "").split(",") if t and t != "task/none"]
        out["TaskPlugin"] = joined(",".join(tasks), "task/cgroup", "task/affinity")
    if wishes.imex and release_of(version).imex_switch:
        out["SwitchType"] = "switch/nvidia_imex"
    if wishes.gate:
        out |= gates.settings_of(wishes.gate, now)
    if wishes.sampling:
        out |= samples.settings_of(wishes.sampling)
    if wishes.summary:
        out |= summaries.settings_of(wishes.summary)
    if wishes.health:
        out |= {"HealthCheckProgram": wishes.health, "HealthCheckInterval": "300"}
        out["HealthCheckNodeState"] = "ANY"
    return {key: wanted for key, wanted in out.items() if now.get(key.lower()) != wanted}


def _counts_memory(settings: Mapping[str, str]) -> bool:
    """Whether Slurm counts memory: where nothing says, it may (select/cons_tres, from 24.05)."""
    said = settings.get("selecttypeparameters", "").lower()
    return "memory" in said or not said


def _nodes(text: str, inventory: SiteInventory, path: str, detect: str) -> str:
    seen: set[str] = set()

    def rows(row: Row, names: tuple[str, ...]) -> list[Row] | None:
        mine = [name for name in names if name in inventory.nodes]
        if not mine:
            return None
        seen.update(mine)
        out = []
        groups: dict[int, list[str]] = {}
        for name in mine:
            groups.setdefault(id(inventory.nodes[name]), []).append(name)
        for those in groups.values():
            cut = part(row, names, those, "NodeName")
            out.append(node_row(cut, inventory.nodes[those[0]], detect))
        if rest := [name for name in names if name not in inventory.nodes]:
            out.append(part(row, names, rest, "NodeName"))
        return out

    text = replaced(text, "NodeName", rows, path)
    new = [
        node_row({"NodeName": fold(left)}, kind, detect)
        for kind, names in inventory.kinds().items()
        if (left := [name for name in names if name not in seen])
    ]
    return with_rows(text, new)


def _partitions(
    text: str, inventory: SiteInventory, path: str, more: Callable[[PlannedPartition, Row], Row]
) -> str:
    """more: what else a partition's line says, by the partition and its line."""
    wanted = {partition.name: partition for partition in inventory.partitions}
    there = False
    covered: set[str] = set()
    for _, said in logical(text):
        row = read_row(said)
        if value(row, "PartitionName").upper() not in ("", "DEFAULT"):
            there = True
            nodes = value(row, "Nodes")
            everyone = nodes.upper() == "ALL" or not nodes
            covered |= set(inventory.nodes if everyone else names_in(nodes, path))
    if not wanted and not set(inventory.nodes) <= covered:
        wanted = {"gpu": PlannedPartition("gpu", tuple(inventory.nodes), default=not there)}

    def rows(row: Row, names: tuple[str, ...]) -> list[Row] | None:
        mine = wanted.pop(value(row, "PartitionName"), None)
        return [_partition(mine, row, more(mine, row))] if mine else None

    text = replaced(text, "PartitionName", rows, path)
    return with_rows(
        text,
        [_partition(p, row := {"PartitionName": p.name}, more(p, row)) for p in wanted.values()],
    )


def _partition(partition: PlannedPartition, row: Row, more: Row) -> Row:
    ours = ["nodes", "oversubscribe", "state", *(key.lower() for key in more)]
    ours += ["default"] if partition.default else []
    out = {k: v for k, v in row.items() if k.lower() not in ours}
    out["Nodes"] = fold(partition.nodes)
    if partition.default:
        out["Default"] = "YES"
    if partition.exclusive:
        out["OverSubscribe"] = "EXCLUSIVE"
    out |= more
    out["State"] = value(row, "state") or "UP"
    return out


def _gres(path: Path, inventory: SiteInventory, detect: str, domains: Sequence[Path]) -> str:
    """gres.conf with our nodes' GPUs; what it says of other nodes and other kinds stays."""
    before = undone(read(path), MARK) if path.exists() else ""
    out = []
    for lines, said in logical(before):
        row = read_row(said)
        names = value(row, "NodeName")
        about = value(row, "Name").lower() in ("gpu", "") and bool(row)
        if about and names:
            those = names_in(names, str(path))
            rest = [name for name in those if name not in inventory.nodes]
            if len(rest) < len(those):
                out += commented(lines, MARK)
                if rest:
                    out.append(with_rows("", [part(row, those, rest, "NodeName")]))
                continue
        elif about and value(row, "Name"):  # of all nodes that have GPUs
            out += commented(lines, MARK)
            continue
        out += lines
    text = "".join(out)
    head = _HEAD if path.exists() and _NEW not in read(path) else _NEW + _HEAD
    return head + imex.remark(domains) + with_rows(text, gres_rows(inventory, detect))


def _own_file(path: Path, lines: Sequence[str]) -> str:
    """A file that is ours alone."""
    there = path.exists() and _NEW not in read(path)
    before = undone(read(path), MARK) if there else ""
    head = _HEAD if there else _NEW + _HEAD
    mine = "".join(f"{line}{OURS}\n" for line in lines)
    return head + "".join(commented(_lines(before), MARK)) + mine


def _check_includes(etc: Path, text: str, inventory: SiteInventory) -> None:
    """Raises InvalidRequest where an included file has lines that we would have to change."""
    for line in text.splitlines():
        words = line.split()
        if len(words) < 2 or words[0].lower() != "include" or not (etc / words[1]).exists():
            continue
        for _, said in logical(read(etc / words[1])):
            row = read_row(said)
            name = value(row, "NodeName")
            if name and set(names_in(name, words[1])) & set(inventory.nodes):
                raise InvalidRequest(
                    f"{words[1]}, included by slurm.conf, has the line of {name}",
                    asked="configure Slurm",
                    would_work="move the lines of GPU nodes into slurm.conf",
                )
