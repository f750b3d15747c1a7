"""A store that can be read but not written for now. A server on a full disk starts with it.

It holds a snapshot that was read once. No other server can write meanwhile, since this one has the
right to the store. This server touches no machine, since it cannot record what it is about to do.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from podwright.errors import PodwrightError
from podwright.store._clock import Clock, Seconds
from podwright.store._history_rows import History
from podwright.store._store_interface import Change, Opened, Snapshot


class ReadOnlyStore:
    """A `Store` whose commits all raise `write_refusal`. store_name: the store's, for messages."""

    commits = 0

    def __init__(
        self,
        store_name: str,
        snapshot: Snapshot,
        write_refusal: PodwrightError,
        history: History,
        *,
        wall: Seconds = time.time,
        monotonic: Seconds = time.monotonic,
    ) -> None:
        self.name = store_name
        self.why = write_refusal
        self._snapshot = snapshot
        self._history = history
        self._clock = Clock(wall, monotonic, snapshot.time)

    async def open(self) -> Opened:
        """Return the snapshot, under the epoch that an opening would claim. Nothing is claimed."""
        return Opened(self._snapshot.epoch + 1, dict(self._snapshot.records))

    async def commit(self, changes: Sequence[Change]) -> None:
        """Raise the reason why nothing can be written."""
        raise self.why

    async def read(self) -> Snapshot:
        """Return the snapshot."""
        return self._snapshot

    async def peek(self) -> Snapshot:
        """Return the snapshot."""
        return self._snapshot

    async def replace(self, records: Mapping[tuple[str, str], bytes], *, epoch: int) -> None:
        """Raise the reason why nothing can be written."""
        raise self.why

    def now(self) -> float:
        """Return the time of the store's clock; see Store."""
        return self._clock.now()

    def wall(self) -> float:
        """Return the wall clock's time; see Store."""
        return self._clock.wall()

    def history(self) -> History:
        """Return the history of the store itself."""
        return self._history

    async def close(self) -> None:
        """Do nothing: there is no connection."""
