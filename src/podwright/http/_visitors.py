"""Who may stand at a door, and who goes when it is full: the one that has been silent longest.

A limit that turns newcomers away lets whoever came first keep everybody out. Here those who have
nothing to say make room, and only where all are busy is the newcomer refused.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Protocol


class Full(Exception):
    """No room, and nobody who could make any. limit: of whom there are so many already."""

    def __init__(self, limit: int, which: str) -> None:
        super().__init__(f"more than {limit} {which}")
        self.limit = limit


class Visitor(Protocol):
    """A connection, or a request that is still arriving."""

    #: By the clock of the door: since when nothing was heard; infinity while it is served.
    silent_since: float

    def leave(self) -> None:
        """Go, now."""
        ...


class Visitors:
    """Those at one door. most: of all. each: with one key, an address or a uid.

    patience: seconds of silence after which somebody has to make room when it is needed.
    clock: seconds, never backwards. what: they are, in messages.
    """

    def __init__(
        self,
        most: int,
        each: int,
        *,
        patience: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        what: str = "connections",
    ) -> None:
        self.most, self.each = most, each
        self._patience, self._clock, self._what = patience, clock, what
        self._keys: dict[Visitor, Hashable] = {}
        self._counts: Counter[Hashable] = Counter()
        self.refused = self.evicted = 0

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Visitor]:
        return iter(list(self._keys))

    def enter(self, visitor: Visitor, key: Hashable) -> None:
        """Let somebody in; another may have to go. Raises Full."""
        if self._counts[key] >= self.each:
            self._make_room(key, self.each, f"{self._what} of one caller")
        elif len(self._keys) >= self.most:
            self._make_room(None, self.most, self._what)
        self._keys[visitor] = key
        self._counts[key] += 1

    def gone(self, visitor: Visitor) -> None:
        """Somebody has gone; said twice is once."""
        if visitor in self._keys:
            key = self._keys.pop(visitor)
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]

    def sweep(self, seconds: float) -> None:
        """Send everybody away who has been silent for so long."""
        before = self._clock() - seconds
        for visitor in self:
            if visitor.silent_since < before:
                self._send_away(visitor)

    def _make_room(self, key: Hashable | None, limit: int, which: str) -> None:
        before = self._clock() - self._patience
        silent = [
            visitor
            for visitor, other in self._keys.items()
            if visitor.silent_since < before and (key is None or other == key)
        ]
        if not silent:
            self.refused += 1
            raise Full(limit, which)
        self._send_away(min(silent, key=lambda visitor: visitor.silent_since))

    def _send_away(self, visitor: Visitor) -> None:
        self.evicted += 1
        self.gone(visitor)
        visitor.leave()
