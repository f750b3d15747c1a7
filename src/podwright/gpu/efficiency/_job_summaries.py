"""Writes summaries of jobs that have ended, into AdminComment or at the end of their output.

A node's Epilog creates a file named after the job in a folder, and starts this program. Only one
instance works at a time, and it handles all jobs in the folder: it waits some seconds until Slurm's
accounting has the end of a job. It reads and writes a user's files with that user's rights.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from podwright.errors import Unavailable
from podwright.gpu.efficiency._sacct_jobs import AccountedJob, Ask, sacct
from podwright.slurm.reader import read_jobs

#: The prefix of our comments. A comment without it belongs to somebody else and is never changed.
SUMMARY_PREFIX = "podwright: "
_ACCOUNTING_WAIT_S = 600.0  # seconds for the accounting to have a job's end
_MAX_JOBS_PER_QUERY = 100  # jobs of one question
_MAX_SUMMARY_CHARS = 400  # letters of a summary

#: Returns the summary of a job, made with its user's rights; empty if there is none.
Summarise = Callable[[AccountedJob], str]
#: Appends a line to a file with a user's rights: user, path, line.
Append = Callable[[str, str, str], None]


class Destinations(NamedTuple):
    """Where summaries are written."""

    comment: bool
    output: bool


def keep(run_slurm: Ask, job: AccountedJob, summary: str) -> None:
    """Write a summary into a job's AdminComment. Raises Unavailable."""
    if job.comment and not job.comment.startswith(SUMMARY_PREFIX):
        raise Unavailable(
            f"job {job.id} has another comment: {job.comment[:80]}",
            operation="write the summary into AdminComment",
            would_work="--line prints it",
        )
    comment_setting = f"AdminComment={SUMMARY_PREFIX}{summary}"
    sacctmgr_arguments = ["where", f"jobid={job.raw}", "set", comment_setting]
    scontrol_command = ["scontrol", "update", f"JobId={job.raw}", comment_setting]
    if (
        run_slurm(scontrol_command) is None
        and run_slurm(["sacctmgr", "-i", "modify", "job", *sacctmgr_arguments]) is None
    ):
        raise Unavailable(
            "neither scontrol nor sacctmgr wrote it",
            operation="write the summary into AdminComment",
            would_work="run it as root, SlurmUser or an operator",
        )


def work(
    noted_folder: Path,
    run_slurm: Ask,
    destinations: Destinations,
    summarise: Summarise,
    append_line: Append,
    *,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.time,
) -> list[str]:
    """Summarise the jobs noted in a folder, until none is left. Returns a list of problems.

    Returns at once where another instance is at work, because that one handles all jobs. Raises
    OSError.
    """
    problems: list[str] = []
    # A job may be noted while another instance is about to end. The outer loop then looks again.
    while _noted_job_files(noted_folder):
        with _lock_folder(noted_folder) as lock_acquired:
            if not lock_acquired:
                return problems
            pause_seconds = 1.0
            while noted_paths := _noted_job_files(noted_folder):
                finished_count = _summarise_noted(
                    noted_paths,
                    run_slurm,
                    destinations,
                    summarise,
                    append_line,
                    now=now(),
                    wrong=problems,
                )
                pause_seconds = 1.0 if finished_count else min(2 * pause_seconds, 30.0)
                if _noted_job_files(noted_folder):
                    sleep(pause_seconds)
    return problems


def _noted_job_files(noted_folder: Path) -> list[Path]:
    try:
        job_ids = sorted(file_name for file_name in os.listdir(noted_folder) if file_name.isdigit())
    except FileNotFoundError:
        return []
    return [noted_folder / file_name for file_name in job_ids]


@contextmanager
def _lock_folder(noted_folder: Path) -> Iterator[bool]:
    with (noted_folder / "lock").open("w") as lock_file:
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _summarise_noted(
    noted_paths: Sequence[Path],
    run_slurm: Ask,
    destinations: Destinations,
    summarise: Summarise,
    append_line: Append,
    *,
    now: float,
    wrong: list[str],
) -> int:
    """Handle all noted jobs once. Returns the number of finished ones."""
    jobs: dict[str, AccountedJob] = {}
    for batch_start in range(0, len(noted_paths), _MAX_JOBS_PER_QUERY):
        job_ids = ",".join(
            noted_path.name
            for noted_path in noted_paths[batch_start : batch_start + _MAX_JOBS_PER_QUERY]
        )
        try:
            jobs |= {job.raw: job for job in sacct(run_slurm, [f"--jobs={job_ids}"])}
        except Unavailable:
            continue
    finished_count = 0
    for noted_path in noted_paths:
        job = jobs.get(noted_path.name)
        will_rerun = job is not None and job.state in (
            "PENDING",
            "REQUEUED",
        )  # the job will end once more
        if job is not None and job.end and not will_rerun:
            try:
                _write_summary(job, run_slurm, destinations, summarise, append_line)
            except (Unavailable, OSError, subprocess.SubprocessError) as error:
                wrong.append(f"job {noted_path.name}: {error}")
        elif not will_rerun and _noted_age(noted_path, now) < _ACCOUNTING_WAIT_S:
            continue
        elif not will_rerun:
            wrong.append(f"job {noted_path.name}: sacct does not tell of its end")
        noted_path.unlink(missing_ok=True)
        finished_count += 1
    return finished_count


def _noted_age(noted_path: Path, now: float) -> float:
    try:
        return now - noted_path.stat().st_mtime
    except FileNotFoundError:
        return _ACCOUNTING_WAIT_S


def _write_summary(
    job: AccountedJob,
    run_slurm: Ask,
    destinations: Destinations,
    summarise: Summarise,
    append_line: Append,
) -> None:
    summary = summarise(job).strip()
    summary_text = "".join(character for character in summary if character.isprintable())[
        :_MAX_SUMMARY_CHARS
    ]
    if not summary_text:
        return
    if destinations.output and (output_path := _stdout_path(run_slurm, job)):
        append_line(job.user, output_path, f"{SUMMARY_PREFIX}{summary_text}\n")
    if destinations.comment:
        keep(run_slurm, job, summary_text)


def _stdout_path(run_slurm: Ask, job: AccountedJob) -> str:
    """Return the file of a job's standard output; empty if slurmctld has forgotten it."""
    scontrol_output = run_slurm(["scontrol", "--oneliner", "show", "job", job.raw]) or ""
    path = next((slurm_job.output for slurm_job in read_jobs(scontrol_output)), "")
    return path if path.startswith("/") else ""


def as_user(user: str, argv: Sequence[str], stdin_text: str, timeout: float) -> str:
    """Run a command with a user's rights and return its output. Without root it runs with our own
    rights. Raises OSError and subprocess.SubprocessError."""
    credentials: Any = _user_credentials(user)
    process = subprocess.run(
        argv,
        input=stdin_text,
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
        timeout=timeout,
        cwd="/",
        start_new_session=True,
        **credentials,
    )
    return str(process.stdout)


def _user_credentials(user: str) -> dict[str, object]:
    if os.getuid():
        return {}
    import pwd

    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise OSError(f"there is no user {user} here") from None
    group_ids = os.getgrouplist(user, account.pw_gid)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": group_ids}


def append_as_user(user: str, path: str, line: str) -> None:
    """Append a line to an existing regular file with a user's rights. Raises like `as_user`."""
    as_user(user, ["sh", "-c", '[ ! -f "$1" ] || exec cat >>"$1"', "-", path], line, 30.0)
