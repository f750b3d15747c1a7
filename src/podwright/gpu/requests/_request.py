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

SHARE_NAMES = ("shard", "mps")
NODE_COUNTS_LIST = re.compile(r"\d+(-\d+)?(:\d+)?(,\d+(-\d+)?(:\d+)?)*(?<=[,:]\d)\d*")
_TASK_TRES_PATTERN = re.compile(r"(cpu|license/[^:=]+|(gres[/:])[^:=]+)([:=]|$)")
COUNT_MULTIPLES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}


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
        count = self.per_job or self.per_node or self.per_socket or self.per_task
        return bool(count or self.tasks_per_gpu or self.shares)

    def kind(self) -> str:
        """The requested GPU type, the first one of several; empty for none."""
        return next((gpus.kind for _, gpus in self.gpu_options if gpus.kind), "")

    def option(self, option_name: str) -> Given | None:
        """Return the last occurrence of this option, because the last one counts."""
        return next(
            (
                given_option
                for given_option in reversed(self.given)
                if given_option.name == option_name
            ),
            None,
        )


def parse_count(count_text: str, option_name: str) -> int:
    """Read a positive whole number, with Slurm's multiples ("2k" is 2048)."""
    suffix = count_text[-1:].lower() if count_text[-1:].isalpha() else ""
    digits = count_text[: len(count_text) - len(suffix)]
    if suffix not in COUNT_MULTIPLES or not is_number(digits):
        raise InvalidRequest(
            f"--{option_name}={count_text}: {count_text!r} is not a count", option=option_name
        )
    return int(digits) * COUNT_MULTIPLES[suffix]


def parse_gpus(gpus_text: str, option_name: str) -> Gpus:
    """Read `4`, `a100`, `a100:4` (of --gpus…): a count, a type, or a type and a count."""
    gpu_type, colon, count_text = gpus_text.rpartition(":")
    if ":" in gpu_type or not gpus_text or (colon and not gpu_type):
        raise InvalidRequest(
            f"--{option_name}={gpus_text}: at most one type stands before the count",
            would_work=_gres_order_hint(gpus_text, ""),
            option=option_name,
        )
    if not colon and not gpus_text[0].isdigit():
        return Gpus(1, gpus_text)
    if not count_text[:1].isdigit():
        raise InvalidRequest(
            f"--{option_name}={gpus_text}: the count comes last",
            would_work=_gres_order_hint(gpus_text, ""),
            option=option_name,
        )
    return Gpus(parse_count(count_text, option_name), gpu_type)


def parse_gres(gres_text: str, gres_name: str = "gpu") -> list[Gpus]:
    """Read the GPUs in a --gres list: `gpu`, `gpu:4`, `gpu:a100:4`. The last count of each type
    counts, and a count of 0 is left out.
    """
    gpus_by_type: dict[str, Gpus] = {}
    for gres_entry in gres_text.removeprefix("gres:").split(","):
        entry_fields = _gres_fields(gres_entry)
        if entry_fields[0] != gres_name:
            continue
        if len(entry_fields) > 3 or "" in entry_fields[1:]:
            raise InvalidRequest(
                f"--gres={gres_entry}: GRES are name, type and count, in that order",
                would_work=_gres_order_hint(gres_entry, "gpu:"),
                option="gres",
            )
        if len(entry_fields) == 1:
            gpus = Gpus(1)
        elif len(entry_fields) == 2:
            gpus = (
                Gpus(int(entry_fields[1]))
                if is_number(entry_fields[1])
                else _type_or_multiple(entry_fields[1])
            )
        else:
            if not entry_fields[2][:1].isdigit():
                raise InvalidRequest(
                    f"--gres={gres_entry}: the count comes last",
                    would_work=_gres_order_hint(gres_entry, "gpu:"),
                    option="gres",
                )
            gpus = Gpus(parse_count(entry_fields[2], "gres"), entry_fields[1])
        if gpus.count:
            gpus_by_type[gpus.kind] = gpus
    return list(gpus_by_type.values())


def _gres_fields(gres_entry: str) -> list[str]:
    """Return name, type and count of `gpu:a100:2`, `gres/gpu:2`, `gres:gpu:2`, `gpu=2`."""
    return re.split("[:=]", gres_entry.removeprefix("gres:").removeprefix("gres/"))


