"""A request for nodes, tasks and GPUs, as one value: what was asked, not yet what it means.

Six options ask for GPUs, each counting by something else; they meet here as six numbers and
the type beside each.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from podwright.slurm.requests._invalid import invalid
from podwright.slurm.requests._options import Given, parse_options

MULTIPLES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}


@dataclass(frozen=True)
class Gpus:
    """A count of GPUs, of one type or of any (`kind` empty)."""

    count: int
    kind: str = ""


@dataclass(frozen=True)
class Request:
    """What one sbatch, salloc or srun asks for. None is what was not said.

    `bind` is the text of --gpu-bind. `constraint`, `exclusive` and the like are kept in
    `other`, by name, for those who read more than GPUs.
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
    step_per_node: Gpus | None = None
    by_gres: bool = False
    per_socket: Gpus | None = None
    per_task: Gpus | None = None
    tasks_per_gpu: int | None = None
    cpus_per_gpu: int | None = None
    bind: str = ""
    exclusive: bool = False
    given: tuple[Given, ...] = ()
    other: dict[str, str] = field(default_factory=dict)

    @property
    def asks_for_gpus(self) -> bool:
        """Whether any of the six options names GPUs."""
        return bool(
            self.per_job or self.per_node or self.per_socket or self.per_task or self.tasks_per_gpu
        )

    def kind(self) -> str:
        """The GPU type asked for, or empty."""
        for asked in (self.per_job, self.per_node, self.per_socket, self.per_task):
            if asked and asked.kind:
                return asked.kind
        return ""

    def option(self, name: str) -> Given | None:
        """The last time that this option was given: the last one counts."""
        return next((g for g in reversed(self.given) if g.name == name), None)


def parse_count(text: str, option: str) -> int:
    """A positive whole number, with Slurm's multiples ("2k" is 2048)."""
    suffix = text[-1:].lower() if text[-1:].isalpha() else ""
    digits = text[: len(text) - len(suffix)]
    if suffix not in MULTIPLES or not digits.isdigit():
        raise invalid(f"--{option}={text}: {text!r} is not a count", option=option)
    return int(digits) * MULTIPLES[suffix]


def parse_gpus(text: str, option: str) -> Gpus:
    """`4`, `a100`, `a100:4` (of --gpus…): a count, a type, or a type and a count."""
    kind, colon, count = text.rpartition(":")
    if ":" in kind or not text or (colon and not kind):
        raise invalid(
            f"--{option}={text}: at most one type stands before the count",
            would_work=_type_first(text, ""),
            option=option,
        )
    if not colon and not text[0].isdigit():
        return Gpus(1, text)
    if not count[:1].isdigit():
        raise invalid(
            f"--{option}={text}: the count comes last",
            would_work=_type_first(text, ""),
            option=option,
        )
    return Gpus(parse_count(count, option), kind)


def parse_gres(text: str) -> Gpus | None:
    """The GPUs in a --gres list: `gpu`, `gpu:4`, `gpu:a100:4`; None where it names none."""
    found: Gpus | None = None
    for part in text.removeprefix("gres:").split(","):
        words = part.removeprefix("gres:").split(":")
        if words[0] != "gpu":
            continue
        if len(words) > 3 or "" in words[1:]:
            raise invalid(
                f"--gres={part}: GRES are name, type and count, in that order",
                would_work=_type_first(part, "gpu:"),
                option="gres",
            )
        if len(words) == 1:
            one = Gpus(1)
        elif len(words) == 2:
            one = Gpus(int(words[1])) if words[1].isdigit() else _type_or_multiple(words[1])
        else:
            if not words[2][:1].isdigit():
                raise invalid(
                    f"--gres={part}: the count comes last",
                    would_work=_type_first(part, "gpu:"),
                    option="gres",
                )
            one = Gpus(parse_count(words[2], "gres"), words[1])
        if one.count:
            found = one if found is None else Gpus(found.count + one.count, "")
    return found


def _type_or_multiple(word: str) -> Gpus:
    if word[:-1].isdigit() and word[-1].lower() in MULTIPLES:
        return Gpus(parse_count(word, "gres"))
    return Gpus(1, word)


def _type_first(text: str, prefix: str) -> str:
    """The same words in Slurm's order, where they leave no doubt: `gpu:1:tesla:v100`."""
    words = [w for w in text.removeprefix("gpu:").split(":") if w]
    counts = [w for w in words if w.isdigit()]
    kinds = [w for w in words if not w.isdigit()]
    if len(counts) != 1 or not kinds:
        return ""
    return f"Write {prefix}{kinds[-1]}:{counts[0]}, with the type that `sinfo -o %G` shows"


def parse_nodes(text: str) -> tuple[int, int]:
    """(minimum, maximum) of `2` or `2-4`."""
    low, dash, high = text.partition("-")
    first = parse_count(low, "nodes")
    last = parse_count(high, "nodes") if dash else first
    if last < first:
        raise invalid(f"--nodes={text}: the range runs backwards", option="nodes")
    return first, last


_COUNTS = {
    "ntasks": "tasks",
    "ntasks-per-node": "tasks_per_node",
    "tasks-per-node": "tasks_per_node",
    "cpus-per-task": "cpus_per_task",
    "sockets-per-node": "sockets_per_node",
    "ntasks-per-gpu": "tasks_per_gpu",
    "cpus-per-gpu": "cpus_per_gpu",
}
_GPUS = {
    "gpus": "per_job",
    "gpus-per-node": "per_node",
    "gpus-per-socket": "per_socket",
    "gpus-per-task": "per_task",
}


def read_request(given: list[Given], command: str) -> Request:
    """The request of these options; InvalidRequest for a value that Slurm cannot read."""
    values: dict[str, object] = {}
    other: dict[str, str] = {}
    gres: Gpus | None = None
    for name, value, _ in given:
        if name == "nodes":
            values["min_nodes"], values["max_nodes"] = parse_nodes(value)
        elif name in _COUNTS:
            count = parse_count(value, name)
            if count < 1:
                raise invalid(f"--{name}={value}: must be 1 or more", option=name)
            values[_COUNTS[name]] = count
        elif name in _GPUS:
            values[_GPUS[name]] = parse_gpus(value, name)
        elif name == "gres":
            gres = None if value.lower() == "none" else parse_gres(value)
            other[name] = value
        elif name == "gpu-bind":
            values["bind"] = value
        elif name == "exclusive":
            values["exclusive"] = value in ("", "exclusive", "user")
            other[name] = value
        else:
            other[name] = value
    if gres is not None:
        # Slurm puts --gres behind --gpus-per-node in one list, where the last counts; a step
        # in the job then asks for --gpus-per-node again.
        values["step_per_node"] = values.get("per_node")
        values["per_node"] = gres
        values["by_gres"] = values["step_per_node"] is None
    return Request(command=command, given=tuple(given), other=other, **values)  # type: ignore[arg-type]


def parse_request(words: list[str], command: str = "sbatch") -> Request:
    """The request of a command line's options. What follows them is the program, and ignored."""
    given, _ = parse_options(words, command)
    return read_request(given, command)
