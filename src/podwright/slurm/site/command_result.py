"""How a command ended, as values. Beside `commands`, for those who do not wait for asyncio."""

from __future__ import annotations

from typing import NamedTuple


class CommandResult(NamedTuple):
    """A command's exit code, and what it said on both channels."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All of it, as one line."""
        return " ".join((self.err + " " + self.out).split())
