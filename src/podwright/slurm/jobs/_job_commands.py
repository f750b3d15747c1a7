"""The seam to Slurm for its users: its commands, run without a shell."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Protocol

from podwright.errors import PodwrightError, Unavailable
from podwright.slurm.site.command_result import CommandResult

_TIMEOUT = 60.0


class Refused(PodwrightError):
    """Slurm took the request and said no. `data["command"]` says which command did."""


class Commands(Protocol):
    """Runs one of Slurm's commands."""

    def run(self, argv: Sequence[str], text: str = "") -> CommandResult:
        """The command's end. text: on its standard input. Raises Unavailable."""
        ...


class SlurmJobCommands:
    """The real ones. prefix: what stands before each, for a Slurm elsewhere."""

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        self._prefix = list(prefix)

    def run(self, argv: Sequence[str], text: str = "") -> CommandResult:
        """The command's end. Raises Unavailable where it cannot start or hangs."""
        try:
            done = subprocess.run(
                [*self._prefix, *argv],
                input=text,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT,
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
                f"{argv[0]} gave no answer within {_TIMEOUT:g} s",
                would_work="look whether slurmctld runs: scontrol ping",
            ) from None
        return CommandResult(done.returncode, done.stdout, done.stderr)


#: The Slurm of this host.
HERE = SlurmJobCommands()


def checked(commands: Commands, argv: Sequence[str], text: str = "") -> str:
    """What a command printed. Raises Refused with Slurm's own words."""
    said = commands.run(argv, text)
    if said.code:
        words = " ".join((said.err or said.out).split()) or f"exit code {said.code}"
        raise Refused(f"{argv[0]} refused: {words}", command=argv[0])
    return said.out
