"""The details of a request beside GPUs, nodes and tasks: cores, memory, time, partitions, nodes.

Values are read as Slurm reads them. InvalidRequest is raised if Slurm would refuse the command
line.
"""

from __future__ import annotations

from dataclasses import dataclass

from podwright.errors import InvalidRequest
from podwright.gpu.requests._slurm_options import Given
from podwright.gpu.requests._units import is_number, memory, minutes
from podwright.hosts import expand_names


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


_COUNT_FIELDS = {
    "ntasks-per-socket": "tasks_per_socket",
    "sockets-per-node": "sockets",
    "cores-per-socket": "cores",
    "threads-per-core": "threads",
    "mincpus": "mincpus",
}
_MEMORY_FIELDS = {"mem": "memory", "mem-per-cpu": "memory_per_cpu"}
#: Options that Slurm reads like --hint, and that make it ignore --hint.
_HINT_OVERRIDES = ("ntasks-per-core", "threads-per-core", "extra-node-info", "cpu-bind")


def read_details(given_options: tuple[Given, ...]) -> RequestDetails:
    """Return the details of these options. Raises InvalidRequest."""
    details = RequestDetails()
    hint = ""
    for option_name, option_value, _ in given_options:
        if option_name in _COUNT_FIELDS:
            setattr(details, _COUNT_FIELDS[option_name], _read_count(option_value, option_name))
        elif option_name in _MEMORY_FIELDS:
            setattr(details, _MEMORY_FIELDS[option_name], memory(option_value, option_name))
        # The value names nodes: it is neither a file (/) nor a node set ({).
        elif option_name == "nodelist" and not {"/", "{"} & set(option_value):
            details.named = expand_names(option_value)
        elif option_name == "partition":
            details.partitions = tuple(
                partition_name for partition_name in option_value.split(",") if partition_name
            )
        elif option_name == "time":
            details.time = minutes(option_value, option_name)
        elif option_name == "extra-node-info":
            _read_node_info(details, option_value)
        elif option_name == "hold" or (option_name == "priority" and option_value == "0"):
            details.is_held = True
        elif option_name == "hint":
            hint = option_value.lower()
    if hint and not any(option.name in _HINT_OVERRIDES for option in given_options):
        _apply_hint(details, hint)
    return details


def _read_count(count_text: str, option_name: str) -> int:
    if not is_number(count_text):
        raise InvalidRequest(
            f"--{option_name}={count_text}: {count_text!r} is not a count", option=option_name
        )
    return int(count_text)


def _read_node_info(details: RequestDetails, node_info: str) -> None:
    """Read `sockets:cores:threads`, each a count or *."""
    details.whole_info = True
    info_parts = node_info.split(":")
    if len(info_parts) > 3:
        raise InvalidRequest(
            f"--extra-node-info={node_info}: sockets:cores:threads", option="extra-node-info"
        )
    details.sockets = details.cores = details.threads = None
    for name, part in zip(("sockets", "cores", "threads"), info_parts, strict=False):
        if part not in ("*", ""):
            setattr(details, name, _read_count(part, "extra-node-info"))


def _apply_hint(details: RequestDetails, hint: str) -> None:
    for hint_word in hint.split(","):
        if hint_word not in ("compute_bound", "memory_bound", "multithread", "nomultithread"):
            raise InvalidRequest(f"--hint={hint_word}: unknown", option="hint")
        if hint_word == "memory_bound":
            details.cores = details.threads = 1
        elif hint_word != "multithread":
            details.threads = 1
