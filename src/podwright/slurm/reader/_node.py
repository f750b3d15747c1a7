"""Nodes, as `scontrol --oneliner show node` prints them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from podwright.slurm.reader._scontrol_records import FieldRecord, records

#: What a letter after a state means (Slurm's node_state_string; scontrol prints words instead).
_STATE_SUFFIXES: Final = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "%": "POWERING_DOWN",
    "!": "POWER_DOWN",
    "$": "MAINT",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
#: States in which a node takes no jobs until somebody or something acts.
_ILL_STATES: Final = frozenset(
    {"DOWN", "ERROR", "FAIL", "FAILING", "FUTURE", "INVAL", "INVALID", "INVALID_REG", "UNKNOWN"}
    | {"DRAIN", "DRAINED", "DRAINING", "NOT_RESPONDING", "POWER_DRAIN"}
)
#: States in which a node takes no job now, and will take jobs again by itself.
_TEMPORARILY_AWAY_STATES: Final = frozenset(
    {"MAINT", "MAINTENANCE", "POWERING_DOWN", "POWER_DOWN", "REBOOT", "REBOOT_ISSUED"}
    | {"REBOOT_REQUESTED"}
)
_GPU_GRES_PATTERN: Final = re.compile(
    r"(?:^|,)gpu(?::([^:(,]+))??:(\d+)(?:\(S:([\d,-]+)\))?(?=,|\(|$)"
)
_OTHER: Final = re.compile(r"(?:^|,)([a-z_]\w*)(?::[^:(,]+)??:(\d+)(?=,|\(|$)", re.I)


class NodeState(NamedTuple):
    """A node's state, with all its words. text: as Slurm prints it, `IDLE+CLOUD+POWERED_DOWN`.

    A node that Slurm has powered down to save energy takes jobs: Slurm powers it up for them.
    """

    text: str
    words: frozenset[str]

    @property
    def ill(self) -> bool:
        """Whether it takes no jobs until somebody acts."""
        return bool(self.words & _ILL_STATES)

    @property
    def takes_jobs(self) -> bool:
        """Whether a job can start there, once it is idle."""
        return not self.words & (_ILL_STATES | _TEMPORARILY_AWAY_STATES)

    @property
    def idle(self) -> bool:
        """Whether it is idle, up and takes jobs at once."""
        return self.words == {"IDLE"}


def node_state(state_text: str) -> NodeState:
    """Return the state in Slurm's notation: `IDLE+DRAIN`, `DOWN*`, `idle~`."""
    state_words = set()
    for part in state_text.upper().split("+"):
        state_word = part.rstrip("".join(_STATE_SUFFIXES))
        state_words |= {
            state_word,
            *(_STATE_SUFFIXES[suffix] for suffix in part[len(state_word) :]),
        }
    return NodeState(state_text, frozenset(state_words - {""}))


class GresGpus(NamedTuple):
    """The GPUs of one type in a node's Gres.

    type: empty where none is named. sockets: the sockets beside which they are, as Slurm lists
    them, `0-1`; empty where gres.conf names no cores.
    """

    type: str
    amount: int
    sockets: str


class SlurmNode:
    """A node. Each property raises FieldNotKnown where Slurm does not show what it needs."""

    __slots__ = ("_record",)

    def __init__(self, field_record: FieldRecord) -> None:
        self._record = field_record

    @property
    def line(self) -> str:
        """The record, as scontrol printed it on one line."""
        return self._record.line

    @property
    def name(self) -> str:
        """Its name."""
        return self._record.text("NodeName")

    @property
    def state(self) -> NodeState:
        """Its state."""
        return node_state(self._record.text("State"))

    @property
    def reason(self) -> str:
        """Why it is down or drained, with who set that and when; empty: it is neither."""
        return self._record.optional("Reason")

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that it is in."""
        partition_list = self._record.optional("Partitions")
        return tuple(partition_list.split(",")) if partition_list else ()

    @property
    def sockets(self) -> int:
        """The number of its sockets."""
        return self._record.number("Sockets")

    @property
    def cores_per_socket(self) -> int:
        """The number of cores in a socket."""
        return self._record.number("CoresPerSocket")

    @property
    def threads_per_core(self) -> int:
        """The number of threads in a core."""
        return self._record.number("ThreadsPerCore")

    @property
    def cpus(self) -> int:
        """The number of its CPUs, as Slurm counts them."""
        return self._record.number("CPUTot")

    @property
    def allocated_cpus(self) -> int:
        """The number of CPUs that jobs have."""
        return self._record.number("CPUAlloc")

    @property
    def memory_mib(self) -> int:
        """Its memory in MiB, including that of MemSpecLimit."""
        return self._record.number("RealMemory")

    @property
    def reserved_memory_mib(self) -> int:
        """The memory in MiB that no job gets (MemSpecLimit)."""
        return self._record.optional_number("MemSpecLimit")

    @property
    def reserved_cpus(self) -> str:
        """The CPUs that no job gets (CPUSpecList), as a list: `0-1,8`."""
        return self._record.optional("CPUSpecList")

    @property
    def disk_mib(self) -> int:
        """Its TmpDisk in MiB."""
        return self._record.number("TmpDisk")

    @property
    def weight(self) -> int:
        """Its weight. Slurm prefers nodes of less weight."""
        return self._record.number("Weight")

    @property
    def features(self) -> frozenset[str]:
        """The features that jobs can ask for."""
        feature_names = self._record.value("AvailableFeatures").split(",")
        return frozenset(name for name in feature_names if name)

    @property
    def cpu_bind(self) -> str:
        """CpuBind of its line; empty where it has none."""
        return self._record.optional("CpuBind")

    @property
    def gres(self) -> str:
        """Its GRES, in Slurm's words."""
        return self._record.value("Gres")

    @property
    def gpus(self) -> list[GresGpus]:
        """Its GPUs, in the order of its Gres."""
        return read_gpus(self.gres)


def read_nodes(scontrol_output: str) -> list[SlurmNode]:
    """Return the nodes in this output, in Slurm's order."""
    return [SlurmNode(record) for record, _ in records(scontrol_output, "NodeName")]


def read_gpus(gres_text: str) -> list[GresGpus]:
    """Return the GPUs in a Gres: `gpu:a100:4(S:0-1)`."""
    return [
        GresGpus(gpu_type, int(count), sockets)
        for gpu_type, count, sockets in _GPU_GRES_PATTERN.findall(gres_text)
    ]


def read_counts(gres_text: str) -> list[tuple[str, int]]:
    """Return every GRES with its count, in order, also `shard` and `nic`."""
    return [(name, int(count)) for name, count in _OTHER.findall(gres_text)]


def gpu_types(gres_text: str) -> dict[str, int]:
    """Return the number of GPUs of each type in a Gres; the type is empty where none is named."""
    count_by_type: dict[str, int] = {}
    for gres_gpus in read_gpus(gres_text):
        count_by_type[gres_gpus.type] = count_by_type.get(gres_gpus.type, 0) + gres_gpus.amount
    return count_by_type
