"""The result of a command, as values. It is apart from `commands` for programs without asyncio."""

from __future__ import annotations

from typing import NamedTuple


class CommandResult(NamedTuple):
    """A command's exit code, and what it printed on standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Both outputs, as one line."""
        return " ".join((self.err + " " + self.out).split())
