"""A request for nodes, tasks and GPUs as one value: the user's own, before Slurm interprets it.

Six options request GPUs, and each counts them per another unit. Here they become six counts, each
with its type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.gpu.requests._slurm_options import Given, parse_options
from podwright.gpu.requests._units import is_number, memory

SHARED = ("shard", "mps")
LISTED_NODES = re.compile(r"\d+(-\d+)?(:\d+)?(,\d+(-\d+)?(:\d+)?)*(?<=[,:]\d)\d*")
_TRES = re.compile(r"(cpu|license/[^:=]+|(gres[/:])[^:=]+)([:=]|$)")
MULTIPLES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}


class Gpus(NamedTuple):
    """A count of GPUs, of one type or of any (`kind` empty)."""

    count: int  # type: ignore[assignment]  # hides tuple's own
    kind: str = ""


class SlurmRequest(NamedTuple):
    """The request of one sbatch, salloc or srun. None: not given.

    `gpu_options` has every count of GPUs but 0 as (job, node, socket or task; count and type), in
    the order in which Slurm reads them; `per_job` and the like sum them up. So --gpus=0 is like an
    option that is not given; only `given` tells the two apart. `bind` is the text of
    --gpu-bind. `other` keeps `constraint`, `exclusive` and the like by name, for readers beyond
    GPUs.
    """

    command: str
    min_nodes: int | None = None
    max_nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    sockets_per_node: int | None = None
    per_job: Gpus | None = None
    per_node: Gpus | None = None
    by_gres: bool = False
    per_socket: Gpus | None = None
    per_task: Gpus | None = None
    tasks_per_gpu: int | None = None
    cpus_per_gpu: int | None = None
    bind: str = ""
    exclusive: bool = False
    gpu_options: tuple[tuple[str, Gpus], ...] = ()
    shares: tuple[tuple[str, str, Gpus], ...] = ()
    memory_per_gpu: int = 0
    given: tuple[Given, ...] = ()
    other: Mapping[str, str] = {}

    @property
    def asks_for_gpus(self) -> bool:
        """Whether any option asks for at least one GPU, or for shares of them."""
        counted = self.per_job or self.per_node or self.per_socket or self.per_task
        return bool(counted or self.tasks_per_gpu or self.shares)

    def kind(self) -> str:
        """The requested GPU type, the first one of several; empty for none."""
        return next((gpus.kind for _, gpus in self.gpu_options if gpus.kind), "")

    def option(self, name: str) -> Given | None:
        """Return the last occurrence of this option, because the last one counts."""
        return next((g for g in reversed(self.given) if g.name == name), None)


def parse_count(text: str, option: str) -> int:
    """Read a positive whole number, with Slurm's multiples ("2k" is 2048)."""
    suffix = text[-1:].lower() if text[-1:].isalpha() else ""
    digits = text[: len(text) - len(suffix)]
    if suffix not in MULTIPLES or not is_number(digits):
        raise InvalidRequest(f"--{option}={text}: {text!r} is not a count", option=option)
    return int(digits) * MULTIPLES[suffix]


def parse_gpus(text: str, option: str) -> Gpus:
    """Read `4`, `a100`, `a100:4` (of --gpus…): a count, a type, or a type and a count."""
    kind, colon, count = text.rpartition(":")
    if ":" in kind or not text or (colon and not kind):
        raise InvalidRequest(
            f"--{option}={text}: at most one type stands before the count",
            would_work=_type_first(text, ""),
            option=option,
        )
    if not colon and not text[0].isdigit():
        return Gpus(1, text)
    if not count[:1].isdigit():
        raise InvalidRequest(
            f"--{option}={text}: the count comes last",
            would_work=_type_first(text, ""),
            option=option,
        )
    return Gpus(parse_count(count, option), kind)


