"""Partitions, as `scontrol --oneliner show partition` prints them."""

from __future__ import annotations

from typing import Final

from podwright.slurm.reader._scontrol_records import FieldRecord, records
from podwright.slurm.reader._slurm_config import job_defaults, sized

_OVERSUBSCRIBE_VALUES: Final = ("EXCLUSIVE", "NO", "YES", "FORCE")


class SlurmPartitionRecord:
    """A partition. Each property raises FieldNotKnown where Slurm does not show what it needs."""

    __slots__ = ("_record",)

    def __init__(self, field_record: FieldRecord) -> None:
        self._record = field_record

    @property
    def name(self) -> str:
        """Its name."""
        return self._record.text("PartitionName")

    @property
    def default(self) -> bool:
        """Whether jobs that name no partition go there."""
        return self._record.text("Default") == "YES"

    @property
    def state(self) -> str:
        """UP, DOWN (jobs wait), DRAIN (jobs run, none may be submitted) or INACTIVE."""
        return self._record.text("State")

    @property
    def nodes(self) -> str:
        """Its nodes, as a list of Slurm's: `n[1-4]`, or ALL."""
        return self._record.value("Nodes")

    @property
    def min_nodes(self) -> int:
        """The fewest nodes of a job."""
        return self._record.number("MinNodes")

    @property
    def max_nodes(self) -> int | None:
        """The most nodes of a job; None: no limit."""
        return self._record.count("MaxNodes")

    @property
    def max_cpus_per_node(self) -> int | None:
        """The most CPUs of a node that all jobs of this partition together may have; None: no
        limit.
        """
        return self._record.count("MaxCPUsPerNode")

    @property
    def max_cpus_per_socket(self) -> int | None:
        """The most CPUs of a socket that all jobs of this partition together may have; None: no
        limit.

        Releases before 23.02 do not have this limit.
        """
        is_older_release = self._record.has("ExclusiveUser") and not self._record.has("NodeSets")
        if is_older_release and not self._record.has("MaxCPUsPerSocket"):
            return None
        return self._record.count("MaxCPUsPerSocket")

    @property
    def max_time(self) -> str:
        """The longest time limit of a job, as Slurm writes it."""
        return self._record.text("MaxTime")

    @property
    def default_time(self) -> str:
        """The time limit of a job that asks for none; empty where MaxTime applies."""
        text = self._record.text("DefaultTime")
        return "" if text == "NONE" else text

    @property
    def memory(self) -> tuple[int, bool]:
        """DefMemPerCPU or DefMemPerNode: bytes (0: none), and whether they are for each CPU."""
        return self._memory_limit("Def")

    @property
    def most_memory(self) -> tuple[int, bool]:
        """MaxMemPerCPU or MaxMemPerNode, in the same form."""
        return self._memory_limit("Max")

    def _memory_limit(self, def_or_max: str) -> tuple[int, bool]:
        field_names = (f"{def_or_max}MemPerCPU", f"{def_or_max}MemPerNode")
        fields = {name: self._record.text(name) for name in field_names if self._record.has(name)}
        return sized(fields, def_or_max, self._record.not_known(field_names[1]))

    @property
    def share(self) -> int:
        """OverSubscribe: 0 EXCLUSIVE, 1 NO, 2 YES, 3 FORCE.

        It is 0 as well where Slurm 26.05 shows Exclusive=NODE instead.
        """
        if not self._record.has("ExclusiveUser") and self._record.text("Exclusive") == "NODE":
            return 0
        word = self._record.text("OverSubscribe").partition(":")[0]
        if word not in _OVERSUBSCRIBE_VALUES:
            raise self._record.not_known("OverSubscribe", f"{word[:40]!r} is not such a value")
        return _OVERSUBSCRIBE_VALUES.index(word)

    @property
    def whole_nodes(self) -> bool:
        """Whether each job has its nodes, or its topology, for itself."""
        if self._record.has("ExclusiveUser"):
            topology = self._record.optional("ExclusiveTopo") == "YES"
        else:
            topology = self._record.text("Exclusive") == "TOPO"
        return topology or self.share == 0

    @property
    def takes_least_loaded_first(self) -> bool:
        """LLN: whether the least loaded nodes are taken first."""
        return self._record.text("LLN") == "YES"

    @property
    def priority(self) -> int:
        """PriorityTier."""
        return self._record.number("PriorityTier")

    @property
    def preempt_mode(self) -> frozenset[str]:
        """PreemptMode, its own or the cluster's, as words."""
        return frozenset(self._record.text("PreemptMode").upper().split(","))

    @property
    def grace_s(self) -> int:
        """GraceTime: the seconds between the warning of a preempted job and its end."""
        return self._record.number("GraceTime")

    @property
    def job_defaults(self) -> dict[str, int]:
        """JobDefaults: `DefCpuPerGPU` and `DefMemPerGPU` (MiB)."""
        return job_defaults(self._record.value("JobDefaults"))

    @property
    def select(self) -> str:
        """SelectTypeParameters of its own; empty where it has none."""
        text = self._record.value("SelectTypeParameters")
        return "" if text == "NONE" else text

    @property
    def has_own_qos(self) -> bool:
        """Whether it has a QOS, which may lift its limits."""
        return bool(self._record.value("QoS"))

    @property
    def topology(self) -> str:
        """Its own topology, where the cluster has several; empty: the cluster's."""
        return self._record.optional("Topology")

    @property
    def cpu_bind(self) -> str:
        """CpuBind of its line; empty where it has none."""
        return self._record.optional("CpuBind")


def read_partitions(scontrol_output: str) -> list[SlurmPartitionRecord]:
    """Return the partitions in this output, in Slurm's order."""
    return [SlurmPartitionRecord(record) for record, _ in records(scontrol_output, "PartitionName")]
