"""Reads what Slurm's accounting knows of jobs: the output of sacct, as values.

JobAcctGather adds the use of cores and memory. `AccountingStorageTRES=gres/gpuutil,gres/gpumem` and
a slurmd that was built with NVML add the highest use of each GPU; Slurm keeps no mean.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from podwright.errors import InvalidRequest, Unavailable
from podwright.slurm.reader import accounting_command, read_accounting

#: Runs a Slurm command and returns its output; None where it failed.
Ask = Callable[[Sequence[str]], str | None]

#: The columns that are asked for.
_COLUMNS = (
    *("job", "name", "user", "partition", "state", "submitted", "start", "end", "seconds"),
    *("limit_minutes", "granted", "nodes", "node_list", "cpu_time", "peak_memory", "used"),
    *("most_used", "tasks", "comment", "folder", "raw_job"),
)


class AccountedJob(NamedTuple):
    """One job in Slurm's accounting.

    submit, start, end: seconds since 1970, 0 where it has not happened yet. seconds: the time that
    it ran. limit: seconds, 0 for none. cpus, memory, gpus: what it was granted. cpu_seconds,
    used_memory: what it used; None where nothing was gathered. gpu_peak: per cent, the highest of
    any task; gpu_memory: likewise in bytes. All memory is in bytes. raw: the job's number, which
    differs from `id` for a task of an array.
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
        """Seconds between its submission and its start; 0 where it has not started."""
        return max(self.start - self.submit, 0) if self.start else 0

    @property
    def gpu_hours(self) -> float:
        """GPUs times hours."""
        return self.gpus * self.seconds / 3600


def asker(environ: Mapping[str, str], seconds: float | None = None) -> Ask:
    """Return a function that runs Slurm's commands with a time limit. Times are seconds since
    1970.
    """
    environ = {**environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}

    def ask(words: Sequence[str]) -> str | None:
        try:
            done = subprocess.run(
                words, env=environ, capture_output=True, text=True, check=False, timeout=seconds
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None

    return ask


def sacct(ask: Ask, options: Sequence[str]) -> list[AccountedJob]:
    """The jobs that match the options, each with the use of its steps. Raises Unavailable."""
    output = ask([*accounting_command(*_COLUMNS), *options])
    if output is None:
        raise Unavailable(
            "sacct does not answer",
            operation="read Slurm's accounting",
            would_work="sacct needs AccountingStorageType=accounting_storage/slurmdbd in "
            "slurm.conf, and a slurmdbd that runs; without it, a job that was sampled is reported "
            "in the folder of its slurm-JOB.gpus, or with --samples FOLDER",
        )
    return read_jobs(output)


def one_job(ask: Ask, job: str) -> AccountedJob:
    """One job by its number. Raises InvalidRequest and Unavailable."""
    if not re.fullmatch(r"\d+(_\d+)?(\+\d+)?", job):
        raise InvalidRequest(f"{job!r} is not a job number", would_work="4711, or 4711_3")
    jobs = [entry for entry in sacct(ask, [f"--jobs={job}"]) if entry.id == job]
    if not jobs:
        raise InvalidRequest(
            f"Slurm's accounting has no job {job}", would_work="sacct lists those that it has"
        )
    return jobs[-1]


def read_jobs(text: str) -> list[AccountedJob]:
    """Read jobs from the output of sacct, which prints one line for each job and the lines of its
    steps below."""
    jobs: list[AccountedJob] = []
    for words in read_accounting(text, *_COLUMNS):
        if "." not in words["job"]:
            jobs.append(_job(words))
        elif jobs and words["job"].startswith(jobs[-1].id + "."):
            jobs[-1] = _with_step(jobs[-1], words)
    return jobs


def _job(words: dict[str, str]) -> AccountedJob:
    granted = _tres(words["granted"])
    gpus = granted.get(
        "gres/gpu", sum(n for key, n in granted.items() if key.startswith("gres/gpu:"))
    )
    return AccountedJob(
        id=words["job"],
        name=words["name"],
        user=words["user"],
        partition=words["partition"],
        state=words["state"].partition(" ")[0],
        submit=_number(words["submitted"]),
        start=_number(words["start"]),
        end=_number(words["end"]),
        seconds=_number(words["seconds"]),
        limit=_number(words["limit_minutes"]) * 60,
        nodes=_number(words["nodes"]),
        node_list=words["node_list"],
        cpus=int(granted.get("cpu", 0)),
        memory=int(granted.get("mem", 0)),
        gpus=int(gpus),
        comment=words["comment"],
        folder=words["folder"],
        raw=words["raw_job"] or words["job"],
    )


def _with_step(job: AccountedJob, words: dict[str, str]) -> AccountedJob:
    """Add a step to a job: times are summed; the largest memory counts, since most steps run in
    turn.
    """
    total, peak = _tres(words["used"]), _tres(words["most_used"])
    cpu = _duration(words["cpu_time"])
    memory = int(total.get("mem", 0) or _size(words["peak_memory"]))

    def larger(old: int | None, new: float | None) -> int | None:
        return old if new is None else max(old or 0, int(new))

    known = bool(total)
    return job._replace(
        cpu_seconds=(job.cpu_seconds or 0.0) + cpu if known else job.cpu_seconds,
        used_memory=larger(job.used_memory, memory) if known else job.used_memory,
        gpu_peak=larger(job.gpu_peak, peak.get("gres/gpuutil")),
        gpu_memory=larger(job.gpu_memory, peak.get("gres/gpumem")),
        tasks=max(job.tasks, _number(words["tasks"])),
    )


def _tres(text: str) -> dict[str, float]:
    """Read `cpu=4,mem=8G,gres/gpu=2`; sizes in bytes, times in seconds."""
    amounts = {}
    for word in text.split(","):
        key, equals, value = word.partition("=")
        if equals:
            amounts[key] = _duration(value) if ":" in value else _size(value)
    return amounts


def _size(text: str) -> float:
    match = re.fullmatch(r"([\d.]+)([KMGTP]?)[nc]?", text.strip())
    if not match:
        return 0.0
    return float(match[1]) * float(1024 ** " KMGTP".index(match[2] or " "))


def _duration(text: str) -> float:
    """Read `1-02:03:04`, `02:03.456`. Returns seconds."""
    days, _, rest = text.rpartition("-")
    seconds = 0.0
    for word in rest.split(":"):
        seconds = seconds * 60 + (float(word) if re.fullmatch(r"[\d.]+", word) else 0.0)
    return seconds + 86400 * _number(days)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
