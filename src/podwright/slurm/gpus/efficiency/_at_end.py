"""Summaries of jobs that have ended, written into AdminComment or at the end of their output.

A node's Epilog notes a job's number as a file in a folder and starts this. One of those works at a
time, for all the numbers that it finds: it waits until Slurm's accounting has the job's end, which
takes some seconds. What it reads and writes of a user's it does as that user.
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
from podwright.slurm.gpus.efficiency._accounts import AccountedJob, Ask, sacct

#: What our comments begin with; others are nobody's to change.
MARK = "podwright: "
_PATIENCE = 600.0  # seconds for the accounting to have a job's end
_AT_ONCE = 100  # jobs of one question
_LONGEST = 400  # letters of a summary

#: The summary of a job, made with its user's rights; empty where there is none.
Summarise = Callable[[AccountedJob], str]
#: Adds a line to the end of a file with a user's rights: user, path, line.
Append = Callable[[str, str, str], None]


class Destinations(NamedTuple):
    """Where summaries go."""

    comment: bool
    output: bool


def keep(ask: Ask, job: AccountedJob, text: str) -> None:
    """Write a summary into a job's AdminComment. Raises Unavailable."""
    if job.comment and not job.comment.startswith(MARK):
        raise Unavailable(
            f"job {job.id} has another comment: {job.comment[:80]}",
            asked="write the summary into AdminComment",
            would_work="--line prints it",
        )
    said = f"AdminComment={MARK}{text}"
    words = ["where", f"jobid={job.raw}", "set", said]
    running = ["scontrol", "update", f"JobId={job.raw}", said]
    if ask(running) is None and ask(["sacctmgr", "-i", "modify", "job", *words]) is None:
        raise Unavailable(
            "neither scontrol nor sacctmgr wrote it",
            asked="write the summary into AdminComment",
            would_work="run it as root, SlurmUser or an operator",
        )


def work(
    folder: Path,
    ask: Ask,
    places: Destinations,
    summarise: Summarise,
    append: Append,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.time,
) -> list[str]:
    """Summarise the jobs noted in a folder, until none is left. Returns what did not work. Another
    one that works already will do it: then there is nothing to do. Raises OSError."""
    wrong: list[str] = []
    # Who came while another was about to end looks once more, and finds the folder free.
    while _noted(folder):
        with _alone(folder) as mine:
            if not mine:
                return wrong
            wait = 1.0
            while noted := _noted(folder):
                done = _round(noted, ask, places, summarise, append, now(), wrong)
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
    now: float,
    wrong: list[str],
) -> int:
    """One look at all of them. Returns how many are done with."""
    jobs: dict[str, AccountedJob] = {}
    for at in range(0, len(noted), _AT_ONCE):
        numbers = ",".join(path.name for path in noted[at : at + _AT_ONCE])
        try:
            jobs |= {job.raw: job for job in sacct(ask, [f"--jobs={numbers}"])}
        except Unavailable:
            continue
    done = 0
    for path in noted:
        job = jobs.get(path.name)
        again = job is not None and job.state in ("PENDING", "REQUEUED")  # it will end once more
        if job is not None and job.end and not again:
            try:
                _write(job, ask, places, summarise, append)
            except (Unavailable, OSError, subprocess.SubprocessError) as error:
                wrong.append(f"job {path.name}: {error}")
        elif not again and _age(path, now) < _PATIENCE:
            continue
        elif not again:
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
    said = summarise(job).strip()
    text = "".join(letter for letter in said if letter.isprintable())[:_LONGEST]
    if not text:
        return
    if places.output and (path := _output(ask, job)):
        append(job.user, path, f"{MARK}{text}\n")
    if places.comment:
        keep(ask, job, text)


def _output(ask: Ask, job: AccountedJob) -> str:
    """The file of a job's standard output; empty where slurmctld does not know it any more."""
    said = ask(["scontrol", "show", "job", job.raw]) or ""
    for line in said.splitlines():
        key, _, value = line.strip().partition("=")
        if key == "StdOut":
            return value if value.startswith("/") else ""
    return ""


def as_user(user: str, words: Sequence[str], text: str, seconds: float) -> str:
    """What a command printed that ran with a user's rights, if we may. Raises OSError, and
    subprocess.SubprocessError."""
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
    """Add a line to a file that is there, and a plain one. Raises as `as_user`."""
    as_user(user, ["sh", "-c", '[ ! -f "$1" ] || exec cat >>"$1"', "-", path], line, 30.0)