def parse_gres(text: str, name: str = "gpu") -> list[Gpus]:
    """Read the GPUs in a --gres list: `gpu`, `gpu:4`, `gpu:a100:4`. The last count of each type
    counts, and a count of 0 is left out.
    """
    by_kind: dict[str, Gpus] = {}
    for part in text.removeprefix("gres:").split(","):
        words = _gres_words(part)
        if words[0] != name:
            continue
        if len(words) > 3 or "" in words[1:]:
            raise InvalidRequest(
                f"--gres={part}: GRES are name, type and count, in that order",
                would_work=_type_first(part, "gpu:"),
                option="gres",
            )
        if len(words) == 1:
            gpus = Gpus(1)
        elif len(words) == 2:
            gpus = Gpus(int(words[1])) if is_number(words[1]) else _type_or_multiple(words[1])
        else:
            if not words[2][:1].isdigit():
                raise InvalidRequest(
                    f"--gres={part}: the count comes last",
                    would_work=_type_first(part, "gpu:"),
                    option="gres",
                )
            gpus = Gpus(parse_count(words[2], "gres"), words[1])
        if gpus.count:
            by_kind[gpus.kind] = gpus
    return list(by_kind.values())


def _gres_words(part: str) -> list[str]:
    """Return name, type and count of `gpu:a100:2`, `gres/gpu:2`, `gres:gpu:2`, `gpu=2`."""
    return re.split("[:=]", part.removeprefix("gres:").removeprefix("gres/"))


def _sum(counts: list[Gpus]) -> Gpus | None:
    """Return the sum of all; of any type, if there are several types."""
    if not counts:
        return None
    return counts[0] if len(counts) == 1 else Gpus(sum(gpus.count for gpus in counts))


def _type_or_multiple(word: str) -> Gpus:
    if is_number(word[:-1]) and word[-1].lower() in MULTIPLES:
        return Gpus(parse_count(word, "gres"))
    return Gpus(1, word)


def _type_first(text: str, prefix: str) -> str:
    """Return the same words in Slurm's order, if they are unambiguous: `gpu:1:tesla:v100`."""
    words = [word for word in text.removeprefix("gpu:").split(":") if word]
    counts = [word for word in words if is_number(word)]
    kinds = [word for word in words if not is_number(word)]
    if len(counts) != 1 or not kinds:
        return ""
    return f"Write {prefix}{kinds[-1]}:{counts[0]}, with the type that `sinfo -o %G` shows"


def parse_nodes(text: str) -> tuple[int, int]:
    """Read (minimum, maximum) of `2` or `2-4`."""
    low, dash, high = text.partition("-")
    first = parse_count(low, "nodes")
    last = parse_count(high, "nodes") if dash else first
    if last < first:
        raise InvalidRequest(f"--nodes={text}: the range runs backwards", option="nodes")
    return first, last


_COUNTS = {
    "ntasks": "tasks",
    "ntasks-per-node": "tasks_per_node",
    "tasks-per-node": "tasks_per_node",
    "cpus-per-task": "cpus_per_task",
    "sockets-per-node": "sockets_per_node",
    "ntasks-per-gpu": "tasks_per_gpu",
    "ntasks-per-tres": "tasks_per_gpu",
    "cpus-per-gpu": "cpus_per_gpu",
}
_WAYS = {
    "gpus": "job",
    "gpus-per-node": "node",
    "gres": "node",
    "gpus-per-socket": "socket",
    "gpus-per-task": "task",
}


def _shares(unit: str, text: str) -> list[tuple[str, str, Gpus]]:
    return [(unit, name, gpus) for name in SHARED for gpus in parse_gres(text, name)]


def _per_task(
    text: str, values: dict[str, object], gpus: dict[str, list[Gpus]]
) -> list[tuple[str, str, Gpus]]:
    """Read --tres-per-task, which may repeat --cpus-per-task and --gpus-per-task. Returns its
    shares.
    """
    for part in text.split(","):
        if not _TRES.match(part):
            raise InvalidRequest(
                f"--tres-per-task={text}: {part!r} is not counted by task",
                would_work="Write cpu=N, gres/NAME:N or license/NAME=N",
                option="tres-per-task",
            )
        if part.startswith(("cpu=", "cpu:")):
            if "cpus_per_task" in values:
                raise InvalidRequest(
                    f"--tres-per-task={text} and --cpus-per-task exclude each other"
                )
            values["cpus_per_task"] = parse_count(part[4:], "tres-per-task")
    counts = parse_gres(text)
    if counts and "gpus-per-task" in gpus:
        raise InvalidRequest(f"--tres-per-task={text} and --gpus-per-task exclude each other")
    if counts:
        gpus["gpus-per-task"] = counts
    return _shares("task", text)


