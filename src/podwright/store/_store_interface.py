"""The interface of a store: what the controller may ask of durable state in any database.

Records are JSON documents under a kind and a key. A commit is atomic, and durable when it returns.
It carries the server's epoch and is refused when a newer server has opened the store. Several
commits that wait at the same time may share one transaction (group commit).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from podwright.store._history_rows import History


# A NamedTuple takes more than twice the time to make, and each call makes several changes.
class Put(msgspec.Struct, frozen=True, gc=False):
    """Write a record, new or changed. body: JSON."""

    kind: str
    key: str
    body: bytes


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Remove a record. Removing one that does not exist is not an error."""

    kind: str
    key: str


Change = Put | Delete


class Opened(NamedTuple):
    """The result of `open`. epoch: this server's from now on. records: (kind, key) -> body."""

    epoch: int
    records: dict[tuple[str, str], bytes]


class Snapshot(NamedTuple):
    """All records as of one instant. time: of the store's clock, seconds since 1970."""

    epoch: int
    time: float
    records: dict[tuple[str, str], bytes]


class Store(Protocol):
    """Durable state with one owner at a time, who is identified by an epoch."""

    async def open(self) -> Opened:
        """Claim the store. The epoch grows by one, and every older server is fenced.

        Raises wire.Unavailable, with the path or address, when the database cannot be opened.
        """
        ...

    async def commit(self, changes: Sequence[Change]) -> None:
        """Apply all changes or none. They are durable when the call returns.

        Raises wire.Fenced when a newer server has opened the store, and wire.Unavailable when the
        database failed. In both cases nothing was applied, or, after a lost connection, the outcome
        is unknown. The caller must then stop and open the store anew.
        """
        ...

    async def read(self) -> Snapshot:
        """Return all that is durable at one instant, between two commits, for a backup."""
        ...

    async def peek(self) -> Snapshot:
        """Return the same without `open`.

        A server that uses the store is not disturbed. Raises as `open`.
        """
        ...

    async def replace(self, records: Mapping[tuple[str, str], bytes], *, epoch: int) -> None:
        """Replace all records by these, or change nothing.

        The next `open` has an epoch above `epoch`. This handle must not commit any more. Raises as
        `commit` does.
        """
        ...

    def now(self) -> float:
        """Return seconds since 1970 by the store's clock.

        It never runs backwards or jumps between calls.
        """
        ...

    def wall(self) -> float:
        """Return seconds since 1970 by the wall clock, for time stamps.

        It may jump in either direction.
        """
        ...

    def history(self) -> History:
        """Return the history that is kept beside the records. The store need not be open."""
        ...

    async def close(self) -> None:
        """Finish what is under way and close."""
        ...

    @property
    def commits(self) -> int:
        """The number of durable commits (transactions) so far, for the benchmark."""
        ...
