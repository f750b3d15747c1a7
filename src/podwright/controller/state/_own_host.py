"""The host on which the server runs, as far as it can see it."""

from __future__ import annotations

from typing import Protocol


class OwnHost(Protocol):
    """The host on which the server runs."""

    def is_here(self, host: str) -> bool:
        """Whether a host's name means this one."""
        ...

    def has(self, machine: str) -> bool:
        """Whether a machine's devices sit in this host."""
        ...

    def is_gone(self, run: str, uid: int) -> bool:
        """Whether nothing runs here any more that carries a launch's mark. False, too, where
        that cannot be seen: what belongs to another account hides its environment."""
        ...

    async def lives(self, run: str, uid: int) -> bool | None:
        """Whether anything of a launch runs here: its instances, what they started, or one of the
        processes that watch over them. None: that cannot be seen."""
        ...