def _plain_bind(value: str) -> str:
    """Return a binding; Slurm reads only the beginning of closest and none, in any case
    (_valid_gres_bind).
    """
    return re.sub(r"^(verbose,)?(closest|none).*", r"\1\2", value.lower())


def read_request(given: list[Given], command: str) -> SlurmRequest:
    """Return the request of these options. Raises InvalidRequest for a value that Slurm cannot
    read.
    """
    values: dict[str, object] = {}
    other: dict[str, str] = {}
    gpus: dict[str, list[Gpus]] = {}
    shares: list[tuple[str, str, Gpus]] = []
    task_shares: list[tuple[str, str, Gpus]] = []
    tres_bind = ""
    for name, value, _ in given:
        if name == "nodes":
            values.pop("min_nodes", None), values.pop("max_nodes", None)
            other[name] = value
            if not LISTED_NODES.fullmatch(value):
                values["min_nodes"], values["max_nodes"] = parse_nodes(value)
        elif name in _COUNTS:
            count = parse_count(value, name)
            if count < 1:
                raise InvalidRequest(f"--{name}={value}: must be 1 or more", option=name)
            values[_COUNTS[name]] = count
        elif name == "gres":
            none = value.lower() == "none"
            gpus[name] = [] if none else parse_gres(value)
            shares = [] if none else _shares("node", value)
            other[name] = value
        elif name == "tres-per-task":
            task_shares = _per_task(value, values, gpus)
            other[name] = value
        elif name == "mem-per-gpu":
            values["memory_per_gpu"] = memory(value, name)
            other[name] = value
        elif name in _WAYS:
            counts = [parse_gpus(part, name) for part in value.split(",")]
            gpus[name] = [gpu_count for gpu_count in counts if gpu_count.count]
        elif name == "gpu-bind":
            values["bind"] = _plain_bind(value)
        elif name == "tres-bind":
            match = re.search(r"(?:^|\+)gres/gpu:([^+]*)", value)
            tres_bind = _plain_bind(match[1]) if match else tres_bind
            other[name] = value
        elif name == "exclusive":
            values["exclusive"] = value in ("", "exclusive", "user")
            other[name] = value
        else:
            other[name] = value
    if tres_bind:  # srun in the job reads it after --gpu-bind, which it then replaces
        values["bind"] = tres_bind
    # --gres stands behind --gpus-per-node in one list, where the last count of a type holds. A
    # job's environment has the other options, but not --gres.
    order = ("gpus", "gpus-per-node", "gres", "gpus-per-socket", "gpus-per-task")
    requested = [(name, gpu_count) for name in order for gpu_count in gpus.get(name, [])]
    by_gres = gpus.get("gres", [])
    return SlurmRequest(
        command=command,
        given=tuple(given),
        other=other,
        shares=tuple(shares + task_shares),
        gpu_options=tuple((_WAYS[name], gpu_count) for name, gpu_count in requested),
        per_job=_sum(gpus.get("gpus", [])),
        per_node=_sum(by_gres or gpus.get("gpus-per-node", [])),
        per_socket=_sum(gpus.get("gpus-per-socket", [])),
        per_task=_sum(gpus.get("gpus-per-task", [])),
        by_gres=bool(by_gres) and "gpus-per-node" not in gpus,
        **values,  # type: ignore[arg-type]
    )


def other_parts(rest: list[str]) -> list[Given]:
    """Return `: …` behind the options, which are further parts of a heterogeneous job, as one
    option.
    """
    return [Given("het-group", "", " ".join(rest))] if rest[:1] == [":"] else []


def parse_request(words: list[str], command: str = "sbatch") -> SlurmRequest:
    """Return the request of a command line's options. The program behind them is ignored."""
    given, rest = parse_options(words, command)
    return read_request([*given, *other_parts(rest)], command)
