"""Reads what Slurm's accounting knows of jobs: the output of sacct, as values.

JobAcctGather adds the use of cores and memory. `AccountingStorageTRES=gres/gpuutil,gres/gpumem` and
a slurmd that was built with NVML add the use of GPUs. Slurm keeps the highest figure of any task,
which is the sum over that task's GPUs, and no mean. A figure of 0 also stands for GPUs that slurmd
could not measure (slices, foreign processes), so 0 is not known.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from podwright.errors import InvalidRequest, Unavailable
from podwright.slurm.reader import accounting_command, read_accounting
from podwright.slurm.site.time_and_memory import memory_bytes, time_seconds

#: Runs a Slurm command and returns its output; None where it failed.
Ask = Callable[[Sequence[str]], str | None]

#: The columns that are asked for.
_ACCOUNT_COLUMNS = (
    *("job", "name", "user", "partition", "state", "submitted", "start", "end", "seconds"),
    *("limit_minutes", "granted", "nodes", "node_list", "cpu_time", "peak_memory", "used"),
    *("most_used", "tasks", "folder", "raw_job"),
)
#: NO_VAL64 and INFINITE64, by which Slurm says that there is no number, are these as floats.
_NO_NUMBER = 2.0**64


class AccountedJob(NamedTuple):
    """One job in Slurm's accounting.

    submit, start, end: seconds since 1970, 0 where it has not happened yet. seconds: the time that
    it ran. limit: seconds, 0 for none. cpus, memory, gpus: what it was granted. cpu_seconds,
    used_memory: what it used; None where nothing was gathered. gpu_peak: per cent, the highest of
    any task, summed over the task's GPUs; gpu_memory: likewise in bytes; None: not known. All
    memory is in bytes. raw: the job's number, which differs from `id` for a task of an array.
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
    folder: str = ""
    raw: str = ""

    @property
    def waited(self) -> int:
        """Seconds between its submission and its start; 0 where it has not started."""
        return max(self.start - self.submit, 0) if self.start else 0


def asker(environ: Mapping[str, str]) -> Ask:
    """Return a function that runs Slurm's commands. Times are seconds since 1970."""
    environ = {**environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}

    def ask(words: Sequence[str]) -> str | None:
        try:
            process = subprocess.run(
                words, env=environ, capture_output=True, text=True, check=False
            )
        except OSError:
            return None
        return process.stdout if process.returncode == 0 else None

    return ask


def one_job(run_slurm: Ask, job_id: str) -> AccountedJob:
    """One job by its number, with the use of its steps. Raises InvalidRequest and Unavailable."""
    if not re.fullmatch(r"\d+(_\d+)?(\+\d+)?", job_id):
        raise InvalidRequest(f"{job_id!r} is not a job number", would_work="4711, or 4711_3")
    sacct_output = run_slurm([*accounting_command(*_ACCOUNT_COLUMNS), f"--jobs={job_id}"])
    if sacct_output is None:
        raise Unavailable(
            "sacct does not answer",
            operation="read Slurm's accounting",
            would_work="sacct needs AccountingStorageType=accounting_storage/slurmdbd in "
            "slurm.conf, and a slurmdbd that runs; without it, a job that was sampled is reported "
            "in the folder of its slurm-JOB.gpus, or with --samples FOLDER",
        )
    matching_jobs = [job for job in read_jobs(sacct_output) if job.id == job_id]
    if not matching_jobs:
        raise InvalidRequest(
            f"Slurm's accounting has no job {job_id}", would_work="sacct lists those that it has"
        )
    return matching_jobs[-1]


def read_jobs(sacct_output: str) -> list[AccountedJob]:
    """Read jobs from the output of sacct, which prints one line for each job and the lines of its
    steps below."""
    jobs: list[AccountedJob] = []
    for columns in read_accounting(sacct_output, *_ACCOUNT_COLUMNS):
        if "." not in columns["job"]:
            jobs.append(_read_job(columns))
        elif jobs and columns["job"].startswith(jobs[-1].id + "."):
            jobs[-1] = _add_step(jobs[-1], columns)
    return jobs


def _read_job(columns: dict[str, str]) -> AccountedJob:
    granted_tres = _read_tres(columns["granted"])
    gpu_count = granted_tres.get(
        "gres/gpu",
        sum(
            amount for resource, amount in granted_tres.items() if resource.startswith("gres/gpu:")
        ),
    )
    return AccountedJob(
        id=columns["job"],
        name=columns["name"],
        user=columns["user"],
        partition=columns["partition"],
        state=columns["state"].partition(" ")[0],
        submit=_whole_number(columns["submitted"]),
        start=_whole_number(columns["start"]),
        end=_whole_number(columns["end"]),
        seconds=_whole_number(columns["seconds"]),
        limit=_whole_number(columns["limit_minutes"]) * 60,
        nodes=_whole_number(columns["nodes"]),
        node_list=columns["node_list"],
        cpus=int(granted_tres.get("cpu", 0)),
        memory=int(granted_tres.get("mem", 0)),
        gpus=int(gpu_count),
        folder=columns["folder"],
        raw=columns["raw_job"] or columns["job"],
    )


def _add_step(job: AccountedJob, columns: dict[str, str]) -> AccountedJob:
    """Add a step to a job: times are summed; the largest memory counts, since most steps run in
    turn.
    """
    used_tres, peak_tres = _read_tres(columns["used"]), _read_tres(columns["most_used"])
    cpu_seconds = _amount(columns["cpu_time"])
    memory_bytes = used_tres.get("mem") or _amount(columns["peak_memory"])

    def larger(old: int | None, new: float | None) -> int | None:
        """The larger one. 0 is no figure: Slurm has it where it could not measure, too."""
        return max(old or 0, int(new)) if new else old

    has_usage = bool(used_tres)
    return job._replace(
        cpu_seconds=(job.cpu_seconds or 0.0) + cpu_seconds if has_usage else job.cpu_seconds,
        used_memory=larger(job.used_memory, memory_bytes) if has_usage else job.used_memory,
        gpu_peak=larger(job.gpu_peak, peak_tres.get("gres/gpuutil")),
        gpu_memory=larger(job.gpu_memory, peak_tres.get("gres/gpumem")),
        tasks=max(job.tasks, _whole_number(columns["tasks"])),
    )


def _read_tres(tres_text: str) -> dict[str, float]:
    """Read `cpu=4,mem=8G,gres/gpu=2`; sizes in bytes, times in seconds.

    What Slurm has no number for is left out.
    """
    amounts = {}
    for assignment in tres_text.split(","):
        resource, equals, amount_text = assignment.partition("=")
        amount = _amount(amount_text)
        if equals and amount < _NO_NUMBER:
            amounts[resource] = amount
    return amounts


def _amount(amount_text: str) -> float:
    try:
        return (
            time_seconds(amount_text) if ":" in amount_text else float(memory_bytes(amount_text, 1))
        )
    except ValueError:
        return 0.0


def _whole_number(digits: str) -> int:
    return int(digits) if digits.isdigit() else 0
