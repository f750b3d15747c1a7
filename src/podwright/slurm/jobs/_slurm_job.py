"""A job that calls a function: its state, and what its tasks returned. It can be found again by its
number.

Everything about it is in its folder: the call, the results, the output, and how it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections.abc import Generator
from typing import Any, Generic, TypeVar

from podwright.errors import LaunchFailed, NotFound
from podwright.functions import CallOutcome, finished, private_folder, read_outcome
from podwright.slurm.jobs._job_commands import LOCAL_COMMANDS, Commands, checked
from podwright.slurm.jobs._job_states import (
    FINAL_STATES,
    FORGOTTEN_STATE,
    UNKNOWN_STATE,
    States,
    recorded,
    states_of,
)

R = TypeVar("R")

_LINKS_FOLDER = "by-number"
#: Seconds between two looks at a job, at first and later.
_LOOK_PAUSE_RANGE_S = (0.1, 5.0)
#: Seconds for which a shared file system may not show yet what a node has written.
_LATE_RESULTS_LIMIT_S = 30.0


def link(base_folder: str, job_folder: str, job_number: str) -> None:
    """Let a job be found by its number from now on, in place of an older job of that number."""
    links_folder = private_folder(os.path.join(base_folder, _LINKS_FOLDER))
    new_link = os.path.join(links_folder, f".{job_number}.{os.getpid()}")
    os.symlink(os.path.join("..", os.path.basename(job_folder)), new_link)
    os.replace(new_link, os.path.join(links_folder, job_number))


def attach(
    number: int | str, *, folder: str | None = None, commands: Commands | None = None
) -> SlurmJob[Any]:
    """Return a job that another program of this user's submitted, by its number.

    folder: the one that `submit` was given. Raises `NotFound`.
    """
    base_folder = os.path.abspath(folder or os.path.expanduser("~/.podwright/jobs"))
    job_folder = os.path.realpath(os.path.join(base_folder, _LINKS_FOLDER, str(int(number))))
    if not os.path.isdir(job_folder):
        raise NotFound(
            f"no job {number} was submitted from Python with the folder {base_folder}",
            would_work="name the folder that submit() was told",
        )
    return SlurmJob(str(int(number)), private_folder(job_folder), commands or LOCAL_COMMANDS)


class SlurmJob(Generic[R]):
    """A Slurm job that calls a function in each of its tasks. Made by `submit` and `attach`."""

    def __init__(self, job_number: str, folder: str, commands: Commands) -> None:
        #: Its number, as Slurm has it.
        self.id = int(job_number)
        #: The folder of its files, for this user alone.
        self.folder = folder
        self._commands = commands
        with open(self._job_file_path("job.json"), "rb") as file:
            self.tasks: int = json.load(file)["tasks"]

    @property
    def _shared_states(self) -> States:
        return states_of(self._commands)

    def _job_file_path(self, file_name: str) -> str:
        return os.path.join(self.folder, file_name)

    @property
    def state(self) -> str:
        """The state in Slurm's word: `PENDING`, `RUNNING`, `COMPLETED`, `FAILED`, `CANCELLED`,
        `TIMEOUT` …

        For a job that Slurm has forgotten, the state comes from Slurm's accounting, or else from
        how its script ended. It is `UNKNOWN_STATE` where neither says.
        """
        state = self._shared_states.state(str(self.id)) or UNKNOWN_STATE
        if state == FORGOTTEN_STATE:
            state = recorded(self._commands, str(self.id))
        if state not in FINAL_STATES and (exit_code := self._script_exit_code()) is not None:
            state = "FAILED" if exit_code else "COMPLETED"  # squeue's state is old or missing
        return state

    def _script_exit_code(self) -> int | None:
        try:
            with open(self._job_file_path("end"), encoding="ascii") as file:
                return int(file.read())
        except (OSError, ValueError):
            return None

    def done(self) -> bool:
        """Return whether it is over: its script has ended, or Slurm no longer knows it."""
        if self._script_exit_code() is not None:
            return True
        state = self._shared_states.state(str(self.id))
        return state == FORGOTTEN_STATE or state in FINAL_STATES

    def progress(self) -> tuple[int, int]:
        """Return how many tasks have returned or raised, and how many there are."""
        return sum(finished(self._result_path(task)) for task in range(self.tasks)), self.tasks

    def _result_path(self, task: int) -> str:
        return self._job_file_path(f"result.{task}")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is over, for at most `timeout` seconds. Return whether it is over.

        Ctrl-C ends the waiting.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause_s = _LOOK_PAUSE_RANGE_S[0]
        while not self.done():
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.3, _LOOK_PAUSE_RANGE_S[1])
        return True

    def results(self, timeout: float | None = None) -> list[R]:
        """Wait, and return what the function returned, one value for each task, in their order.

        If the function raised, the exception that came first is raised here, with the traceback of
        its origin as its cause. Raises `LaunchFailed` where the job ended in another way, and
        `TimeoutError` after `timeout` seconds; the job then goes on.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"job {self.id} goes on after {timeout:g} s")
        deadline = time.monotonic() + (
            _LATE_RESULTS_LIMIT_S if self._script_exit_code() == 0 else 1.0
        )
        while (outcomes := self._outcomes()) and None in outcomes and time.monotonic() < deadline:
            os.listdir(self.folder)  # this makes NFS look again
            time.sleep(_LOOK_PAUSE_RANGE_S[0])
        return self._values_or_raise(outcomes)

    def result(self, task: int = 0, timeout: float | None = None) -> R:
        """Return what one task returned. Raises as `results` does."""
        return self.results(timeout)[task]

    def _outcomes(self) -> list[CallOutcome | None]:
        return [read_outcome(self._result_path(task), task) for task in range(self.tasks)]

    def _values_or_raise(self, outcomes: list[CallOutcome | None]) -> list[R]:
        if failed_outcomes := [outcome for outcome in outcomes if outcome and outcome.error]:
            first_failure = min(
                failed_outcomes,
                key=lambda outcome: os.stat(self._result_path(outcome.instance)).st_mtime_ns,
            )
            assert first_failure.error
            raise first_failure.error
        if None in outcomes:
            state = self.state
            raise LaunchFailed(
                f"job {self.id} is {state}, and {outcomes.count(None)} of its {self.tasks} tasks "
                "returned nothing",
                would_work="read job.logs()",
                exit_code=self._script_exit_code() or 1,
                state=state,
                log=self.logs()[-4000:],
            )
        return [outcome.value for outcome in outcomes if outcome]

    def logs(self) -> str:
        """Return what the job has written so far."""
        try:
            with open(self._job_file_path("log"), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def cancel(self) -> None:
        """End it, by scancel. A job that is over stays as it is."""
        checked(self._commands, ["scancel", str(self.id)])
        self._shared_states.ask_soon()

    def remove(self) -> None:
        """Remove its folder, with results and output. Raises `TimeoutError` while it runs."""
        if not self.done():
            raise TimeoutError(f"job {self.id} is not over: cancel() it first")
        link_path = os.path.join(os.path.dirname(self.folder), _LINKS_FOLDER, str(self.id))
        if os.path.realpath(link_path) == self.folder:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(link_path)
        shutil.rmtree(self.folder)

    def __await__(self) -> Generator[Any, None, list[R]]:
        return self._await_results().__await__()

    async def _await_results(self) -> list[R]:
        pause_s = _LOOK_PAUSE_RANGE_S[0]
        while not await asyncio.to_thread(self.done):
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.3, _LOOK_PAUSE_RANGE_S[1])
        return await asyncio.to_thread(self.results)

    def __repr__(self) -> str:
        return f"<podwright.slurm.SlurmJob {self.id} of {self.tasks} tasks>"
