"""Plans the configuration of Slurm for a GPU cluster: which files change, and their new texts.
Reads files and writes none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.gpu.configure import _gates as gates
from podwright.gpu.configure import _imex as imex
from podwright.gpu.configure import _sampling as samples
from podwright.gpu.configure import _summaries as summaries
from podwright.gpu.configure._defaults import (
    NodeShare,
    cluster_defaults,
    memory_notes,
    node_shares,
    partition_defaults,
)
from podwright.gpu.configure._inventory import PlannedPartition, SiteInventory
from podwright.gpu.configure._inventory_lines import gres_rows, node_row
from podwright.gpu.configure._lines import (
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
from podwright.gpu.configure._topology import Topology, plan_topology, topology_notes
from podwright.slurm.site.changes import FileChanges
from podwright.slurm.site.edit import WAS, changed, commented, joined, settings, undone
from podwright.slurm.site.files import read
from podwright.slurm.site.releases import Version, release_of

_HEAD = f"# GPUs, by podwright slurm configure --gpus{OURS}\n"
_NEW = f"# There was no such file before.{OURS}\n"
_TOPOLOGIES = ("topology.conf", "topology.yaml")
_FILES = ("gres.conf", *_TOPOLOGIES, "cgroup.conf")


class ConfigureOptions(NamedTuple):
    """The options that an administrator chooses.

    confine: jobs reach only their own GPUs (cgroups). imex: write the node files of each NVLink
    domain, and give each job a channel. health: a program that Slurm runs on each node every five
    minutes; empty for none. gate: our own health script, which also is Prolog and Epilog. sampling:
    sample each job's GPUs. summary: write a summary of each job at its end.
    """

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
    options: ConfigureOptions,
    resolve: Callable[[str], str] = imex.resolved,
) -> tuple[FileChanges, list[str]]:
    """The plan, and notes for the administrator. Raises InvalidRequest."""
    etc = conf.parent
    base = undone(read(conf), MARK)
    now = settings(base)
    _check_includes(etc, base, inventory)
    topology = plan_topology(inventory, version, options.topology)
    notes = [*topology_notes(topology, version), *_notes(inventory, now)]
    shares = node_shares(inventory, base, str(conf))
    wanted = _settings(inventory, now, topology, version, options, shares)
    memory = _counts_memory({**now, **{key.lower(): setting for key, setting in wanted.items()}})
    wanted |= cluster_defaults(shares, now, memory=memory)
    notes += memory_notes(shares, now, memory=memory)
    text = changed(base, wanted, str(conf), MARK)
    text = _nodes(text, inventory, str(conf), options.detect)

    def more(partition: PlannedPartition, row: Row) -> Row:
        own = partition_defaults(shares, partition.nodes, row, now, memory)
        if name := topology.of_partition(partition.nodes):
            own["Topology"] = name
        return own

    text = _partitions(text, inventory, str(conf), more)
    plan = FileChanges()
    domains = imex.imex_texts(etc, base, inventory, resolve) if options.imex else {}
    notes += imex.notes([*domains], inventory)
    plan.texts.update(dict.fromkeys(imex.known(etc)))
    plan.texts[etc / "gres.conf"] = _gres(etc / "gres.conf", inventory, options.detect, [*domains])
    plan.texts.update(domains)  # once gres.conf says that they are ours
    plan.texts.update(_topology_files(etc, topology, version))
    cgroup = etc / "cgroup.conf"
    cgroup_text = undone(read(cgroup), MARK) if cgroup.exists() else ""
    if options.confine:
        new = "" if cgroup.exists() and _NEW not in read(cgroup) else _NEW
        plan.texts[cgroup] = new + changed(
            cgroup_text, {"ConstrainDevices": "yes"}, str(cgroup), MARK
        )
    elif settings(cgroup_text).get("constraindevices", "no").lower() != "yes":
        notes.append("jobs can open GPUs of other jobs: --confine sets ConstrainDevices=yes")
    if options.gate:
        plan.texts[options.gate.script] = gates.script(options.gate, conf, now)
        notes += gates.notes(options.gate, now)
    if options.sampling:
        plan.texts[options.sampling.script] = samples.script(options.sampling, now)
    if options.summary:
        theirs = options.gate.path if options.gate else now.get("epilog", "")
        plan.texts[options.summary.script] = summaries.script(options.summary, conf, theirs)
        notes += summaries.notes(now)
    plan.texts[conf] = text
    return plan, notes


def take_back(conf: Path) -> FileChanges:
    """The plan that restores every file byte for byte. Raises InvalidRequest."""
    file_changes = FileChanges()
    file_changes.texts.update(
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
                operation=f"take the GPUs back out of {path}",
                would_work="podwright slurm configure --undo first",
            )
        if OURS in text:
            file_changes.texts[path] = None if _NEW in text else undone(text, MARK)
    return file_changes


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _topology_files(etc: Path, topology: Topology, version: Version) -> dict[Path, str | None]:
    """Both topology files: the new text of the one that Slurm is to read, and the other one without
    our lines."""
    wanted = topology.files()
    out: dict[Path, str | None] = {}
    for name in _TOPOLOGIES:
        path = etc / name
        present = read(path) if path.exists() else ""
        if name in wanted:
            out[path] = _own_file(path, wanted[name])
        elif OURS in present:
            out[path] = None if _NEW in present else undone(present, MARK)
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
            operation=f"--topology={topology.kind}",
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
    options: ConfigureOptions,
    shares: Mapping[str, NodeShare],
) -> dict[str, str]:
    shared = sorted({name for kind in inventory.kinds() for name in kind.shared_gres})
    out = {"GresTypes": joined(now.get("grestypes", ""), "gpu", *shared)}
    if not now.get("selecttype", "").endswith("cons_tres"):
        out["SelectType"] = "select/cons_tres"
        # Slurm takes a node of unknown memory to have 1 MiB, so memory is not counted then.
        known = all(share.memory_per_gpu for share in shares.values())
        out["SelectTypeParameters"] = "CR_Core_Memory" if known else "CR_Core"
    if topology.plugin:
        out["TopologyPlugin"] = topology.plugin
    if "slurmdbd" in now.get("accountingstoragetype", ""):
        out["AccountingStorageTRES"] = joined(now.get("accountingstoragetres", ""), "gres/gpu")
    if options.confine:
        out["ProctrackType"] = "proctrack/cgroup"
        tasks = [t for t in now.get("taskplugin", "").split(",") if t and t != "task/none"]
        out["TaskPlugin"] = joined(",".join(tasks), "task/cgroup", "task/affinity")
    if options.imex and release_of(version).imex_switch:
        out["SwitchType"] = "switch/nvidia_imex"
    if options.gate:
        out |= gates.settings_of(options.gate, now)
    if options.sampling:
        out |= samples.settings_of(options.sampling)
    if options.summary:
        out |= summaries.settings_of(options.summary)
    if options.health:
        out |= {"HealthCheckProgram": options.health, "HealthCheckInterval": "300"}
        out["HealthCheckNodeState"] = "ANY"
    return {key: wanted for key, wanted in out.items() if now.get(key.lower()) != wanted}


def _counts_memory(settings: Mapping[str, str]) -> bool:
    """Whether Slurm counts memory. Without SelectTypeParameters it may (select/cons_tres, from
    24.05)."""
    parameters = settings.get("selecttypeparameters", "").lower()
    return "memory" in parameters or not parameters


def _nodes(text: str, inventory: SiteInventory, path: str, detect: str) -> str:
    seen: set[str] = set()

    def rows(row: Row, names: tuple[str, ...]) -> list[Row] | None:
        chosen = [name for name in names if name in inventory.nodes]
        if not chosen:
            return None
        seen.update(chosen)
        out = []
        groups: dict[int, list[str]] = {}
        for name in chosen:
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
    has_partitions = False
    covered: set[str] = set()
    for _, line in logical(text):
        row = read_row(line)
        if value(row, "PartitionName").upper() not in ("", "DEFAULT"):
            has_partitions = True
            nodes = value(row, "Nodes")
            everyone = nodes.upper() == "ALL" or not nodes
            covered |= set(inventory.nodes if everyone else names_in(nodes, path))
    if not wanted and not set(inventory.nodes) <= covered:
        wanted = {
            "gpu": PlannedPartition("gpu", tuple(inventory.nodes), default=not has_partitions)
        }

    def rows(row: Row, names: tuple[str, ...]) -> list[Row] | None:
        partition = wanted.pop(value(row, "PartitionName"), None)
        return [_partition(partition, row, more(partition, row))] if partition else None

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
    """gres.conf with the GPUs of the inventory's nodes. Its lines about other nodes and other GRES
    stay."""
    before = undone(read(path), MARK) if path.exists() else ""
    out = []
    for lines, line in logical(before):
        row = read_row(line)
        names = value(row, "NodeName")
        is_gpu_row = value(row, "Name").lower() in ("gpu", "") and bool(row)
        if is_gpu_row and names:
            those = names_in(names, str(path))
            rest = [name for name in those if name not in inventory.nodes]
            if len(rest) < len(those):
                out += commented(lines, MARK)
                if rest:
                    out.append(with_rows("", [part(row, those, rest, "NodeName")]))
                continue
        elif is_gpu_row and value(row, "Name"):  # of all nodes that have GPUs
            out += commented(lines, MARK)
            continue
        out += lines
    text = "".join(out)
    head = _HEAD if path.exists() and _NEW not in read(path) else _NEW + _HEAD
    return head + imex.remark(domains) + with_rows(text, gres_rows(inventory, detect))


def _own_file(path: Path, lines: Sequence[str]) -> str:
    """The text of a file that belongs to us alone."""
    existing = path.exists() and _NEW not in read(path)
    before = undone(read(path), MARK) if existing else ""
    head = _HEAD if existing else _NEW + _HEAD
    own_lines = "".join(f"{line}{OURS}\n" for line in lines)
    return head + "".join(commented(_lines(before), MARK)) + own_lines


def _check_includes(etc: Path, text: str, inventory: SiteInventory) -> None:
    """Raises InvalidRequest where an included file has lines that we would have to change."""
    for line in text.splitlines():
        words = line.split()
        if len(words) < 2 or words[0].lower() != "include" or not (etc / words[1]).exists():
            continue
        for _, statement in logical(read(etc / words[1])):
            row = read_row(statement)
            name = value(row, "NodeName")
            if name and set(names_in(name, words[1])) & set(inventory.nodes):
                raise InvalidRequest(
                    f"{words[1]}, included by slurm.conf, has the line of {name}",
                    operation="configure Slurm",
                    would_work="move the lines of GPU nodes into slurm.conf",
                )
