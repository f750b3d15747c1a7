"""The store's clock. Lease times must not depend on which server reads it, nor run backwards.

Wall time is read once, when the store is opened, and carried on by the monotonic clock. A corrected
wall clock therefore neither ends leases early nor revives them. The time of the latest commit is
kept with the records, and a server that opens them later starts no earlier than that.
"""

from __future__ import annotations

from collections.abc import Callable

Seconds = Callable[[], float]


class Clock:
    """Seconds since 1970, starting from `earliest_time` or the wall clock, whichever is later."""

    def __init__(self, wall: Seconds, monotonic: Seconds, earliest_time: float) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._start = monotonic()
        self._base = max(wall(), earliest_time)

    def now(self) -> float:
        """Return the time, which is never below an earlier answer."""
        return self._base + (self._monotonic() - self._start)

    def wall(self) -> float:
        """Return the wall clock's time. It may be corrected in either direction."""
        return self._wall()
