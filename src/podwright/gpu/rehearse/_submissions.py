"""Reads the submissions of the last days, from sacct or from a folder of job scripts.

Only options reach a twin. Only the `#SBATCH` lines of a script are read, and nothing else is kept.
Submissions with the same options are merged, together with their jobs.
"""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from podwright.errors import InvalidRequest, Unavailable
from podwright.gpu.lint import read_script
from podwright.gpu.requests import (
    Given,
    other_parts,
    parse_options,
    read_request,
    twin_submission,
)
from podwright.slurm.reader import accounting_command, read_accounting
from podwright.slurm.twin import Submission

_COLUMNS = ("raw_job", "folder", "submit_line")
#: The command whose output `from_sacct` reads.
LIST_JOBS = (*accounting_command(*_COLUMNS), "--allocations", "--allusers")
_SCRIPT_LIMIT = 4 << 20  # bytes, as slurmctld's max_script_size
_COMMANDS = ("sbatch", "salloc", "srun")


@dataclass
class Submissions:
    """jobs: by submission, in the order in which they were read. skipped: jobs that are not
    rehearsed, by reason. left_out: jobs by the option that a twin cannot judge."""

    jobs: dict[Submission, list[str]] = field(default_factory=dict)
    skipped: dict[str, list[str]] = field(default_factory=dict)
    left_out: dict[str, list[str]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of jobs that are rehearsed."""
        return sum(map(len, self.jobs.values()))

    def add(self, job: str, command: str, given: list[Given]) -> None:
        """Add a job with these options. Raises InvalidRequest for values that Slurm cannot read."""
        submission, left_out = twin_submission(read_request(given, command))
        self.jobs.setdefault(submission, []).append(job)
        for name in dict.fromkeys(left_out):
            self.left_out.setdefault(name, []).append(job)

    def skip(self, job: str, reason: str) -> None:
        """Record a job that is not rehearsed."""
        self.skipped.setdefault(reason, []).append(job)


def from_sacct(text: str, read: Callable[[Path], str] | None = None) -> Submissions:
    """The jobs that LIST_JOBS printed. read: gives a script's text and raises OSError where there
    is none; without it, the file is read."""
    submissions = Submissions()
    for row in read_accounting(text, *_COLUMNS):
        job, folder = row["raw_job"], Path(row["folder"])
        if not job.isdecimal():
            continue  # a further line of a submit line that has line breaks
        try:
            _add_line(submissions, job, folder, _split(row["submit_line"]), read or _read_file)
        except InvalidRequest as error:
            submissions.skip(job, f"its options cannot be read: {error.problem}")
    return submissions


def from_scripts(folder: Path) -> Submissions:
    """The job scripts of a folder, which are its files with `#SBATCH` lines. Raises InvalidRequest
    where the folder does not exist."""
    if not folder.is_dir():
        raise InvalidRequest(f"{folder} is not a folder", would_work="Name a folder of job scripts")
    submissions = Submissions()
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        name = str(path.relative_to(folder))
        try:
            text = _read_file(path)
            if "#SBATCH" in text:
                submissions.add(name, "sbatch", _directives(text))
        except OSError:
            submissions.skip(name, "its script cannot be read")
        except InvalidRequest as error:
            submissions.skip(name, f"its options cannot be read: {error.problem}")
    return submissions


def recent(days: int) -> Submissions:
    """Return the submissions of so many days, from Slurm's accounting. Raises Unavailable."""
    words = [*LIST_JOBS, "-S", f"now-{days}days"]
    reason = "sacct gave no answer within two minutes"
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=120, check=False
        )
        if done.returncode == 0:
            return from_sacct(done.stdout)
        reason = f"sacct failed: {done.stderr.strip()[-300:]}"
    except OSError as error:
        reason = f"sacct cannot be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        pass
    raise Unavailable(
        f"the submissions are not known: {reason}",
        would_work="Name a folder of job scripts with --scripts, or fewer days with --days",
    )


def _split(line: str) -> list[str]:
    """Return the words of a SubmitLine, in which the words' quotes are lost."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _add_line(
    submissions: Submissions, job: str, folder: Path, words: list[str], read: Callable[[Path], str]
) -> None:
    command = words[0].rpartition("/")[2] if words else ""
    if command not in _COMMANDS:
        submissions.skip(job, "its submit line is not recorded")
        return
    given, rest = parse_options(words[1:], command)
    given += other_parts(rest)
    if any(option.name == "het-group" for option in given) or ":" in rest:
        submissions.skip(job, "it is a heterogeneous job")
        return
    wrapped = any(option.name == "wrap" for option in given)
    if command == "sbatch" and not wrapped:
        if not rest:
            submissions.skip(job, "its script came from standard input and is not recorded")
            return
        try:
            text = read(folder / rest[0])
        except OSError:
            submissions.skip(job, "its script cannot be read")
            return
        names = {option.name for option in given}
        given = [option for option in _directives(text) if option.name not in names] + given
    submissions.add(job, command, given)


def _directives(text: str) -> list[Given]:
    script = read_script(text)
    for problem in (*script.problems, *script.unknown):
        raise InvalidRequest(problem.reason)
    if script.parts > 1:
        raise InvalidRequest("a heterogeneous job is not rehearsed")
    return [given for _, given in script.directives]


def _read_file(path: Path) -> str:
    """A regular file's text, without waiting for a pipe. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is not a regular file")
        return file.read(_SCRIPT_LIMIT).decode(errors="replace")


def limited(submissions: Submissions, most: int) -> Iterable[tuple[Submission, list[str]]]:
    """Return at most this many submissions, those with the most jobs."""
    ordered = sorted(submissions.jobs.items(), key=lambda row: -len(row[1]))
    return ordered[:most]
