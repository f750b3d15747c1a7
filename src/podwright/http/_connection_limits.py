"""Who may stay at a listener, and who goes when it is full: the one that has been silent longest.

A limit that only turned newcomers away would let the first comers keep everybody out. Here a silent
connection makes room, and a newcomer is refused only where all are busy.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Protocol


class TooManyVisitors(Exception):
    """There is no room, and no visitor could make any. limit: how many there are already."""

    def __init__(self, limit: int, exceeded: str) -> None:
        super().__init__(f"more than {limit} {exceeded}")
        self.limit = limit


class Visitor(Protocol):
    """A connection, or a request that is still arriving."""

    @property
    def silent_since(self) -> float:
        """The time since which nothing was received; infinity while the visitor is served."""
        ...

    def leave(self) -> None:
        """Close at once."""
        ...


class Visitors:
    """The visitors of one listener. max_visitors: of all. max_per_key: with one key, an address or
    a uid.

    patience: seconds of silence after which a visitor has to make room when it is needed. clock:
    seconds, never backwards. purpose: what a place is for, as messages name it. has_unread: returns
    whether a visitor that seems silent has sent data that was not read yet; such a visitor keeps
    its place.
    """

    def __init__(
        self,
        max_visitors: int,
        max_per_key: int,
        *,
        patience: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        purpose: str = "connections",
        has_unread: Callable[[Visitor], bool] = lambda _: False,
    ) -> None:
        self.most, self.each = max_visitors, max_per_key
        self._patience, self._clock, self._purpose = patience, clock, purpose
        self._unread = has_unread
        self._keys: dict[Visitor, Hashable] = {}
        self._counts: Counter[Hashable] = Counter()
        self.refused = self.evicted = 0

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Visitor]:
        return iter(list(self._keys))

    def enter(self, visitor: Visitor, caller_key: Hashable) -> None:
        """Admit a visitor, for which another may have to go. Raises TooManyVisitors."""
        if not self.admits(visitor, caller_key):
            self.refused += 1
            if self._counts[caller_key] >= self.each:
                raise TooManyVisitors(self.each, f"{self._purpose} of one caller")
            raise TooManyVisitors(self.most, self._purpose)

    def admits(self, visitor: Visitor, caller_key: Hashable) -> bool:
        """Admit a visitor if there is room, for which another may have to go.

        Return whether there was.
        """
        if self._counts[caller_key] >= self.each:
            has_room = self._make_room(caller_key)
        else:
            has_room = not self.full or self._make_room(None)
        if has_room:
            self._keys[visitor] = caller_key
            self._counts[caller_key] += 1
        return has_room

    @property
    def full(self) -> bool:
        """Whether a newcomer can enter only if another visitor makes room."""
        return len(self._keys) >= self.most

    def gone(self, visitor: Visitor) -> None:
        """Note that a visitor has gone. A second call does nothing."""
        if visitor in self._keys:
            key = self._keys.pop(visitor)
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]

    def sweep(self, silent_seconds: float) -> None:
        """Send away every visitor that has been silent for longer than `silent_seconds`."""
        silent_before = self._clock() - silent_seconds
        for visitor in self:
            if visitor.silent_since < silent_before:
                self._send_away(visitor)

    def _make_room(self, caller_key: Hashable | None) -> bool:
        silent_before = self._clock() - self._patience
        silent_visitors = [
            visitor
            for visitor, other_key in self._keys.items()
            if visitor.silent_since < silent_before
            and (caller_key is None or other_key == caller_key)
        ]
        for visitor in sorted(silent_visitors, key=lambda visitor: visitor.silent_since):
            if not self._unread(visitor):
                self._send_away(visitor)
                return True
        return False

    def _send_away(self, visitor: Visitor) -> None:
        self.evicted += 1
        self.gone(visitor)
        visitor.leave()
