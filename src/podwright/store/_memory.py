"""A store without a disk: for tests, and for servers whose state may be lost.

It behaves as the durable stores do, fencing included. It can be made to fail at a given commit,
before or after the changes become durable. A controller must be unable to distinguish these two
cases. The records outlive the handle: `reopened()` gives the next server a handle of its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from podwright.errors import Fenced, PodwrightError, Unavailable
from podwright.store._clock import Clock, Seconds
from podwright.store._history_rows import MemoryHistory
from podwright.store._store_interface import Change, Opened, Put, Snapshot


class _SharedDisk:
    """The state that several handles share, as several servers share a database."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], bytes] = {}
        self.epoch = 0
        self.time = 0.0
        self.history = MemoryHistory()


class MemoryStore:
    """A `Store` in memory."""

    def __init__(self, *, wall: Seconds = time.time, monotonic: Seconds = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._disk = _SharedDisk()
        self._clock: Clock | None = None
        self._epoch = 0
        self._commits = 0
        self._commits_to_failure = 0
        self._fail_durable = False
        self._fail_lasting = False
        self._fail_error: PodwrightError | None = None

    def reopened(self) -> MemoryStore:
        """Return another server's handle on the same records."""
        handle = MemoryStore(wall=self._wall, monotonic=self._monotonic)
        handle._disk = self._disk
        return handle

    def fail(
        self,
        nth: int = 1,
        *,
        durable: bool = False,
        lasting: bool = False,
        error: PodwrightError | None = None,
    ) -> None:
        """Make the nth commit from now fail.

        durable: its changes are kept all the same, as when the answer was lost. lasting: every
        later commit of this handle fails too and keeps nothing, as when the process had died.
        error: the exception to raise; by default wire.Unavailable.
        """
        self._commits_to_failure, self._fail_durable = nth, durable
        self._fail_lasting, self._fail_error = lasting, error

    async def open(self) -> Opened:
        """Claim the records; see Store."""
        disk = self._disk
        disk.epoch += 1
        self._epoch = disk.epoch
        self._clock = Clock(self._wall, self._monotonic, disk.time)
        disk.time = self._clock.now()
        return Opened(disk.epoch, dict(disk.records))

    async def commit(self, changes: Sequence[Change]) -> None:
        """Apply all changes or none; see Store. Other tasks run first, as during a disk write."""
        import asyncio

        copied_changes = list(changes)
        await asyncio.sleep(0)
        if self._clock is None:
            raise Unavailable("the store is not open")
        if self._epoch != self._disk.epoch:
            raise Fenced(
                f"a newer server has opened the store (epoch {self._disk.epoch}, ours was "
                f"{self._epoch})"
            )
        is_failing = self._fails_now()
        if is_failing and not self._fail_durable:
            raise self._planned_failure()
        for change in copied_changes:
            if isinstance(change, Put):
                self._disk.records[change.kind, change.key] = change.body
            else:
                self._disk.records.pop((change.kind, change.key), None)
        self._disk.time = self._clock.now()
        self._commits += 1
        if is_failing:
            self._fail_durable = False
            raise self._planned_failure()

    async def read(self) -> Snapshot:
        """Return all records; see Store."""
        disk = self._disk
        return Snapshot(disk.epoch, disk.time, dict(disk.records))

    async def peek(self) -> Snapshot:
        """Return all records without claiming them; see Store."""
        return await self.read()

    async def replace(self, records: Mapping[tuple[str, str], bytes], *, epoch: int) -> None:
        """Replace all records by these; see Store."""
        await self.commit(())
        self._disk.records = dict(records)
        self._disk.epoch = max(self._disk.epoch, epoch)

    def _fails_now(self) -> bool:
        if not self._commits_to_failure:
            return False
        if self._commits_to_failure > 1:
            self._commits_to_failure -= 1
            return False
        if not self._fail_lasting:
            self._commits_to_failure = 0
        return True

    def _planned_failure(self) -> PodwrightError:
        return self._fail_error or Unavailable("the store failed, as it was told to")

    def now(self) -> float:
        """Return the time of the store's clock; see Store."""
        if self._clock is None:
            raise Unavailable("the store is not open")
        return self._clock.now()

    def wall(self) -> float:
        """Return the wall clock's time; see Store."""
        if self._clock is None:
            raise Unavailable("the store is not open")
        return self._clock.wall()

    def history(self) -> MemoryHistory:
        """Return the store's history, which outlives the handle too."""
        return self._disk.history

    async def close(self) -> None:
        """Close the handle. The records stay for `reopened()`."""
        self._clock = None

    @property
    def commits(self) -> int:
        """The number of commits of this handle so far."""
        return self._commits