def _sum_gpus(gpu_counts: list[Gpus]) -> Gpus | None:
    """Return the sum of all; of any type, if there are several types."""
    if not gpu_counts:
        return None
    return gpu_counts[0] if len(gpu_counts) == 1 else Gpus(sum(gpus.count for gpus in gpu_counts))


def _type_or_multiple(gres_field: str) -> Gpus:
    if is_number(gres_field[:-1]) and gres_field[-1].lower() in COUNT_MULTIPLES:
        return Gpus(parse_count(gres_field, "gres"))
    return Gpus(1, gres_field)


def _gres_order_hint(gres_text: str, prefix: str) -> str:
    """Return the same words in Slurm's order, if they are unambiguous: `gpu:1:tesla:v100`."""
    gres_fields = [field for field in gres_text.removeprefix("gpu:").split(":") if field]
    number_fields = [field for field in gres_fields if is_number(field)]
    gpu_types = [field for field in gres_fields if not is_number(field)]
    if len(number_fields) != 1 or not gpu_types:
        return ""
    return (
        f"Write {prefix}{gpu_types[-1]}:{number_fields[0]}, with the type that `sinfo -o %G` shows"
    )


def parse_nodes(nodes_text: str) -> tuple[int, int]:
    """Read (minimum, maximum) of `2` or `2-4`."""
    low_text, dash, high_text = nodes_text.partition("-")
    min_nodes = parse_count(low_text, "nodes")
    max_nodes = parse_count(high_text, "nodes") if dash else min_nodes
    if max_nodes < min_nodes:
        raise InvalidRequest(f"--nodes={nodes_text}: the range runs backwards", option="nodes")
    return min_nodes, max_nodes


_COUNT_FIELDS = {
    "ntasks": "tasks",
    "ntasks-per-node": "tasks_per_node",
    "tasks-per-node": "tasks_per_node",
    "cpus-per-task": "cpus_per_task",
    "sockets-per-node": "sockets_per_node",
    "ntasks-per-gpu": "tasks_per_gpu",
    "ntasks-per-tres": "tasks_per_gpu",
    "cpus-per-gpu": "cpus_per_gpu",
}
_GPU_COUNTING_UNITS = {
    "gpus": "job",
    "gpus-per-node": "node",
    "gres": "node",
    "gpus-per-socket": "socket",
    "gpus-per-task": "task",
}


def _read_gpu_shares(counting_unit: str, gres_text: str) -> list[tuple[str, str, Gpus]]:
    return [
        (counting_unit, name, gpus) for name in SHARE_NAMES for gpus in parse_gres(gres_text, name)
    ]


def _parse_task_tres(
    tres_text: str, request_fields: dict[str, object], gpus_by_option: dict[str, list[Gpus]]
) -> list[tuple[str, str, Gpus]]:
    """Read --tres-per-task, which may repeat --cpus-per-task and --gpus-per-task. Returns its
    shares.
    """
    for tres_entry in tres_text.split(","):
        if not _TASK_TRES_PATTERN.match(tres_entry):
            raise InvalidRequest(
                f"--tres-per-task={tres_text}: {tres_entry!r} is not counted by task",
                would_work="Write cpu=N, gres/NAME:N or license/NAME=N",
                option="tres-per-task",
            )
        if tres_entry.startswith(("cpu=", "cpu:")):
            if "cpus_per_task" in request_fields:
                raise InvalidRequest(
                    f"--tres-per-task={tres_text} and --cpus-per-task exclude each other"
                )
            request_fields["cpus_per_task"] = parse_count(tres_entry[4:], "tres-per-task")
    task_gpus = parse_gres(tres_text)
    if task_gpus and "gpus-per-task" in gpus_by_option:
        raise InvalidRequest(f"--tres-per-task={tres_text} and --gpus-per-task exclude each other")
    if task_gpus:
        gpus_by_option["gpus-per-task"] = task_gpus
    return _read_gpu_shares("task", tres_text)


def _normalised_bind(bind_text: str) -> str:
    """Return a binding; Slurm reads only the beginning of closest and none, in any case
    (_valid_gres_bind).
    """
    return re.sub(r"^(verbose,)?(closest|none).*", r"\1\2", bind_text.lower())


