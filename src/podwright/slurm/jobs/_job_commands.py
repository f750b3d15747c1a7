"""The interface to Slurm for its users: its commands, run without a shell."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Protocol

from podwright.errors import PodwrightError, Unavailable
from podwright.slurm.site.command_result import CommandResult

_COMMAND_TIMEOUT_S = 60.0


class Refused(PodwrightError):
    """Slurm refused the request. `data["command"]` is the name of the command."""


class Commands(Protocol):
    """Runs one of Slurm's commands."""

    def run(self, argv: Sequence[str], text: str = "") -> CommandResult:
        """Run a command, and return its result. text: its standard input. Raises Unavailable."""
        ...


class SlurmJobCommands:
    """Runs the real commands. command_prefix: words before each command, for a Slurm elsewhere."""

    def __init__(self, command_prefix: Sequence[str] = ()) -> None:
        self._prefix = list(command_prefix)

    def run(self, argv: Sequence[str], text: str = "") -> CommandResult:
        """Run a command, and return its result. Raises Unavailable where it cannot start or
        hangs.
        """
        try:
            process_result = subprocess.run(
                [*self._prefix, *argv],
                input=text,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_COMMAND_TIMEOUT_S,
                check=False,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )
        except OSError as error:
            raise Unavailable(
                f"{argv[0]} cannot be run: {(error.strerror or '').lower()}",
                would_work="submit from a host with Slurm's commands on PATH",
            ) from None
        except subprocess.TimeoutExpired:
            raise Unavailable(
                f"{argv[0]} gave no answer within {_COMMAND_TIMEOUT_S:g} s",
                would_work="look whether slurmctld runs: scontrol ping",
            ) from None
        return CommandResult(
            process_result.returncode, process_result.stdout, process_result.stderr
        )


#: The Slurm of this host.
LOCAL_COMMANDS = SlurmJobCommands()


def checked(commands: Commands, argv: Sequence[str], text: str = "") -> str:
    """Run a command, and return what it printed. Raises Refused with Slurm's own words."""
    command_result = commands.run(argv, text)
    if command_result.code:
        refusal_text = (
            " ".join((command_result.err or command_result.out).split())
            or f"exit code {command_result.code}"
        )
        raise Refused(f"{argv[0]} refused: {refusal_text}", command=argv[0])
    return command_result.out
