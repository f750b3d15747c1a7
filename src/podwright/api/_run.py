"""`podwright.run`: run a program's instances on a partition and wait for them, as poprun does."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, NamedTuple

from podwright.api._launch_process import LaunchProcess, Option, option_words
from podwright.api._server_variables import with_variables

if TYPE_CHECKING:
    from podwright.api._partition import Partition


class Completed(NamedTuple):
    """How a run ended.

    exit_code: poprun's. stdout, stderr: the captured output, otherwise empty.
    """

    exit_code: int
    stdout: str = ""
    stderr: str = ""


def run(
    program: Sequence[str],
    *,
    partition: Partition | str | None = None,
    replicas: int | None = None,
    instances: int | None = None,
    capture: bool = False,
    check: bool = True,
    environ: Mapping[str, str] | None = None,
    cwd: str | None = None,
    **options: Option,
) -> Completed:
    """Run a program's instances on a partition, and wait for their end.

    partition: one that this program holds, or the name of one. Without it, a partition that fits is
    made, and removed afterwards. replicas, instances: totals. By default they fill the partition,
    with one instance for each of its GCDs; without a partition, there is one instance, and as many
    replicas. capture: return what the instances write instead of passing it on. environ, cwd: of
    the launch; by default this program's own. options: any other option of poprun, with
    underscores: `max_restarts=2`, `ipus_per_replica=2`, `host="n1,n2"`, `timeout=60`.

    Raises, unless `check` is false, `LaunchFailed` where an instance fails, with the instance in
    its message and in `data["instance"]`, and `TimedOut` after `timeout` seconds. Raises what the
    server refuses: `NoCapacity`, `Held`, `Unavailable` … Ctrl-C ends the instances in order and
    then raises.

    >>> podwright.run(["echo", "hello"], capture=True).exit_code
    0
    """
    with _RunningLaunch(
        program,
        partition,
        replicas=replicas,
        instances=instances,
        capture=capture,
        environ=environ,
        cwd=cwd,
        options=options,
    ) as running_launch:
        running_launch.process.wait_or_interrupt()
        return running_launch.completed(check=check)


async def run_async(
    program: Sequence[str],
    *,
    partition: Partition | str | None = None,
    replicas: int | None = None,
    instances: int | None = None,
    capture: bool = False,
    check: bool = True,
    environ: Mapping[str, str] | None = None,
    cwd: str | None = None,
    **options: Option,
) -> Completed:
    """Run a program as `run` does, for asyncio.

    Cancelling it ends the instances in order before the call returns.

    >>> asyncio.run(podwright.run_async(["true"], capture=True)).exit_code
    0
    """
    with _RunningLaunch(
        program,
        partition,
        replicas=replicas,
        instances=instances,
        capture=capture,
        environ=environ,
        cwd=cwd,
        options=options,
    ) as running_launch:
        try:
            await running_launch.process.wait_async()
        except asyncio.CancelledError:
            running_launch.process.interrupt()
            await running_launch.process.wait_async()
            raise
        return running_launch.completed(check=check)


def launch_counts(
    partition: Partition | str | None,
    replicas: int | None,
    instances: int | None,
    options: Mapping[str, Option],
) -> tuple[int, int]:
    """Return the numbers of replicas and instances: as given, or what fills a held partition."""
    held_partition = None if partition is None or isinstance(partition, str) else partition
    if instances is None:
        instances = max(held_partition.info.num_gcds, 1) if held_partition else 1
    if replicas is None:
        ipus_per_replica = int(options.get("ipus_per_replica", 1))
        replicas = max(held_partition.size // ipus_per_replica, 1) if held_partition else instances
    return replicas, instances


def place(partition: Partition | str | None, environ: Mapping[str, str] | None) -> dict[str, str]:
    """Return the environment of a launch in a partition that this program holds, or in none."""
    partition_variables = (
        {} if partition is None or isinstance(partition, str) else partition.variables()
    )
    return with_variables(os.environ if environ is None else environ, partition_variables)


class _RunningLaunch:
    """One launch, and where its output goes."""

    def __init__(
        self,
        program: Sequence[str],
        partition: Partition | str | None,
        *,
        replicas: int | None,
        instances: int | None,
        capture: bool,
        environ: Mapping[str, str] | None,
        cwd: str | None,
        options: Mapping[str, Option],
    ) -> None:
        replicas, instances = launch_counts(partition, replicas, instances, options)
        poprun_options: dict[str, Option | None] = {
            "num_replicas": replicas,
            "num_instances": instances,
            "vipu_partition": partition if isinstance(partition, str) else None,
            **options,
        }
        poprun_arguments = [*option_words(poprun_options), "--", *program]
        self._files: list[IO[bytes]] = []
        for _ in range(2 if capture else 0):
            self._files.append(tempfile.TemporaryFile())  # noqa: SIM115 (closed with us)
        stdout_file, stderr_file = self._files or (None, None)
        launch_environ = place(partition, environ)
        self.process = LaunchProcess(
            poprun_arguments, launch_environ, stdout=stdout_file, stderr=stderr_file, cwd=cwd
        )

    def completed(self, *, check: bool) -> Completed:
        """Return how the launch ended. check: raise the failure if it did not end well."""
        process = self.process
        if process.error:
            raise process.error
        assert process.code is not None
        texts = []
        for file in self._files:
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        if process.code and check:
            raise process.failure(texts[1][-4000:] if texts else "")
        return Completed(process.code, *texts)

    def __enter__(self) -> _RunningLaunch:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.process.done():
            self.process.interrupt(signal.SIGTERM)
            self.process.wait()
        for file in self._files:
            file.close()
