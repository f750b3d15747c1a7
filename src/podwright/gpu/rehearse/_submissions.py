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
from podwright.gpu.lint import read_script, script_options
from podwright.gpu.requests import (
    Given,
    other_parts,
    parse_options,
    read_request,
    twin_submission,
)
from podwright.slurm.reader import accounting_command, read_accounting
from podwright.slurm.twin import Submission

_SACCT_COLUMNS = ("raw_job", "folder", "submit_line")
#: The command whose output `from_sacct` reads.
LIST_JOBS = (*accounting_command(*_SACCT_COLUMNS), "--allocations", "--allusers")
_MAX_SCRIPT_BYTES = 4 << 20  # bytes, as slurmctld's max_script_size
_SUBMIT_COMMANDS = ("sbatch", "salloc", "srun")


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

    def add(self, job: str, command: str, options: list[Given]) -> None:
        """Add a job with these options. Raises InvalidRequest for values that Slurm cannot read."""
        submission, unjudged_options = twin_submission(read_request(options, command))
        self.jobs.setdefault(submission, []).append(job)
        for name, because in unjudged_options:
            if because:  # else it does not decide what the job gets
                self.left_out.setdefault(name, []).append(job)

    def skip(self, job: str, reason: str) -> None:
        """Record a job that is not rehearsed."""
        self.skipped.setdefault(reason, []).append(job)


def from_sacct(
    sacct_output: str, script_reader: Callable[[Path], str] | None = None
) -> Submissions:
    """The jobs that LIST_JOBS printed. script_reader: gives a script's text and raises OSError
    where there is none; without it, the file is read.
    """
    submissions = Submissions()
    for job_row in read_accounting(sacct_output, *_SACCT_COLUMNS):
        job, work_folder = job_row["raw_job"], Path(job_row["folder"])
        if not job.isdecimal():
            continue  # a further line of a submit line that has line breaks
        try:
            _add_submit_line(
                submissions,
                job,
                work_folder,
                _submit_line_words(job_row["submit_line"]),
                script_reader or _read_file,
            )
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
        script_name = str(path.relative_to(folder))
        try:
            script_text = _read_file(path)
            if "#SBATCH" in script_text:
                submissions.add(script_name, "sbatch", script_options(read_script(script_text)))
        except OSError:
            submissions.skip(script_name, "its script cannot be read")
        except InvalidRequest as error:
            submissions.skip(script_name, f"its options cannot be read: {error.problem}")
    return submissions


def recent(days: int) -> Submissions:
    """Return the submissions of so many days, from Slurm's accounting. Raises Unavailable."""
    command = [*LIST_JOBS, "-S", f"now-{days}days"]
    failure = "sacct gave no answer within two minutes"
    try:
        sacct_result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=120, check=False
        )
        if sacct_result.returncode == 0:
            return from_sacct(sacct_result.stdout)
        failure = f"sacct failed: {sacct_result.stderr.strip()[-300:]}"
    except OSError as error:
        failure = f"sacct cannot be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        pass
    raise Unavailable(
        f"the submissions are not known: {failure}",
        would_work="Name a folder of job scripts with --scripts, or fewer days with --days",
    )


def _submit_line_words(submit_line: str) -> list[str]:
    """Return the words of a SubmitLine, in which the words' quotes are lost."""
    try:
        return shlex.split(submit_line)
    except ValueError:
        return submit_line.split()


def _add_submit_line(
    submissions: Submissions,
    job: str,
    work_folder: Path,
    arguments: list[str],
    script_reader: Callable[[Path], str],
) -> None:
    command = arguments[0].rpartition("/")[2] if arguments else ""
    if command not in _SUBMIT_COMMANDS:
        submissions.skip(job, "its submit line is not recorded")
        return
    options, operands = parse_options(arguments[1:], command, of_plugins=True)
    options += other_parts(operands)
    if any(option.name == "het-group" for option in options) or ":" in operands:
        submissions.skip(job, "it is a heterogeneous job")
        return
    has_wrap = any(option.name == "wrap" for option in options)
    if command == "sbatch" and not has_wrap:
        if not operands:
            submissions.skip(job, "its script came from standard input and is not recorded")
            return
        try:
            script_text = script_reader(work_folder / operands[0])
        except OSError:
            submissions.skip(job, "its script cannot be read")
            return
        option_names = {option.name for option in options}
        options = [
            option
            for option in script_options(read_script(script_text))
            if option.name not in option_names
        ] + options
    submissions.add(job, command, options)


def _read_file(path: Path) -> str:
    """A regular file's text, without waiting for a pipe. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        return file.read(_MAX_SCRIPT_BYTES).decode(errors="replace")


def limited(submissions: Submissions, max_count: int) -> Iterable[tuple[Submission, list[str]]]:
    """Return at most this many submissions, those with the most jobs."""
    by_job_count = sorted(submissions.jobs.items(), key=lambda job_group: -len(job_group[1]))
    return by_job_count[:max_count]
