"""The store's clock: lease time must not depend on which server reads it, nor run backwards.

Wall time is read once, when the store is opened, and carried on by the monotonic clock, so
that a corrected wall clock neither ends leases early nor revives them. The time of the latest
commit is kept with the records; a server that opens them later starts no earlier than that.
"""

from __future__ import annotations

from collections.abc import Callable

Seconds = Callable[[], float]


class Clock:
    """Seconds since 1970, from `floor` or the wall clock, whichever is later."""

    def __init__(self, wall: Seconds, monotonic: Seconds, floor: float) -> None:
        self._monotonic = monotonic
        self._start = monotonic()
        self._base = max(wall(), floor)

    def now(self) -> float:
        """Never below an earlier answer."""
        return self._base + (self._monotonic() - self._start)
