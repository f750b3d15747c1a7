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
from podwright.gpu.efficiency._accounts import AccountedJob, Ask, sacct
from podwright.slurm.reader import read_jobs

#: The prefix of our comments. A comment without it belongs to somebody else and is never changed.
MARK = "podwright: "
_PATIENCE = 600.0  # seconds for the accounting to have a job's end
_AT_ONCE = 100  # jobs of one question
_LONGEST = 400  # letters of a summary

#: Returns the summary of a job, made with its user's rights; empty if there is none.
Summarise = Callable[[AccountedJob], str]
#: Appends a line to a file with a user's rights: user, path, line.
Append = Callable[[str, str, str], None]


class Destinations(NamedTuple):
    """Where summaries are written."""

    comment: bool
    output: bool


def keep(ask: Ask, job: AccountedJob, text: str) -> None:
    """Write a summary into a job's AdminComment. Raises Unavailable."""
    if job.comment and not job.comment.startswith(MARK):
        raise Unavailable(
            f"job {job.id} has another comment: {job.comment[:80]}",
            operation="write the summary into AdminComment",
            would_work="--line prints it",
        )
    comment = f"AdminComment={MARK}{text}"
    words = ["where", f"jobid={job.raw}", "set", comment]
    running = ["scontrol", "update", f"JobId={job.raw}", comment]
    if ask(running) is None and ask(["sacctmgr", "-i", "modify", "job", *words]) is None:
        raise Unavailable(
            "neither scontrol nor sacctmgr wrote it",
            operation="write the summary into AdminComment",
            would_work="run it as root, SlurmUser or an operator",
        )


def work(
    folder: Path,
    ask: Ask,
    places: Destinations,
    summarise: Summarise,
    append: Append,
    *,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.time,
) -> list[str]:
    """Summarise the jobs noted in a folder, until none is left. Returns a list of problems.

    Returns at once where another instance is at work, because that one handles all jobs. Raises
    OSError.
    """
    wrong: list[str] = []
    # A job may be noted while another instance is about to end. The outer loop then looks again.
    while _noted(folder):
        with _alone(folder) as acquired:
            if not acquired:
                return wrong
            wait = 1.0
            while noted := _noted(folder):
                done = _round(noted, ask, places, summarise, append, now=now(), wrong=wrong)
                wait = 1.0 if done else min(2 * wait, 30.0)
                if _noted(folder):
                    sleep(wait)
    return wrong


def _noted(folder: Path) -> list[Path]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.isdigit())
    except FileNotFoundError:
        return []
    return [folder / name for name in names]


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _round(
    noted: Sequence[Path],
    ask: Ask,
    places: Destinations,
    summarise: Summarise,
    append: Append,
    *,
    now: float,
    wrong: list[str],
) -> int:
    """Handle all noted jobs once. Returns the number of finished ones."""
    jobs: dict[str, AccountedJob] = {}
    for start in range(0, len(noted), _AT_ONCE):
        numbers = ",".join(path.name for path in noted[start : start + _AT_ONCE])
        try:
            jobs |= {job.raw: job for job in sacct(ask, [f"--jobs={numbers}"])}
        except Unavailable:
            continue
    done = 0
    for path in noted:
        job = jobs.get(path.name)
        will_rerun = job is not None and job.state in (
            "PENDING",
            "REQUEUED",
        )  # the job will end once more
        if job is not None and job.end and not will_rerun:
            try:
                _write(job, ask, places, summarise, append)
            except (Unavailable, OSError, subprocess.SubprocessError) as error:
                wrong.append(f"job {path.name}: {error}")
        elif not will_rerun and _age(path, now) < _PATIENCE:
            continue
        elif not will_rerun:
            wrong.append(f"job {path.name}: sacct does not tell of its end")
        path.unlink(missing_ok=True)
        done += 1
    return done


def _age(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return _PATIENCE


def _write(
    job: AccountedJob, ask: Ask, places: Destinations, summarise: Summarise, append: Append
) -> None:
    summary = summarise(job).strip()
    text = "".join(letter for letter in summary if letter.isprintable())[:_LONGEST]
    if not text:
        return
    if places.output and (path := _output(ask, job)):
        append(job.user, path, f"{MARK}{text}\n")
    if places.comment:
        keep(ask, job, text)


def _output(ask: Ask, job: AccountedJob) -> str:
    """Return the file of a job's standard output; empty if slurmctld has forgotten it."""
    output = ask(["scontrol", "--oneliner", "show", "job", job.raw]) or ""
    path = next((entry.output for entry in read_jobs(output)), "")
    return path if path.startswith("/") else ""


def as_user(user: str, words: Sequence[str], text: str, seconds: float) -> str:
    """Run a command with a user's rights and return its output. Without root it runs with our own
    rights. Raises OSError and subprocess.SubprocessError."""
    rights: Any = _rights(user)
    done = subprocess.run(
        words,
        input=text,
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
        timeout=seconds,
        cwd="/",
        start_new_session=True,
        **rights,
    )
    return str(done.stdout)


def _rights(user: str) -> dict[str, object]:
    if os.getuid():
        return {}
    import pwd

    try:
        known = pwd.getpwnam(user)
    except KeyError:
        raise OSError(f"there is no user {user} here") from None
    groups = os.getgrouplist(user, known.pw_gid)
    return {"user": known.pw_uid, "group": known.pw_gid, "extra_groups": groups}


def append_as_user(user: str, path: str, line: str) -> None:
    """Append a line to an existing regular file with a user's rights. Raises like `as_user`."""
    as_user(user, ["sh", "-c", '[ ! -f "$1" ] || exec cat >>"$1"', "-", path], line, 30.0)