def read_request(given_options: list[Given], command: str) -> SlurmRequest:
    """Return the request of these options. Raises InvalidRequest for a value that Slurm cannot
    read.
    """
    request_fields: dict[str, object] = {}
    other_options: dict[str, str] = {}
    gpus_by_option: dict[str, list[Gpus]] = {}
    gres_shares: list[tuple[str, str, Gpus]] = []
    task_shares: list[tuple[str, str, Gpus]] = []
    tres_bind_text = ""
    for option_name, option_value, _ in given_options:
        if option_name == "nodes":
            request_fields.pop("min_nodes", None), request_fields.pop("max_nodes", None)
            other_options[option_name] = option_value
            if not NODE_COUNTS_LIST.fullmatch(option_value):
                request_fields["min_nodes"], request_fields["max_nodes"] = parse_nodes(option_value)
        elif option_name in _COUNT_FIELDS:
            option_count = parse_count(option_value, option_name)
            if option_count < 1:
                raise InvalidRequest(
                    f"--{option_name}={option_value}: must be 1 or more", option=option_name
                )
            request_fields[_COUNT_FIELDS[option_name]] = option_count
        elif option_name == "gres":
            is_none = option_value.lower() == "none"
            gpus_by_option[option_name] = [] if is_none else parse_gres(option_value)
            gres_shares = [] if is_none else _read_gpu_shares("node", option_value)
            other_options[option_name] = option_value
        elif option_name == "tres-per-task":
            task_shares = _parse_task_tres(option_value, request_fields, gpus_by_option)
            other_options[option_name] = option_value
        elif option_name == "mem-per-gpu":
            request_fields["memory_per_gpu"] = memory(option_value, option_name)
            other_options[option_name] = option_value
        elif option_name in _GPU_COUNTING_UNITS:
            gpu_counts = [parse_gpus(part, option_name) for part in option_value.split(",")]
            gpus_by_option[option_name] = [gpu_count for gpu_count in gpu_counts if gpu_count.count]
        elif option_name == "gpu-bind":
            request_fields["bind"] = _normalised_bind(option_value)
        elif option_name == "tres-bind":
            bind_match = re.search(r"(?:^|\+)gres/gpu:([^+]*)", option_value)
            tres_bind_text = _normalised_bind(bind_match[1]) if bind_match else tres_bind_text
            other_options[option_name] = option_value
        elif option_name == "exclusive":
            request_fields["exclusive"] = option_value in ("", "exclusive", "user")
            other_options[option_name] = option_value
        else:
            other_options[option_name] = option_value
    if tres_bind_text:  # srun in the job reads it after --gpu-bind, which it then replaces
        request_fields["bind"] = tres_bind_text
    # --gres stands behind --gpus-per-node in one list, where the last count of a type holds. A
    # job's environment has the other options, but not --gres.
    option_order = ("gpus", "gpus-per-node", "gres", "gpus-per-socket", "gpus-per-task")
    ordered_gpus = [
        (name, gpu_count) for name in option_order for gpu_count in gpus_by_option.get(name, [])
    ]
    gres_gpus = gpus_by_option.get("gres", [])
    return SlurmRequest(
        command=command,
        given=tuple(given_options),
        other=other_options,
        shares=tuple(gres_shares + task_shares),
        gpu_options=tuple(
            (_GPU_COUNTING_UNITS[name], gpu_count) for name, gpu_count in ordered_gpus
        ),
        per_job=_sum_gpus(gpus_by_option.get("gpus", [])),
        per_node=_sum_gpus(gres_gpus or gpus_by_option.get("gpus-per-node", [])),
        per_socket=_sum_gpus(gpus_by_option.get("gpus-per-socket", [])),
        per_task=_sum_gpus(gpus_by_option.get("gpus-per-task", [])),
        by_gres=bool(gres_gpus) and "gpus-per-node" not in gpus_by_option,
        **request_fields,  # type: ignore[arg-type]
    )


def other_parts(remaining_arguments: list[str]) -> list[Given]:
    """Return `: …` behind the options, which are further parts of a heterogeneous job, as one
    option.
    """
    return (
        [Given("het-group", "", " ".join(remaining_arguments))]
        if remaining_arguments[:1] == [":"]
        else []
    )


def parse_request(arguments: list[str], command: str = "sbatch") -> SlurmRequest:
    """Return the request of a command line's options. The program behind them is ignored."""
    given_options, remaining_arguments = parse_options(arguments, command, of_plugins=True)
    return read_request([*given_options, *other_parts(remaining_arguments)], command)
