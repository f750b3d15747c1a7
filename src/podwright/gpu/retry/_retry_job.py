"""Runs the command of a job, and when it fails, asks why and requeues the job or ends.

Slurm ends a requeued job's batch step by SIGTERM, and by SIGKILL after KillWait. It takes the list
of nodes to avoid only from a job that is not running. So one scontrol requeues the job and then
gives it the list, while this process ignores SIGTERM.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from podwright.errors import FieldNotKnown, InvalidRequest
from podwright.gpu.retry._failure_records import (
    ERROR_FILE_VARIABLE,
    OWN_ERROR_FILE,
    poprun_files,
    read_poprun_lines,
)
from podwright.gpu.retry._history import JobAttempt, history_path, read_history, write_attempt
from podwright.gpu.retry._retry_decisions import (
    Again,
    JobFault,
    Stop,
    after_failure,
    at_start,
    find_cause,
)
from podwright.hosts import HostsError, expand

if TYPE_CHECKING:
    from podwright.slurm.reader import JobRecord

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_OUTPUT_BYTES = 256 << 10  # of the end of the command's output, for words about its failure
_SLURM_SECONDS = 60.0
_END_SECONDS = 600.0  # until Slurm has ended a job that it requeued
_TOLD = Stop("Slurm asked the job to end")
_NOT_STARTED, _NO_COMMAND = 75, 127  # exit codes; 127 is a shell's


def retry(command: Sequence[str], limit: int, environ: Mapping[str, str]) -> int:
    """Run the command of this job; the exit code. limit: how often the job may start again.

    Raises InvalidRequest outside a batch job.
    """
    job = _Job(environ)
    early = at_start(job.restarts, limit, job.nodes, job.bad_nodes)
    if isinstance(early, Stop):
        return job.stop(early, None, None)
    if isinstance(early, Again):
        _ignore_signals()
        return job.again(early, None, None)
    outputs = _sizes(("/proc/self/fd/1", "/proc/self/fd/2"))
    records = _sizes(poprun_files(command))
    error_file = f"{OWN_ERROR_FILE}{job.number}-{os.urandom(8).hex()}.json"
    # An older job may have written the file that its user names.
    oldest_record = time.time() // 1 if ERROR_FILE_VARIABLE in environ else 0
    environ = {ERROR_FILE_VARIABLE: error_file, **environ}
    running = _Command()
    try:
        code = running.run(command, environ)
    except OSError as error:
        job.say(f"{command[0]}: {error.strerror}")
        return _NO_COMMAND
    if code == 0:
        return 0
    if running.told:
        return job.stop(_TOLD, None, code)
    from podwright.gpu.retry._node_words import ask_nodes

    seen = ask_nodes(job.nodes, job.excluded, environ, _run, time.sleep)
    failures = [record for record in seen.failures if record.at >= oldest_record]
    failures += read_poprun_lines(_text_since(records) or "")
    cause = find_cause(code, seen.words, _text_since(outputs), failures)
    _ignore_signals()  # whether the job is to end is known from here on
    if running.told:
        return job.stop(_TOLD, None, code)
    step = after_failure(cause, job.restarts, limit, job.nodes, seen.usable_others)
    job.say(f"the command ended with {code}. Cause: {cause.name}: {cause.at_fault.because}")
    if isinstance(step, Stop):
        return job.stop(step, cause, code)
    return job.again(step, cause, code)


class _Job:
    """This batch job, as its environment describes it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        try:
            self.number = environ["SLURM_JOB_ID"]
            self.nodes = expand(environ["SLURM_JOB_NODELIST"])
            self.restarts = int(environ.get("SLURM_RESTART_COUNT", "0"))
        except (KeyError, ValueError, HostsError):
            raise InvalidRequest(
                "this is no batch job of Slurm",
                operation="podwright slurm retry",
                would_work="put it into a script for sbatch: exec podwright slurm retry -- srun …",
            ) from None
        # The number of an array requeues all of its tasks.
        array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
        self.name = f"{array}_{task}" if array and task else self.number
        self.path = history_path(self.number, environ.get("SLURM_SUBMIT_DIR", "."))
        earlier: list[JobAttempt] = []
        if self.restarts:
            with contextlib.suppress(InvalidRequest):
                earlier = read_history(self.path)
        self.bad_nodes = tuple(dict.fromkeys(node for a in earlier for node in a.bad_nodes))

    @functools.cached_property
    def shown(self) -> JobRecord | None:
        """The job as Slurm shows it after the command has failed."""
        from podwright.slurm.reader import read_jobs

        command = ["scontrol", "--oneliner", "show", "job", self.number]
        return next(iter(read_jobs(_run(command, _SLURM_SECONDS))), None)

    @property
    def excluded(self) -> tuple[str, ...]:
        """The nodes that the job's owner excluded, or an earlier attempt."""
        with contextlib.suppress(HostsError, FieldNotKnown):
            return expand(self.shown.excluded) if self.shown and self.shown.excluded else ()
        return ()

    def say(self, sentence: str) -> None:
        """Tell the user, on standard error."""
        print(f"podwright slurm retry: {sentence}.", file=sys.stderr, flush=True)

    def stop(self, step: Stop, cause: JobFault | None, code: int | None) -> int:
        """End with the command's exit code. code: None: it was not started."""
        self._record(step, cause, code)
        self.say(f"the job is not started again: {step.because}")
        with contextlib.suppress(FieldNotKnown):
            if step is not _TOLD and self.shown and self.shown.expedited:
                # Slurm would hold this job, or start it again if an Epilog fails.
                self._tell_slurm(f"update JobId={self.name} Requeue=0")
        return _NOT_STARTED if code is None else code

    def again(self, step: Again, cause: JobFault | None, code: int | None) -> int:
        """Requeue this job and wait for its end by Slurm. Returns where Slurm refuses."""
        self._record(step, cause, code)
        excluded = ",".join(dict.fromkeys((*self.excluded, *self.bad_nodes, *step.without)))
        # Without the first line Slurm requeues no job that was submitted with --no-requeue.
        lines = [f"update JobId={self.name} Requeue=1", f"requeue {self.name}"]
        if excluded:
            lines.append(f"update JobId={self.name} ExcNodeList={excluded}")
        without = f" without {excluded}" if excluded else ""
        self.say(f"the job starts again{without}: {step.because}")
        self._tell_slurm(*lines)
        if not _is_requeued(self.number, self.restarts):
            self.say("the job is not started again")
            return code or _NOT_STARTED
        time.sleep(_END_SECONDS)  # Slurm ends this process long before
        return code or _NOT_STARTED

    def _record(self, step: Stop | Again, cause: JobFault | None, code: int | None) -> None:
        """Write this attempt down, before anything follows from it."""
        at_fault = cause.at_fault if cause else None
        attempt = JobAttempt(
            self.restarts,
            self.nodes,
            code,
            cause.name if cause else "",
            at_fault.because if at_fault else step.because,
            at_fault.source if at_fault else "",
            cause.nodes if cause else (),
            step.without if isinstance(step, Again) else (),
            at_fault.left_out if at_fault else (),
            "stop" if isinstance(step, Stop) else "again",
        )
        try:
            write_attempt(self.path, attempt)
        except OSError as error:
            self.say(f"{self.path}: {error.strerror}; later attempts do not know of this one")

    def _tell_slurm(self, *lines: str) -> None:
        said = _run(["scontrol"], _SLURM_SECONDS, "".join(f"{line}\n" for line in lines))
        # It repeats what it reads, after its name.
        refusals = [line for line in said.splitlines() if line and not line.startswith("scontrol:")]
        if refusals:
            self.say(f"Slurm says: {'; '.join(refusals)}")


