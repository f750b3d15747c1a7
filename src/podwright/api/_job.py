"""`podwright.launch`: a function in every instance of a launch, and what each of them returned."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from podwright.api._process import LaunchProcess, Option, option_words
from podwright.api._run import counts, described, place
from podwright.errors import LaunchFailed
from podwright.functions import CallOutcome, dump_call, finished, read_outcome
from podwright.launcher import RunFolder, make_folder

if TYPE_CHECKING:
    from podwright.api._partition import Partition

R = TypeVar("R")

#: What every instance runs. It is the same Python on all hosts, at the same place.
INSTANCE = (sys.executable, "-P", "-m", "podwright.functions")
#: Jobs that nobody holds go on: they end with this program, or when they are done.
_RUNNING: set[Any] = set()


def launch(
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
    """Call a function in each instance of a launch; returns at once.

    The function, and what it is called with, travel by cloudpickle: lambdas and functions of
    `__main__` do as well. On other hosts (`host="n1,n2"`) they come over the launch's own
    connection: no file system need be shared, but the same Python has to be there.
    In the function `popdist` says which instance it is.

    kwargs: for the function. partition, replicas, instances, environ, cwd and options: as
    `podwright.run` has them. The instances end with this program, however that ends.

    Raises `NotPicklable`, and `InvalidRequest` for options that cannot be.
    """
    replicas, instances = counts(partition, replicas, instances, options)
    known: dict[str, Option | None] = {
        "num_replicas": replicas,
        "num_instances": instances,
        "vipu_partition": partition if isinstance(partition, str) else None,
        **options,
    }
    words = [*option_words(known), "--", *INSTANCE]
    payload = dump_call(function, args, kwargs or {})
    job: Job[R] = Job(words, payload, instances, place(partition, environ), cwd)
    if partition is not None and not isinstance(partition, str):
        partition._add(job)
    return job


class Job(Generic[R]):
    """A launch of a function. `results()` waits for it; so does `await job`."""

    def __init__(
        self,
        words: Sequence[str],
        payload: bytes,
        instances: int,
        environ: Mapping[str, str],
        cwd: str | None,
    ) -> None:
        self.instances = instances
        folder = make_folder(os.environ)
        self._folder = folder.path
        self._end = weakref.finalize(self, _remove, folder)
        self._cancelled = False
        handle = os.open(self._file("call"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(payload)
        with open(self._file("log"), "ab") as log:
            self._process = LaunchProcess(
                words,
                environ,
                folder=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=cwd,
            )
        _RUNNING.add(self)

    def _file(self, name: str) -> str:
        return os.path.join(self._folder, name)

    @property
    def state(self) -> str:
        """`RUNNING`, `COMPLETED`, `FAILED` or `CANCELLED`."""
        if not self.done():
            return "RUNNING"
        if self._process.code == 0:
            return "COMPLETED"
        return "CANCELLED" if self._cancelled else "FAILED"

    @property
    def exit_code(self) -> int | None:
        """poprun's; None while it runs."""
        return self._process.code if self.done() else None

    def done(self) -> bool:
        """Whether it is over."""
        done = self._process.done()
        if done:
            _RUNNING.discard(self)
        return done

    def progress(self) -> tuple[int, int]:
        """How many instances have returned or raised, and how many there are."""
        ready = [finished(self._file(f"result.{i}")) for i in range(self.instances)]
        return sum(ready), len(ready)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for its end, timeout seconds at most; whether it came. Ctrl-C cancels the job."""
        over = self._process.wait_or_interrupt(timeout)
        self.done()
        return over

    def results(self, timeout: float | None = None) -> list[R]:
        """What the function returned, one for each instance, in their order.

        If it raised, the exception that came first is raised here, with the traceback of where it
        happened as its cause. Raises `LaunchFailed` where an instance ended in another way, what
        the server refused, or `TimeoutError` after timeout seconds; the job then goes on.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"the job goes on after {timeout:g} s")
        return self._results()

    def result(self, instance: int = 0, timeout: float | None = None) -> R:
        """What one instance returned. Raises as `results` does."""
        return self.results(timeout)[instance]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What `results` would raise, or None. Raises `TimeoutError` itself."""
        if not self.wait(timeout):
            raise TimeoutError(f"the job goes on after {timeout:g} s")
        try:
            self._results()
        except Exception as error:
            return error
        return None

    def logs(self, instance: int | None = None) -> str:
        """What was written so far: by all instances, and by the launch; or by one instance.

        A line of an instance begins with its tag, such as `[1,0]<stdout>:`.
        """
        with open(self._file("log"), encoding="utf-8", errors="replace") as file:
            text = file.read()
        if instance is None:
            return text
        tag = f"[1,{instance}]<"
        return "".join(line for line in text.splitlines(keepends=True) if line.startswith(tag))

    def cancel(self, *, wait: bool = True) -> None:
        """End the instances, in order; what is over stays as it is. wait: until they are gone."""
        if not self.done():
            self._cancelled = True
            self._process.interrupt(signal.SIGTERM)
            if wait:
                self._process.wait()
                self.done()

    def __await__(self) -> Generator[Any, None, list[R]]:
        return self._await().__await__()

    async def _await(self) -> list[R]:
        try:
            await self._process.wait_async()
        except asyncio.CancelledError:
            self.cancel(wait=False)
            await self._process.wait_async()
            raise
        finally:
            self.done()
        return self._results()

    def _results(self) -> list[R]:
        if self._process.error:
            raise self._process.error
        outcomes = [read_outcome(self._file(f"result.{i}"), i) for i in range(self.instances)]
        if failed := [outcome for outcome in outcomes if outcome and outcome.error]:
            error = min(failed, key=self._when).error
            assert error
            raise error
        if self._process.code or None in outcomes:
            code = self._process.code or 1
            what = "the job was cancelled" if self._cancelled else described(code)
            raise LaunchFailed(what, exit_code=code, log=self.logs()[-4000:])
        return [outcome.value for outcome in outcomes if outcome]

    def _when(self, outcome: CallOutcome) -> int:
        return os.stat(self._file(f"result.{outcome.instance}")).st_mtime_ns

    def __repr__(self) -> str:
        return f"<podwright.Job of {self.instances} instances, {self.state}>"


def _remove(folder: RunFolder) -> None:
    folder.remove()
    for lock in folder.locks:
        os.close(lock)
