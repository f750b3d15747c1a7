"""What a request says beside GPUs and tasks: cores, memory, nodes, time, and how to choose.

Values are read as Slurm reads them; InvalidRequest where it would refuse the command line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from podwright.errors import InvalidRequest
from podwright.slurm.gpus.requests._slurm_options import Given
from podwright.slurm.gpus.requests._units import is_number, memory, minutes, names
from podwright.slurm.site.releases import Release, Version

_FLAGS: dict[str, Version] = {  # since
    "disable-binding": (0, 0),
    "enforce-binding": (0, 0),
    "one-task-per-sharing": (23, 11),
    "multiple-tasks-per-sharing": (23, 11),
    "allow-task-sharing": (25, 5),
}
_FIRST = {"": "", "block": "block", "cyclic": "cyclic", "arbitrary": "arbitrary", "*": ""}


@dataclass
class RequestDetails:
    """None and "" are "not said". Memory is in bytes, times are in minutes."""

    tasks_per_socket: int | None = None
    tasks_per_core: int | None = None  # 0: as many as will go (--hint=multithread)
    sockets: int | None = None
    cores: int | None = None
    threads: int | None = None
    whole_info: bool = False  # -B
    mincpus: int | None = None
    memory: int | None = None
    memory_per_cpu: int | None = None
    memory_per_gpu: int | None = None
    disk: int = 0
    overcommit: bool = False
    share: str = ""  # none, ok, user or mcs
    constraint: str = ""
    prefer: str = ""
    named: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    contiguous: bool = False
    spread: bool = False
    use_min_nodes: bool = False
    switches: int = 0
    first: str = ""  # --distribution, over nodes
    second: str = ""  # over sockets
    plane: int = 0
    core_spec: int | None = None
    thread_spec: int | None = None
    time: int | None = None
    time_min: int | None = None
    segment: int = 0
    held: bool = False
    hint: str = ""  # where it is not ignored
    flags: frozenset[str] = frozenset()
    tres_bind: str = ""
    unmodelled: list[str] = field(default_factory=list)


# Options that change what a job gets, in ways that are not modelled.
_UNMODELLED = {
    "reservation": "reservations",
    "nodefile": "node files",
    "licenses": "licences",
    "clusters": "other clusters",
    "cluster": "other clusters",
    "cluster-constraint": "other clusters",
    "bb": "burst buffers",
    "bbf": "burst buffers",
    "resources": "hierarchical resources",
    "consolidate-segments": "segments",
    "spread-segments": "segments",
    "reboot": "nodes that are to be rebooted",
    "batch": "the node of the script",
    "external": "external jobs",
    "resv-ports": "reserved ports",
    "uid": "other users",
    "gid": "other users",
    "relative": "--relative",
    "het-group": "heterogeneous jobs",
    "pack-group": "heterogeneous jobs",
}

_SPEED = r"(low|medium|highm1|high|\d+)"
_FREQUENCY = re.compile(rf"(verbose|(memory=)?{_SPEED})(,(verbose|(memory=)?{_SPEED}))*")


def _count(text: str, option: str) -> int:
    if not is_number(text):
        raise InvalidRequest(f"--{option}={text}: {text!r} is not a count", option=option)
    return int(text)


def read_said(given: tuple[Given, ...], release: Release) -> RequestDetails:
    """All of it. Options that the model lacks are named in `unmodelled`."""
    said = RequestDetails()
    hint = ""
    for name, value, _ in given:
        if name in _UNMODELLED:
            said.unmodelled.append(f"--{name} ({_UNMODELLED[name]})")
        elif name == "hint":
            hint = value
        else:
            _one(said, name, value, release)
    if hint:
        _hint(said, hint, given, release)
    return said


def _one(said: RequestDetails, name: str, value: str, release: Release) -> None:
    counts = {
        "ntasks-per-socket": "tasks_per_socket", "ntasks-per-core": "tasks_per_core",
        "sockets-per-node": "sockets", "cores-per-socket": "cores", "threads-per-core": "threads",
        "mincpus": "mincpus", "core-spec": "core_spec", "thread-spec": "thread_spec",
        "segment": "segment",
    }  # fmt: skip
    sizes = {
        "mem": "memory", "mem-per-cpu": "memory_per_cpu", "mem-per-gpu": "memory_per_gpu",
        "tmp": "disk",
    }  # fmt: skip
    flags = {
        "contiguous": "contiguous", "spread-job": "spread", "use-min-nodes": "use_min_nodes",
        "overcommit": "overcommit", "hold": "held",
    }  # fmt: skip
    texts = {"constraint": "constraint", "prefer": "prefer", "tres-bind": "tres_bind"}
    lists = {"nodelist": "named", "exclude": "excluded"}
    if name in counts:
        setattr(said, counts[name], _count(value, name))
    elif name in sizes:
        setattr(said, sizes[name], memory(value, name))
    elif name in flags:
        setattr(said, flags[name], True)
    elif name in texts:
        setattr(said, texts[name], value)
    elif name in lists:
        if "/" in value or "{" in value:
            said.unmodelled.append(f"--{name} with a file or a node set")
        setattr(said, lists[name], names(value))
    elif name == "partition":
        said.partitions = tuple(part for part in value.split(",") if part)
    elif name in ("time", "time-min"):
        setattr(said, name.replace("-", "_"), minutes(value, name))
    elif name == "extra-node-info":
        _sockets_cores_threads(said, value)
    elif name == "exclusive":
        known = {
            "": "none",
            "exclusive": "none",
            "oversubscribe": "ok",
            "user": "user",
            "mcs": "mcs",
        }
        if value.lower() not in known and value.lower() != "topo":
            raise InvalidRequest(f"--exclusive={value}: unknown", option=name)
        said.share = known.get(value.lower(), "")
        if value.lower() in ("mcs", "topo"):
            said.unmodelled.append(f"--exclusive={value}")
    elif name == "oversubscribe":
        said.share = "ok"
    elif name == "switches":
        said.switches = _count(value.partition("@")[0], name)
        if not said.switches:
            raise InvalidRequest(f"--switches={value}: must be 1 or more", option=name)
    elif name == "gpu-freq" and not _FREQUENCY.fullmatch(value.lower()):
        raise InvalidRequest(f"--gpu-freq={value}: unknown", option=name)
    elif name == "nodes" and ("," in value or ":" in value):
        if not release.takes_lists_of_nodes:
            raise InvalidRequest(f"--nodes={value}: this release does not know it", option=name)
        said.unmodelled.append(f"--nodes={value}")
    elif name == "tres-per-task" and "license/" in value:
        said.unmodelled.append(f"--tres-per-task={value}")
    elif name == "priority" and value == "0":
        said.held = True
    elif name == "distribution":
        _distribution(said, value)
    elif name == "gres-flags":
        said.flags |= _flags(value, release)


def _sockets_cores_threads(said: RequestDetails, value: str) -> None:
    said.whole_info = True
    parts = value.split(":")
    if len(parts) > 3:
        raise InvalidRequest(
            f"--extra-node-info={value}: sockets:cores:threads", option="extra-node-info"
        )
    said.sockets = said.cores = said.threads = None
    for field_name, part in zip(("sockets", "cores", "threads"), parts, strict=False):
        if part not in ("*", ""):
            setattr(said, field_name, _count(part, "extra-node-info"))


def _distribution(said: RequestDetails, value: str) -> None:
    words = value.lower().split(",")
    said.unmodelled += [f"--distribution={w}" for w in words[1:] if w == "pack"]
    first, _, rest = words[0].partition(":")
    if first.startswith("plane"):
        _, _, size = first.partition("=")
        said.first, said.plane = "plane", _count(size, "distribution")
        return
    if first not in _FIRST:
        raise InvalidRequest(f"--distribution={value}: {first!r} is no way to lay tasks")
    said.first = _FIRST[first]
    said.second = rest.partition(":")[0]
    if said.second not in ("", "*", "block", "cyclic", "fcyclic"):
        raise InvalidRequest(f"--distribution={value}: {said.second!r} is no way to lay tasks")


def _flags(value: str, release: Release) -> frozenset[str]:
    found = set()
    for word in value.lower().split(","):
        if word not in _FLAGS or _FLAGS[word] > release.version:
            raise InvalidRequest(
                f"--gres-flags={word}: this release does not know it", option="gres-flags"
            )
        found.add(word)
    return frozenset(found)


def overrides_hint(given: tuple[Given, ...], release: Release) -> bool:
    """Whether options say the same as --hint, which Slurm then ignores."""
    beside = {"ntasks-per-core", "threads-per-core", "extra-node-info"}
    if release.sockets_override_hint:
        beside |= {"cores-per-socket", "sockets-per-node"}
    words = {"v", "verbose", "q", "quiet"}  # of --cpu-bind, which bind nothing
    return any(
        g.name in beside or (g.name == "cpu-bind" and g.value.lower() not in words) for g in given
    )


def _hint(said: RequestDetails, hint: str, given: tuple[Given, ...], release: Release) -> None:
    """--hint, which Slurm ignores beside an option that says the same."""
    if overrides_hint(given, release):
        return
    said.hint = hint.lower()
    if not release.sockets_override_hint:  # validate_hint_option resets --extra-node-info
        said.sockets = said.cores = None
    for word in hint.lower().split(","):
        if word == "compute_bound":
            said.sockets = said.cores = None
            said.threads = 1
        elif word == "memory_bound":
            said.cores = said.threads = 1
        elif word == "multithread":
            said.threads = None
            said.tasks_per_core = 0  # INFINITE16: CR_ONE_TASK_PER_CORE does not count then
        elif word == "nomultithread":
            said.threads = 1
        else:
            raise InvalidRequest(f"--hint={word}: unknown", option="hint")
