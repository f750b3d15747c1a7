"""Decides which processes on a node are left over from ended jobs. Without effects.

A process belongs to a job by identity alone: the cgroup that slurmd put it into, and the
environment that it was started with. Its parents say nothing, since an orphan has others.

The kernel keeps the cgroup, so it is certain. The environment is the user's own: a shell of one job
can be used in another. It is proof only where the user has no living job on the node.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

#: Bytes of a GPU's memory that may be in use while no job uses it: the driver keeps some.
FREE_MEMORY_BOUND = 2 << 30
_MPS_COMMAND = "nvidia-cuda-mps"  # the kernel cuts a command after 15 characters


class Belongs(enum.StrEnum):
    """Whom a process belongs to. MAYBE_ENDED_JOB: it names an ended job, which is no proof."""

    LIVING_JOB = "a living job"
    ENDED_JOB = "an ended job"
    MAYBE_ENDED_JOB = "perhaps an ended job"
    NO_JOB = "no job"
    NOT_KNOWN = "not known"


class Here(NamedTuple):
    """This node's name in Slurm, and its cluster's; empty where that is not known."""

    node: str
    cluster: str = ""


class NodeProcess(msgspec.Struct, frozen=True):
    """A process, as the kernel shows it.

    start: clock ticks since boot; with the pid it names one process. gpus: indexes of the GPUs that
    it holds. group_jobs: the jobs that its cgroups name. environ_job, environ_uid: SLURM_JOB_ID
    and SLURM_JOB_UID at its start, or None. other_place: the node or cluster that it was started
    for, where that is not this one. readable: whether its identity could be read.
    """

    pid: int
    start: int
    uid: int
    user: str
    command: str
    gpus: tuple[int, ...] = ()
    group_jobs: tuple[int, ...] = ()
    environ_job: int | None = None
    environ_uid: int | None = None
    other_place: str = ""
    readable: bool = True

    @property
    def named_jobs(self) -> tuple[int, ...]:
        """All jobs that its identity names."""
        environ_jobs = () if self.environ_job is None else (self.environ_job,)
        return tuple(dict.fromkeys((*self.group_jobs, *environ_jobs)))


class ListedJob(NamedTuple):
    """A job that Slurm lists. lives: it may have processes. here: perhaps on this node."""

    job: int
    uid: int | None
    lives: bool
    here: bool


class GpuState(msgspec.Struct, frozen=True):
    """A GPU. files: of its device. memory: bytes in use, or None. pids: its users by the vendor's
    library. divided: its memory is that of its slices.
    """

    index: int
    files: tuple[str, ...] = ()
    memory: int | None = None
    pids: tuple[int, ...] = ()
    divided: bool = False


class ProcessVerdict(msgspec.Struct, frozen=True):
    """Whom a process belongs to, and why. job: None for none."""

    process: NodeProcess
    belongs: Belongs
    because: str
    job: int | None = None

    def __str__(self) -> str:
        process = self.process
        job = "" if self.job is None else f", job {self.job}"
        return f"{process.command} {process.pid} of {process.user}{job}"


def judge_process(
    process: NodeProcess, listed_jobs: Mapping[int, ListedJob] | None, hook_job: int | None = None
) -> ProcessVerdict:
    """Decide whom a process belongs to.

    listed_jobs: what Slurm lists, asked after the process was read; None where it does not answer.
    A job that is not listed is over. hook_job: the job whose Epilog this is: over on this node.
    """
    if not process.readable:
        return ProcessVerdict(process, Belongs.NOT_KNOWN, "its identity cannot be read")
    named_jobs = process.named_jobs
    if not named_jobs:
        return ProcessVerdict(process, Belongs.NO_JOB, "neither cgroup nor environment names a job")
    job = named_jobs[0]
    if listed_jobs is None:
        return ProcessVerdict(process, Belongs.NOT_KNOWN, "Slurm does not list its jobs", job)
    for named_job in named_jobs:
        if named_job != hook_job and named_job in listed_jobs and listed_jobs[named_job].lives:
            because = f"job {named_job} lives"
            return ProcessVerdict(process, Belongs.LIVING_JOB, because, named_job)
    if doubt := _doubt(process, listed_jobs, hook_job):
        return ProcessVerdict(process, Belongs.MAYBE_ENDED_JOB, doubt, job)
    where = "its cgroup" if process.group_jobs else "the environment of its start"
    return ProcessVerdict(process, Belongs.ENDED_JOB, f"{where} names the job, which is over", job)


def _doubt(process: NodeProcess, listed_jobs: Mapping[int, ListedJob], hook_job: int | None) -> str:
    """Why a process that names only ended jobs may not be theirs; empty where it is."""
    named_jobs = process.named_jobs
    if process.uid == 0:
        return "root owns it"
    if process.other_place:
        return f"it was started for {process.other_place}"
    if len(named_jobs) > 1:
        return f"it names the jobs {' and '.join(map(str, named_jobs))}"
    if process.environ_uid not in (None, process.uid):
        return f"its job was that of user {process.environ_uid}"
    listed = listed_jobs.get(named_jobs[0])
    if listed is not None and listed.uid != process.uid:
        return f"its job was that of user {listed.uid}"
    if process.group_jobs:
        return ""
    for other in listed_jobs.values():
        if (
            other.lives
            and other.here
            and other.job != hook_job
            and other.uid in (None, process.uid)
        ):
            return f"its user has job {other.job} here, and only the environment names an ended job"
    return ""


def victims(verdicts: Iterable[ProcessVerdict]) -> list[NodeProcess]:
    """The processes to end: those of ended jobs that hold a GPU, and the rest of the same jobs."""
    ended = [verdict for verdict in verdicts if verdict.belongs is Belongs.ENDED_JOB]
    holding = {(verdict.job, verdict.process.uid) for verdict in ended if verdict.process.gpus}
    return [verdict.process for verdict in ended if (verdict.job, verdict.process.uid) in holding]


def held_memory(gpus: Iterable[GpuState], verdicts: Iterable[ProcessVerdict]) -> list[GpuState]:
    """The GPUs whose memory is in use without a visible right to it.

    Left out are GPUs that a living job or an MPS server uses, and those that are divided.
    """
    used_by_right: set[int] = set()
    for verdict in verdicts:
        command = verdict.process.command
        if verdict.belongs is Belongs.LIVING_JOB or command.startswith(_MPS_COMMAND):
            used_by_right.update(verdict.process.gpus)
    return [
        gpu
        for gpu in gpus
        if not gpu.divided
        and gpu.index not in used_by_right
        and (gpu.memory or 0) > FREE_MEMORY_BOUND
    ]
