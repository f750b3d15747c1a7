"""`podwright.run`: a program's instances on a partition, and their end, as poprun has it."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, NamedTuple

from podwright.api._process import LaunchProcess, Option, option_words
from podwright.errors import LaunchFailed

if TYPE_CHECKING:
    from podwright.api._partition import Partition


class Completed(NamedTuple):
    """How a run ended. exit_code: poprun's. stdout, stderr: what was captured, else empty."""

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

    partition: one that this program holds, or the name of one; without it one is made that fits,
    and removed afterwards. replicas, instances: in all; by default as many as there is room for
    in the partition, one for each GCD of it; without one, one instance and as many replicas.
    capture: return what
    the instances write instead of passing it on. environ, cwd: for the launch; this program's own
    by default. options: any other of poprun's, with underscores: `max_restarts=2`,
    `ipus_per_replica=2`, `host="n1,n2"`, `timeout=60`.

    Raises `LaunchFailed` where an instance fails (unless `check` is false), and what the server
    refuses: `NoCapacity`, `Held`, `Unavailable` … Ctrl-C ends the instances in order, then raises.
    """
    with _Run(program, partition, replicas, instances, capture, environ, cwd, options) as started:
        started.process.wait_or_interrupt()
        return started.completed(check=check)


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
    """As `run`, for asyncio. Cancelling it ends the instances, in order, before it is over."""
    with _Run(program, partition, replicas, instances, capture, environ, cwd, options) as started:
        try:
            await started.process.wait_async()
        except asyncio.CancelledError:
            started.process.interrupt()
            await started.process.wait_async()
            raise
        return started.completed(check=check)


def counts(
    partition: Partition | str | None,
    replicas: int | None,
    instances: int | None,
    options: Mapping[str, Option],
) -> tuple[int, int]:
    """How many replicas and instances: as told, or what fills a partition that is held."""
    held = None if partition is None or isinstance(partition, str) else partition
    if instances is None:
        instances = max(held.info.num_gcds, 1) if held else 1
    if replicas is None:
        each = int(options.get("ipus_per_replica", 1))
        replicas = max(held.size // each, 1) if held else instances
    return replicas, instances


def place(partition: Partition | str | None, environ: Mapping[str, str] | None) -> dict[str, str]:
    """The environment of a launch in a partition that this program holds, or in none."""
    own = {} if partition is None or isinstance(partition, str) else partition.environment()
    return {**(os.environ if environ is None else environ), **own}


class _Run:
    """One launch, and where its output goes."""

    def __init__(
        self,
        program: Sequence[str],
        partition: Partition | str | None,
        replicas: int | None,
        instances: int | None,
        capture: bool,
        environ: Mapping[str, str] | None,
        cwd: str | None,
        options: Mapping[str, Option],
    ) -> None:
        replicas, instances = counts(partition, replicas, instances, options)
        known: dict[str, Option | None] = {
            "num_replicas": replicas,
            "num_instances": instances,
            "vipu_partition": partition if isinstance(partition, str) else None,
            **options,
        }
        words = [*option_words(known), "--", *program]
        self._files: list[IO[bytes]] = []
        for _ in range(2 if capture else 0):
            self._files.append(tempfile.TemporaryFile())  # noqa: SIM115 (closed with us)
        out, err = self._files or (None, None)
        environment = place(partition, environ)
        self.process = LaunchProcess(words, environment, stdout=out, stderr=err, cwd=cwd)

    def completed(self, *, check: bool) -> Completed:
        """How it ended. Raises that, if it did not end well."""
        process = self.process
        if process.error:
            raise process.error
        assert process.code is not None
        texts = []
        for file in self._files:
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        if process.code and check:
            log = texts[1][-4000:] if texts else ""
            raise LaunchFailed(described(process.code), exit_code=process.code, log=log)
        return Completed(process.code, *texts)

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.process.done():
            self.process.interrupt(signal.SIGTERM)
            self.process.wait()
        for file in self._files:
            file.close()


def described(code: int) -> str:
    """An exit code of poprun's, in words."""
    if code > 128:
        try:
            return f"the launch was ended by {signal.Signals(code - 128).name}"
        except ValueError:
            pass
    return f"the launch ended with code {code}"
