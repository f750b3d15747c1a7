"""The seam to Slurm: its own commands, run without a shell, and a fake that ships.

No library of Slurm's is used: those change with every release, what its commands say does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Protocol

from podwright.errors import Unavailable
from podwright.slurm.site.command_result import CommandResult as CommandResult

TIMEOUT = 20.0


class Slurm(Protocol):
    """Runs one command of Slurm's. Raises Unavailable where it does not come back."""

    async def run(self, *argv: str) -> CommandResult:
        """The command's end."""
        ...


class SlurmCommands:
    """The real ones. prefix: what stands before each command, for a Slurm elsewhere."""

    def __init__(self, prefix: Sequence[str] = (), *, timeout: float = TIMEOUT) -> None:
        self._prefix = list(prefix)
        self._timeout = timeout

    async def run(self, *argv: str) -> CommandResult:
        """The command's end. Raises Unavailable where it cannot start or hangs."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._prefix,
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": _times(argv[0])},
            )
        except OSError as error:
            raise Unavailable(
                f"{argv[0]} cannot be run: {error.strerror}", would_work="install Slurm's client"
            ) from None
        try:
            out, err = await asyncio.wait_for(process.communicate(), self._timeout)
        except TimeoutError:
            await _end(process)
            raise Unavailable(
                f"{' '.join(argv[:2])} gave no answer within {self._timeout:g} s",
                would_work="look whether slurmctld runs",
            ) from None
        except BaseException:  # we are ended: so is what we started
            await _end(process)
            raise
        return CommandResult(
            process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")
        )


def _times(command: str) -> str:
    """How a command writes times: lists are read by us alone, in seconds since 1970."""
    return "%s" if command == "squeue" else "standard"


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):  # it was quicker
        process.kill()
    await process.wait()


class FakeSlurm:
    """Answers by a function and remembers what it was asked."""

    def __init__(self, answer: Callable[[Sequence[str]], CommandResult | str]) -> None:
        self.asked: list[tuple[str, ...]] = []
        self._answer = answer

    async def run(self, *argv: str) -> CommandResult:
        """What the function says; a text is a success."""
        self.asked.append(argv)
        await asyncio.sleep(0)
        said = self._answer(argv)
        return said if isinstance(said, CommandResult) else CommandResult(0, said, "")
