"""Turns: calls that share a device or a record wait for each other, in order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Final

#: The keys of a call that runs alone.
EVERYTHING: Final = None


class FabricTurn:
    """The right of one call to its keys; None: to everything."""

    def __init__(self, keys: frozenset[Hashable] | None) -> None:
        self.keys = keys
        self.is_running = False

    def conflicts(self, keys: frozenset[Hashable] | None) -> bool:
        """Return whether a call on these keys has to wait for this one."""
        return self.keys is None or keys is None or not self.keys.isdisjoint(keys)


class FabricTurns:
    """All calls that run or wait, the oldest first.

    A call waits for every earlier one that shares a key with it, also for those that still wait.
    So no call overtakes another on the same device.
    """

    def __init__(self) -> None:
        self._turns: list[FabricTurn] = []
        self._ended = asyncio.Event()

    async def begin(self, keys: frozenset[Hashable] | None) -> FabricTurn:
        """Wait for a turn. A caller that is cancelled meanwhile leaves the line."""
        turn = FabricTurn(keys)
        self._turns.append(turn)
        try:
            while self._must_wait(turn):
                await self._ended.wait()
        except BaseException:
            self.end(turn)
            raise
        turn.is_running = True
        return turn

    async def widen(self, turn: FabricTurn, keys: frozenset[Hashable]) -> None:
        """Add keys to a turn that runs, at most once.

        It waits only for turns that run: those that wait for this one must not hold it up.
        """
        if turn.keys is None:
            return
        while any(
            other.is_running and other is not turn and other.conflicts(keys)
            for other in self._turns
        ):
            await self._ended.wait()
        turn.keys |= keys

    def end(self, turn: FabricTurn) -> None:
        """End a turn, and let those begin that waited for it."""
        self._turns.remove(turn)
        self._ended.set()
        self._ended = asyncio.Event()

    def _must_wait(self, turn: FabricTurn) -> bool:
        is_earlier = True
        for other in self._turns:
            if other is turn:
                is_earlier = False
            # A later turn that runs may have been widened by keys of this one.
            elif (is_earlier or other.is_running) and other.conflicts(turn.keys):
                return True
        return False
