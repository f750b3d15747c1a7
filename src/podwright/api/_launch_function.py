"""`podwright.launch`: calls a function in every instance of a launch and collects the results."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple, overload

from podwright.api._launch_process import LaunchProcess, Option, option_words
from podwright.api._run import launch_counts, place
from podwright.errors import LaunchFailed
from podwright.functions import CallOutcome, dump_call, finished, read_outcome
from podwright.ground.plural import counted
from podwright.launcher import RunFolder, make_folder

if TYPE_CHECKING:
    from podwright.api._partition import Partition

R = TypeVar("R")
#: The function's positional parameters. A ParamSpec would forbid the launch's own keywords.
Ts = TypeVarTuple("Ts")

#: The command of every instance. All hosts have the same Python at the same path.
INSTANCE_COMMAND = (sys.executable, "-P", "-m", "podwright.functions")
#: Jobs without another reference go on: they end with this program, or when they are done.
_RUNNING_JOBS: set[Any] = set()


@overload
def launch(
    function: Callable[[*Ts], R],
    *args: *Ts,
    kwargs: None = None,
    partition: Partition | str | None = None,
    replicas: int | None = None,
    instances: int | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: str | None = None,
    **options: Option,
) -> Job[R]: ...


@overload
def launch(
    function: Callable[..., R],
    *args: Any,
    kwargs: Mapping[str, Any],
    partition: Partition | str | None = None,
    replicas: int | None = None,
    instances: int | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: str | None = None,
    **options: Option,
) -> Job[R]: ...


def launch(  # type: ignore[misc]  # mypy compares *args: *Ts with no implementation
    function: Callable[..., R],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    partition: Partition | str | None = None,
    replicas: int | None = None,
    instances: int | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: str | None = None,
    **options: Option,
) -> Job[R]:
    """Call a function in each instance of a launch. Return at once.

    The function and its arguments travel by cloudpickle, so lambdas and functions of `__main__`
    work as well. To other hosts (`host="n1,n2"`) they travel over the launch's own connection. No
    file system need be shared, but every host needs the same Python. Inside the function, `popdist`
    says which instance it runs in.

    Type checkers compare the arguments with the function's parameters, unless there are `kwargs`.

    kwargs: keyword arguments of the function. partition, replicas, instances, environ, cwd and
    options: as for `podwright.run`. The instances end with this program, however it ends.

    Raises `NotPicklable`, and `InvalidRequest` for an option that poprun does not have.

    >>> podwright.launch(max, 3, 4, instances=2).results()
    [4, 4]
    """
    replicas, instances = launch_counts(partition, replicas, instances, options)
    poprun_options: dict[str, Option | None] = {
        "num_replicas": replicas,
        "num_instances": instances,
        "vipu_partition": partition if isinstance(partition, str) else None,
        **options,
    }
    poprun_arguments = [*option_words(poprun_options), "--", *INSTANCE_COMMAND]
    pickled_call = dump_call(function, args, kwargs or {})
    job: Job[R] = Job(poprun_arguments, pickled_call, instances, place(partition, environ), cwd)
    if partition is not None and not isinstance(partition, str):
        partition._add(job)
    return job


class Job(Generic[R]):
    """A launch of a function. `results()` and `await job` wait for it.

    >>> job = podwright.launch(max, 3, 4)
    >>> job.result()
    4
    """

    def __init__(
        self,
        poprun_arguments: Sequence[str],
        pickled_call: bytes,
        instances: int,
        environ: Mapping[str, str],
        cwd: str | None,
    ) -> None:
        self.instances = instances
        folder = make_folder(os.environ)
        self._folder = folder.path
        self._end = weakref.finalize(self, _remove_run_folder, folder)
        self._cancelled = False
        call_fd = os.open(self._run_file_path("call"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(call_fd, "wb") as file:
            file.write(pickled_call)
        with open(self._run_file_path("log"), "ab") as log_file:
            self._process = LaunchProcess(
                poprun_arguments,
                environ,
                folder=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                cwd=cwd,
            )
        _RUNNING_JOBS.add(self)

    def _run_file_path(self, file_name: str) -> str:
        return os.path.join(self._folder, file_name)

    @property
    def state(self) -> str:
        """The state: `RUNNING`, `COMPLETED`, `FAILED` or `CANCELLED`."""
        if not self.done():
            return "RUNNING"
        if self._process.code == 0:
            return "COMPLETED"
        return "CANCELLED" if self._cancelled else "FAILED"

    @property
    def exit_code(self) -> int | None:
        """The exit code of poprun; None while the job runs."""
        return self._process.code if self.done() else None

    def done(self) -> bool:
        """Return whether the job is over."""
        done = self._process.done()
        if done:
            _RUNNING_JOBS.discard(self)
        return done

    def progress(self) -> tuple[int, int]:
        """Return how many instances have returned or raised, and how many there are."""
        flags = [finished(self._run_file_path(f"result.{i}")) for i in range(self.instances)]
        return sum(flags), len(flags)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the job, at most `timeout` seconds. Return whether it has ended.

        Ctrl-C cancels the job.
        """
        job_ended = self._process.wait_or_interrupt(timeout)
        self.done()
        return job_ended

    def results(self, timeout: float | None = None) -> list[R]:
        """Return what the function returned: one value for each instance, in their order.

        If the function raised, this raises the first exception. Its cause holds the traceback of
        the process in which it happened. Raises `LaunchFailed` where an instance ended in another
        way, and what the server refused. Raises `TimeoutError` after `timeout` seconds; the job
        then goes on.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"the job goes on after {timeout:g} s")
        return self._read_results()

    def result(self, instance: int = 0, timeout: float | None = None) -> R:
        """Return what one instance returned. Raises as `results` does."""
        return self.results(timeout)[instance]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception that `results` would raise, or None.

        Raises `TimeoutError` itself.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"the job goes on after {timeout:g} s")
        try:
            self._read_results()
        except Exception as error:
            return error
        return None

    def logs(self, instance: int | None = None) -> str:
        """Return what one instance, or the launch with all its instances, has written so far.

        A line of an instance begins with its tag, such as `[1,0]<stdout>:`.
        """
        with open(self._run_file_path("log"), encoding="utf-8", errors="replace") as file:
            text = file.read()
        if instance is None:
            return text
        tag = f"[1,{instance}]<"
        return "".join(line for line in text.splitlines(keepends=True) if line.startswith(tag))

    def cancel(self, *, wait: bool = True) -> None:
        """End the instances in order.

        A job that is over stays as it is. wait: return once they are gone.
        """
        if not self.done():
            self._cancelled = True
            self._process.interrupt(signal.SIGTERM)
            if wait:
                self._process.wait()
                self.done()

    def __await__(self) -> Generator[Any, None, list[R]]:
        return self._await_results().__await__()

    async def _await_results(self) -> list[R]:
        try:
            await self._process.wait_async()
        except asyncio.CancelledError:
            self.cancel(wait=False)
            await self._process.wait_async()
            raise
        finally:
            self.done()
        return self._read_results()

    def _read_results(self) -> list[R]:
        if self._process.error:
            raise self._process.error
        outcomes = [
            read_outcome(self._run_file_path(f"result.{instance}"), instance)
            for instance in range(self.instances)
        ]
        if failed_outcomes := [outcome for outcome in outcomes if outcome and outcome.error]:
            error = min(failed_outcomes, key=self._result_time_ns).error
            assert error
            raise error
        if self._process.code or None in outcomes:
            exit_code = self._process.code or 1
            log_end = self.logs()[-4000:]
            if self._cancelled:
                raise LaunchFailed("the job was cancelled", exit_code=exit_code, log=log_end)
            raise self._process.failure(log_end)
        return [outcome.value for outcome in outcomes if outcome]

    def _result_time_ns(self, outcome: CallOutcome) -> int:
        return os.stat(self._run_file_path(f"result.{outcome.instance}")).st_mtime_ns

    def __repr__(self) -> str:
        return f"<podwright.Job of {counted(self.instances, 'instance')}, {self.state}>"


def _remove_run_folder(run_folder: RunFolder) -> None:
    run_folder.remove()
    for lock_fd in run_folder.locks:
        os.close(lock_fd)
