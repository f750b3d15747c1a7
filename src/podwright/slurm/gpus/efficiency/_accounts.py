"""What Slurm's accounting says of jobs: sacct's words as values.

With JobAcctGather on, cores and memory are known; with `AccountingStorageTRES=gres/gpuutil,
gres/gpumem` and a slurmd that was built with NVML, so is the highest use of a GPU, which Slurm
keeps in place of a mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from podwright.errors import InvalidRequest, Unavailable

#: A command of Slurm's: what it printed; None where it failed.
Ask = Callable[[Sequence[str]], str | None]

_FIELDS = (
    *("JobID", "JobName", "User", "Partition", "State", "Submit", "Start", "End", "ElapsedRaw"),
    *("TimelimitRaw", "AllocTRES", "NNodes", "NodeList", "TotalCPU", "MaxRSS", "TRESUsageInTot"),
    *("TRESUsageInMax", "NTasks", "AdminComment", "WorkDir", "JobIDRaw"),
)
#: What a job's name may hold, and sacct's separator too, so another one is asked for.
_CUT = "\x1f"


class AccountedJob(NamedTuple):
    """One job. submit, start, end: seconds since 1970, 0: not yet. seconds: that it ran. limit:
    seconds, 0: none. cpus, memory, gpus: that it had. cpu_seconds, used_memory: that it used; None
    where nothing was gathered. gpu_peak: per cent, gpu_memory: the highest of any task's, by
    Slurm's accounting. Memory is in bytes. raw: its number, which an array's task has beside its
    name.
    """

    id: str
    name: str
    user: str
    partition: str
    state: str
    submit: int
    start: int
    end: int
    seconds: int
    limit: int
    nodes: int
    node_list: str
    cpus: int
    memory: int
    gpus: int
    cpu_seconds: float | None = None
    used_memory: int | None = None
    gpu_peak: int | None = None
    gpu_memory: int | None = None
    tasks: int = 0
    comment: str = ""
    folder: str = ""
    raw: str = ""

    @property
    def waited(self) -> int:
        """Seconds from its submission to its start."""
        return max(self.start - self.submit, 0) if self.start else 0

    @property
    def gpu_hours(self) -> float:
        """GPUs times hours."""
        return self.gpus * self.seconds / 3600


def sacct(ask: Ask, options: Sequence[str]) -> list[AccountedJob]:
    """The jobs that match, each with its steps' use. Raises Unavailable."""
    shape = ["--noheader", "--parsable2", f"--delimiter={_CUT}", f"--format={','.join(_FIELDS)}"]
    said = ask(["sacct", *shape, *options])
    if said is None:
        raise Unavailable(
            "sacct does not answer",
            asked="read Slurm's accounting",
            would_work="sacct needs AccountingStorageType=accounting_storage/slurmdbd in "
            "slurm.conf, and a slurmdbd that runs",
        )
    return read_jobs(said)


def one_job(ask: Ask, job: str) -> AccountedJob:
    """A job by its number. Raises InvalidRequest and Unavailable."""
    if not re.fullmatch(r"\d+(_\d+)?(\+\d+)?", job):
        raise InvalidRequest(f"{job!r} is no number of a job", would_work="4711, or 4711_3")
    found = [one for one in sacct(ask, [f"--jobs={job}"]) if one.id == job]
    if not found:
        raise InvalidRequest(
            f"Slurm's accounting has no job {job}", would_work="sacct lists those that it has"
        )
    return found[-1]


def read_jobs(text: str) -> list[AccountedJob]:
    """The jobs in what sacct printed: a line for each, lines of its steps below."""
    jobs: list[AccountedJob] = []
    for line in text.splitlines():
        words = dict(zip(_FIELDS, line.split(_CUT), strict=False))
        if len(words) < len(_FIELDS):
            continue
        if "." not in words["JobID"]:
            jobs.append(_job(words))
        elif jobs and words["JobID"].startswith(jobs[-1].id + "."):
            jobs[-1] = _with_step(jobs[-1], words)
    return jobs


def _job(words: dict[str, str]) -> AccountedJob:
    had = _tres(words["AllocTRES"])
    gpus = had.get("gres/gpu", sum(n for key, n in had.items() if key.startswith("gres/gpu:")))
    return AccountedJob(
        id=words["JobID"],
        name=words["JobName"],
        user=words["User"],
        partition=words["Partition"],
        state=words["State"].partition(" ")[0],
        submit=_number(words["Submit"]),
        start=_number(words["Start"]),
        end=_number(words["End"]),
        seconds=_number(words["ElapsedRaw"]),
        limit=_number(words["TimelimitRaw"]) * 60,
        nodes=_number(words["NNodes"]),
        node_list=words["NodeList"],
        cpus=int(had.get("cpu", 0)),
        memory=int(had.get("mem", 0)),
        gpus=int(gpus),
        comment=words["AdminComment"],
        folder=words["WorkDir"],
        raw=words["JobIDRaw"] or words["JobID"],
    )


def _with_step(job: AccountedJob, words: dict[str, str]) -> AccountedJob:
    """Steps add up in time; in memory the largest counts, since most run one after another."""
    total, most = _tres(words["TRESUsageInTot"]), _tres(words["TRESUsageInMax"])
    cpu = _duration(words["TotalCPU"])
    memory = int(total.get("mem", 0) or _size(words["MaxRSS"]))

    def larger(old: int | None, new: float | None) -> int | None:
        return old if new is None else max(old or 0, int(new))

    known = bool(total)
    return job._replace(
        cpu_seconds=(job.cpu_seconds or 0.0) + cpu if known else job.cpu_seconds,
        used_memory=larger(job.used_memory, memory) if known else job.used_memory,
        gpu_peak=larger(job.gpu_peak, most.get("gres/gpuutil")),
        gpu_memory=larger(job.gpu_memory, most.get("gres/gpumem")),
        tasks=max(job.tasks, _number(words["NTasks"])),
    )


def _tres(text: str) -> dict[str, float]:
    """`cpu=4,mem=8G,gres/gpu=2`; sizes in bytes, times in seconds."""
    found = {}
    for word in text.split(","):
        key, equals, value = word.partition("=")
        if equals:
            found[key] = _duration(value) if ":" in value else _size(value)
    return found


def _size(text: str) -> float:
    found = re.fullmatch(r"([\d.]+)([KMGTP]?)[nc]?", text.strip())
    if not found:
        return 0.0
    return float(found[1]) * float(1024 ** " KMGTP".index(found[2] or " "))


def _duration(text: str) -> float:
    """`1-02:03:04`, `02:03.456`."""
    days, _, rest = text.rpartition("-")
    seconds = 0.0
    for word in rest.split(":"):
        seconds = seconds * 60 + (float(word) if re.fullmatch(r"[\d.]+", word) else 0.0)
    return seconds + 86400 * _number(days)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