class _Command:
    """The command, to which signals go on. told: whether Slurm or the user asked for the end."""

    def __init__(self) -> None:
        self.told = False
        self._child: subprocess.Popen[bytes] | None = None

    def run(self, command: Sequence[str], environ: Mapping[str, str]) -> int:
        """The exit code, as a shell has it. Raises OSError where there is no such program."""
        for number in _FORWARDED:
            signal.signal(number, self._forward)
        self._child = subprocess.Popen(command, env=environ)
        if self.told:
            self._child.terminate()
        code = self._child.wait()
        return 128 - code if code < 0 else code

    def _forward(self, number: int, frame: object) -> None:
        self.told = self.told or number in (signal.SIGTERM, signal.SIGINT)
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)


def _ignore_signals() -> None:
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_IGN)


def _run(words: Sequence[str], seconds: float, text: str = "") -> str:
    """The output of a command, whatever its exit code; what there is of it after so long."""
    try:
        said = subprocess.run(
            words,
            input=text.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if text else subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
    except OSError:
        return ""
    return said.decode(errors="replace")


def _is_requeued(job: str, restarts: int) -> bool:
    from podwright.slurm.reader import listing_format, read_listing

    columns = {"restarts": 20}
    command = ["squeue", "-h", "-j", job, "-O", listing_format(**columns)]
    rows = read_listing(_run(command, _SLURM_SECONDS), **columns)
    return bool(rows) and rows[0]["restarts"] == str(restarts + 1)


def _sizes(paths: Iterable[str]) -> dict[str, int]:
    """The sizes of these files. Each file is named once, and what is no file is left out."""
    sizes, seen = {}, set()
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            sizes[path] = 0
            continue
        if stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            sizes[path] = status.st_size
    return sizes


def _text_since(sizes: Mapping[str, int]) -> str | None:
    """The end of what was written to these files since then; None where that cannot be read."""
    texts = []
    for path, size in sizes.items():
        try:
            with open(path, "rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(size, end - _OUTPUT_BYTES))
                texts.append(file.read().decode(errors="replace"))
        except OSError:
            return None
    return "\n".join(texts) if texts else None
