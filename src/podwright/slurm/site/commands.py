"""The interface to Slurm: its own commands, run without a shell.

No library of Slurm's is used: libraries change with every release, and what the commands print does
not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from typing import Protocol

from podwright.errors import Unavailable
from podwright.slurm.site.command_result import CommandResult as CommandResult

COMMAND_TIMEOUT_S = 20.0


class Slurm(Protocol):
    """Runs one of Slurm's commands. Raises Unavailable where it does not end."""

    async def run(self, *argv: str) -> CommandResult:
        """Run a command, and return its result."""
        ...


class SlurmCommands:
    """Runs the real commands. prefix: words before each command, for a Slurm elsewhere."""

    def __init__(self, prefix: Sequence[str] = (), *, timeout: float = COMMAND_TIMEOUT_S) -> None:
        self._prefix = list(prefix)
        self._timeout = timeout

    async def run(self, *argv: str) -> CommandResult:
        """Run a command, and return its result. Raises Unavailable where it cannot start or
        hangs.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *self._prefix,
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={
                    **os.environ,
                    "LC_ALL": "C.UTF-8",
                    "SLURM_TIME_FORMAT": _slurm_time_format(argv[0]),
                },
            )
        except OSError as error:
            raise Unavailable(
                f"{argv[0]} cannot be run: {error.strerror}", would_work="install Slurm's client"
            ) from None
        try:
            stdout_bytes, stderr_bytes = await asyncio.wait_for(
                process.communicate(), self._timeout
            )
        except TimeoutError:
            await _kill_process(process)
            raise Unavailable(
                f"{' '.join(argv[:2])} gave no answer within {self._timeout:g} s",
                would_work="look whether slurmctld runs",
            ) from None
        except BaseException:  # we are cancelled, so we end what we started
            await _kill_process(process)
            raise
        return CommandResult(
            process.returncode or 0,
            stdout_bytes.decode(errors="replace"),
            stderr_bytes.decode(errors="replace"),
        )


def _slurm_time_format(command: str) -> str:
    """Return how a command is to write times. Only our own code reads lists, so these have seconds
    since 1970.
    """
    return "%s" if command == "squeue" else "standard"


async def _kill_process(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        process.kill()
    await process.wait()
