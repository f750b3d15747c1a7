"""The details of a request beside GPUs, nodes and tasks: cores, memory, time, partitions, nodes.

Values are read as Slurm reads them. InvalidRequest is raised if Slurm would refuse the command
line.
"""

from __future__ import annotations

from dataclasses import dataclass

from podwright.errors import InvalidRequest
from podwright.gpu.requests._slurm_options import Given
from podwright.gpu.requests._units import is_number, memory, minutes, names


@dataclass
class RequestDetails:
    """None and "" are "not given". memory: bytes of a node; memory_per_cpu: of a CPU. time:
    minutes, 0 without a limit. whole_info: --extra-node-info is given."""

    tasks_per_socket: int | None = None
    sockets: int | None = None
    cores: int | None = None
    threads: int | None = None
    whole_info: bool = False
    mincpus: int = 1
    memory: int = 0
    memory_per_cpu: int = 0
    named: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    time: int | None = None
    is_held: bool = False


_COUNTS = {
    "ntasks-per-socket": "tasks_per_socket",
    "sockets-per-node": "sockets",
    "cores-per-socket": "cores",
    "threads-per-core": "threads",
    "mincpus": "mincpus",
}
_SIZES = {"mem": "memory", "mem-per-cpu": "memory_per_cpu"}
#: Options that Slurm reads like --hint, and that make it ignore --hint.
_BESIDE_HINT = ("ntasks-per-core", "threads-per-core", "extra-node-info", "cpu-bind")


def read_details(given: tuple[Given, ...]) -> RequestDetails:
    """Return the details of these options. Raises InvalidRequest."""
    details = RequestDetails()
    hint = ""
    for name, value, _ in given:
        if name in _COUNTS:
            setattr(details, _COUNTS[name], _count(value, name))
        elif name in _SIZES:
            setattr(details, _SIZES[name], memory(value, name))
        elif name == "nodelist" and not {"/", "{"} & set(value):  # neither a file nor a node set
            details.named = names(value)
        elif name == "partition":
            details.partitions = tuple(part for part in value.split(",") if part)
        elif name == "time":
            details.time = minutes(value, name)
        elif name == "extra-node-info":
            _read_node_info(details, value)
        elif name == "hold" or (name == "priority" and value == "0"):
            details.is_held = True
        elif name == "hint":
            hint = value.lower()
    if hint and not any(option.name in _BESIDE_HINT for option in given):
        _apply_hint(details, hint)
    return details


def _count(text: str, option: str) -> int:
    if not is_number(text):
        raise InvalidRequest(f"--{option}={text}: {text!r} is not a count", option=option)
    return int(text)


def _read_node_info(details: RequestDetails, value: str) -> None:
    """Read `sockets:cores:threads`, each a count or *."""
    details.whole_info = True
    parts = value.split(":")
    if len(parts) > 3:
        raise InvalidRequest(
            f"--extra-node-info={value}: sockets:cores:threads", option="extra-node-info"
        )
    details.sockets = details.cores = details.threads = None
    for field_name, part in zip(("sockets", "cores", "threads"), parts, strict=False):
        if part not in ("*", ""):
            setattr(details, field_name, _count(part, "extra-node-info"))


def _apply_hint(details: RequestDetails, hint: str) -> None:
    for word in hint.split(","):
        if word not in ("compute_bound", "memory_bound", "multithread", "nomultithread"):
            raise InvalidRequest(f"--hint={word}: unknown", option="hint")
        if word == "memory_bound":
            details.cores = details.threads = 1
        elif word != "multithread":
            details.threads = 1
