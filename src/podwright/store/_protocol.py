"""The store's door: what the controller may ask of durable state, whichever database is behind.

Records are JSON documents under a kind and a key. A commit is atomic and durable when it
returns, carries the server's epoch and is refused when a newer server has opened the store.
Several commits that wait at the same time may share one transaction (group commit).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from podwright.store._history_rows import History


class Put(NamedTuple):
    """Write a record, new or changed. body: JSON."""

    kind: str
    key: str
    body: bytes


class Delete(NamedTuple):
    """Remove a record; one that is not there is no error."""

    kind: str
    key: str


Change = Put | Delete


class Opened(NamedTuple):
    """What `open` found. epoch: ours from now on. records: (kind, key) -> body."""

    epoch: int
    records: dict[tuple[str, str], bytes]


class Snapshot(NamedTuple):
    """All records as of one instant. time: the store's clock then, seconds since 1970."""

    epoch: int
    time: float
    records: dict[tuple[str, str], bytes]


class Store(Protocol):
    """Durable state. One owner at a time, by epoch."""

    async def open(self) -> Opened:
        """Claim the store: the epoch grows by one, and every older server is fenced.

        Raises wire.Unavailable when the database cannot be opened, with its path or address.
        """
        ...

    async def commit(self, changes: Sequence[Change]) -> None:
        """Apply all changes or none; durable on return.

        Raises wire.Fenced when a newer server has opened the store, wire.Unavailable when the
        database failed; in both cases nothing was applied, or (a lost connection) it cannot be
        told and the caller must stop and open anew.
        """
        ...

    async def read(self) -> Snapshot:
        """Everything that is durable at one instant, between two commits, for a backup."""
        ...

    async def peek(self) -> Snapshot:
        """The same without `open`: a server that uses the store goes on. Raises as `open` does."""
        ...

    async def replace(self, records: Mapping[tuple[str, str], bytes], *, epoch: int) -> None:
        """Put these records in the place of all others, or change nothing.

        The next `open` has an epoch above `epoch`; this handle must not commit any more.
        Raises as `commit` does.
        """
        ...

    def now(self) -> float:
        """Seconds since 1970 by the store's clock: never backwards, steady between calls."""
        ...

    def history(self) -> History:
        """Where what was is kept beside the records; the store need not be open."""
        ...

    async def close(self) -> None:
        """Finish what is under way and let go."""
        ...

    @property
    def commits(self) -> int:
        """Durable commits (transactions) so far, for the benchmark."""
        ...
