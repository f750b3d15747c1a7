"""Jobs, as `scontrol --oneliner show job` prints them; with `--details` also their GPUs."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from podwright.errors import InvalidRequest
from podwright.hosts import expand, read_list
from podwright.slurm.reader._scontrol_records import FieldRecord, records

_NODE_GPUS_PATTERN: Final = re.compile(r"(?:^|\s)Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_GPU_INDICES_PATTERN: Final = re.compile(r"(?:^|,)gpu(?::[^(),:]+)?:\d+\(IDX:([0-9,-]+)\)")
_USER_PATTERN: Final = re.compile(r"([^\s()]+)\((\d+)\)")
#: States in which a job has its nodes.
_PLACED_STATES: Final = ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED")


class JobUser(NamedTuple):
    """The owner of a job."""

    name: str
    uid: int


class JobRecord:
    """A job.

    Each property raises FieldNotKnown where Slurm does not show what it needs, or where the job's
    own texts (name, comment) contain the same field, so that the field appears twice.
    """

    __slots__ = ("_line", "_record")

    def __init__(self, field_record: FieldRecord, scontrol_line: str) -> None:
        self._record, self._line = field_record, scontrol_line

    @property
    def number(self) -> int:
        """The number that Slurm gave it."""
        return self._record.number("JobId")

    @property
    def user(self) -> JobUser:
        """Its owner."""
        user_match = _USER_PATTERN.fullmatch(self._record.text("UserId"))
        if not user_match:
            raise self._record.not_known("UserId", "it is not a user with a number")
        return JobUser(user_match[1], int(user_match[2]))

    @property
    def name(self) -> str:
        """The name that its user gave it."""
        return self._record.text("JobName")

    @property
    def state(self) -> str:
        """Its state, such as PENDING or RUNNING."""
        return self._record.text("JobState")

    @property
    def placed(self) -> bool:
        """Whether it has nodes."""
        return self.state in _PLACED_STATES

    @property
    def reason(self) -> str:
        """Why it waits or how it ended, in Slurm's word; `None` where Slurm has no reason."""
        return self._record.text("Reason")

    @property
    def dependency(self) -> str:
        """The jobs that it waits for, as Slurm writes them; empty: none."""
        return self._record.value("Dependency")

    @property
    def priority(self) -> int:
        """Its priority. Jobs of a higher priority start first."""
        return self._record.number("Priority")

    @property
    def partition(self) -> str:
        """The partition, or several with commas while it waits."""
        return self._record.value("Partition")

    @property
    def qos(self) -> str:
        """Its QOS; empty: none."""
        return self._record.value("QOS")

    @property
    def preemptable_from(self) -> str:
        """When it may first be preempted, as Slurm writes times; empty where Slurm preempts nothing
        or the job has not begun.
        """
        return self._record.optional("PreemptEligibleTime")

    @property
    def submitted(self) -> str:
        """When it was submitted, as Slurm writes times."""
        return self._record.value("SubmitTime")

    @property
    def start(self) -> str:
        """When it began, or is expected to begin; empty: not known."""
        return self._record.value("StartTime")

    @property
    def end(self) -> str:
        """When it ended, or when its time is over; empty: not known."""
        return self._record.value("EndTime")

    @property
    def licences(self) -> str:
        """Its licences, as Slurm writes them."""
        return self._record.value("Licenses")

    @property
    def excluded(self) -> str:
        """The nodes that it is not to get, as a list of hosts; empty for none."""
        return self._record.value("ExcNodeList")

    @property
    def expedited(self) -> bool:
        """Whether Slurm requeues it at once where it fails (--requeue=expedite)."""
        return self._record.optional("ExpeditedRequeue") == "Yes"

    @property
    def output(self) -> str:
        """The file of its standard output; empty where it has none."""
        return self._record.optional("StdOut")

    @property
    def admin_comment(self) -> str:
        """AdminComment; empty where it has none."""
        return self._record.optional("AdminComment")

    @property
    def het_job(self) -> int:
        """The heterogeneous job that it is a part of; 0: none."""
        return self._record.optional_number("HetJobId")

    @property
    def array_job(self) -> int:
        """The number of the array that it is a part of; 0: none."""
        return self._record.optional_number("ArrayJobId")

    @property
    def array_tasks(self) -> str:
        """The tasks of the array that it stands for: `3`, or `4-9%2` for tasks that wait."""
        return self._record.optional("ArrayTaskId")

    @property
    def tasks(self) -> int | None:
        """The number of tasks that it asks for; None: not stated."""
        return (
            int(tasks_text) if (tasks_text := self._record.value("NumTasks")).isdecimal() else None
        )

    @property
    def cpus_per_task(self) -> int | None:
        """The number of CPUs that it asks for with each task; None: not stated."""
        return (
            int(cpus_text) if (cpus_text := self._record.value("CPUs/Task")).isdecimal() else None
        )

    @property
    def min_nodes(self) -> int | None:
        """The fewest nodes that it asks for; None: not stated."""
        number_match = re.match(r"\d+", self._record.value("NumNodes"))
        return int(number_match[0]) if number_match else None

    @property
    def min_cpus(self) -> int | None:
        """The fewest CPUs that it asks for, on all nodes together; None: not stated."""
        number_match = re.match(r"\d+", self._record.value("NumCPUs"))
        return int(number_match[0]) if number_match else None

    @property
    def whole_nodes(self) -> bool:
        """Whether it asks for nodes that no other job shares (`--exclusive`).

        Slurm 26.05 shows that in the field Exclusive, and shows OverSubscribe=NO for other jobs
        too.
        """
        if self._record.has("Exclusive") or self._record.has("SLUID"):
            return self._record.text("Exclusive") not in ("NO", "USER", "MCS")
        return self._record.text("OverSubscribe") == "NO"

    @property
    def gpus(self) -> dict[str, list[int]]:
        """The GPUs that it has: node -> indices, as gres.conf counts them. Needs `--details`.

        They are read between two fields that Slurm itself prints, because no text of a user can be
        there.
        """
        indices_by_node: dict[str, list[int]] = {}
        details_text = self._record.between("CoreSpec", "MinCPUsNode", self._line)
        for node_list, gres_text in _NODE_GPUS_PATTERN.findall(details_text):
            gpu_indices = [
                index
                for index_list in _GPU_INDICES_PATTERN.findall(gres_text)
                for index in read_list(index_list)
            ]
            try:
                node_names = expand(node_list) if gpu_indices else ()
            except (InvalidRequest, ValueError):
                raise self._record.not_known("Nodes", f"{node_list[:40]!r} is not a list") from None
            for name in node_names:
                indices_by_node.setdefault(name, []).extend(gpu_indices)
        return indices_by_node


def read_jobs(scontrol_output: str) -> list[JobRecord]:
    """Return the jobs in this output, in Slurm's order."""
    return [JobRecord(record, line) for record, line in records(scontrol_output, "JobId")]
