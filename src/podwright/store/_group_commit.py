"""Group commit: the common part of the durable stores.

One thread owns the database. Commits that wait at the same time share one transaction, so many
clients cost as many disk syncs as one. After a failure that leaves it unknown what became durable,
the handle refuses all further work: only opening the database anew reads the truth.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from podwright.errors import Fenced, InvalidRequest, PodwrightError, Unavailable
from podwright.store._clock import Clock
from podwright.store._store_interface import Change, Opened, Put, Snapshot

if TYPE_CHECKING:
    import asyncio

    from podwright.store._database_thread import DatabaseThread

#: One caller's changes, and the future that the caller awaits.
_WaitingCommit = tuple[Sequence[Change], "asyncio.Future[None]"]
#: (kind, key) -> body, or None where the record is deleted.
Final = Mapping[tuple[str, str], bytes | None]
_T = TypeVar("_T")


class GroupStore(ABC):
    """A `Store` whose database is called from a thread of its own.

    name: the database's name for messages, without secrets. A subclass implements the methods that
    open, read, write and close the database; each of them runs in the thread.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._clock: Clock | None = None
        self._epoch = 0
        self._commits = 0
        self._broken: PodwrightError | None = None
        self._waiting: deque[_WaitingCommit] = deque()
        self._handing_over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: DatabaseThread | None = None

    # -- what a database does, in the thread -------------------------------------------------

    @abstractmethod
    def _open_database(self) -> tuple[Opened, Clock]:
        """Claim the database. Return its records and its clock."""

    @abstractmethod
    def _write(self, final_bodies: Final, now: float) -> bool:
        """Write one transaction. Return whether it was written.

        False means that a newer server has opened the store and that nothing was written. Raises
        PodwrightError.
        """

    @abstractmethod
    def _read(self) -> Snapshot:
        """Return all records, as of one instant."""

    @abstractmethod
    def _replace(self, records: Mapping[tuple[str, str], bytes], epoch: int) -> bool:
        """Replace all records by these; see Store. Return as `_write` does."""

    @abstractmethod
    def _close_database(self) -> None:
        """Close the database. It may already be closed."""

    @abstractmethod
    def _nothing_written(self, error: BaseException) -> bool:
        """Return whether it is certain that the failed transaction has written nothing."""

    # -- the door ----------------------------------------------------------------------------

    async def open(self) -> Opened:
        """Claim the database, and create it if it is missing; see Store.

        Raises wire.Unavailable when it cannot be opened, is damaged, belongs to another program, or
        was written by a newer Podwright.
        """
        import asyncio

        from podwright.store._database_thread import DatabaseThread

        await self.close()
        self._broken = None
        self._loop = asyncio.get_running_loop()
        thread = DatabaseThread()
        try:
            opened_store, clock = await thread.run(self._open_database)
        except BaseException:
            thread.end()
            raise
        self._thread, self._clock, self._epoch = thread, clock, opened_store.epoch
        return opened_store

    async def commit(self, changes: Sequence[Change]) -> None:
        """Apply all changes or none, durably; see Store.

        A caller that is cancelled cannot know whether its changes were applied; mostly they are.

        Two callers that change one record in the same group are applied in the order of their
        calls: the queue keeps that order, and the later change replaces the earlier one in the
        transaction.
        """
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            raise self._not_open_error()
        copied_changes = tuple(changes)
        _check_record_names(copied_changes)  # checked here, so that a bad name fails alone
        commit_future = loop.create_future()
        self._waiting.append((copied_changes, commit_future))
        if not self._handing_over:
            # The hand-over waits for the end of this turn of the loop, so that commits of other
            # tasks in the same turn join the group.
            self._handing_over = True
            loop.call_soon(self._hand_over_commits, thread)
        await commit_future

    async def read(self) -> Snapshot:
        """Return all records as of one instant; see Store."""
        return await self._in_thread(self._read_fenced)

    async def replace(self, records: Mapping[tuple[str, str], bytes], *, epoch: int) -> None:
        """Replace all records by these; see Store."""
        await self._in_thread(lambda: self._checked(lambda: self._replace(records, epoch)))

    def now(self) -> float:
        """Return the time of the store's clock; see Store."""
        if self._clock is None:
            raise self._not_open_error()
        return self._clock.now()

    def wall(self) -> float:
        """Return the wall clock's time; see Store."""
        if self._clock is None:
            raise self._not_open_error()
        return self._clock.wall()

    async def close(self) -> None:
        """Write the waiting commits, then close the database. A second call does nothing.

        The thread runs its work in order, so commits that were queued before are written before the
        database closes. A hand-over that is still scheduled then finds nothing left to write.
        """
        loop, thread, self._thread = self._loop, self._thread, None
        if loop is None or thread is None:
            return
        thread.submit(self._write_waiting)
        try:
            await thread.run(self._close_database)
        finally:
            thread.end()
        self._clock = None

    @property
    def commits(self) -> int:
        """The number of transactions so far."""
        return self._commits

    # -- inside ------------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        if self._loop is None or self._thread is None:
            raise self._not_open_error()
        return await self._thread.run(work)

    def _hand_over_commits(self, thread: DatabaseThread) -> None:
        self._handing_over = False
        thread.submit(self._write_waiting)

    def _write_waiting(self) -> None:
        """Write all waiting commits as one transaction. It runs in the store's thread."""
        waiting_commits: list[_WaitingCommit] = []
        while self._waiting:
            waiting_commits.append(self._waiting.popleft())
        if not waiting_commits:
            return  # an earlier call took them
        final_bodies: dict[tuple[str, str], bytes | None] = {}
        for changes, _ in waiting_commits:
            for change in changes:
                final_bodies[change.kind, change.key] = (
                    change.body if isinstance(change, Put) else None
                )
        error: BaseException | None = None
        try:
            assert self._clock is not None
            self._checked(partial(self._write, final_bodies, self._clock.now()))
        except BaseException as exception:  # the callers wait for any error
            error = exception
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has ended, and with it the callers
            self._loop.call_soon_threadsafe(_settle_commits, waiting_commits, error)

    def _checked(self, transaction: Callable[[], bool]) -> None:
        """Run a transaction. After one whose outcome is unknown, refuse every further one."""
        if self._broken is not None:
            raise self._broken
        try:
            epoch_is_ours = transaction()
        except BaseException as error:
            if not self._nothing_written(error):
                # Only reading the database anew shows what became durable.
                self._broken = Unavailable(
                    f"the store {self.name} failed before ({error})",
                    would_work="open it anew, which reads what became durable",
                )
            raise
        if not epoch_is_ours:
            raise Fenced(
                f"a newer server has opened the store {self.name} since epoch {self._epoch}"
            )
        self._commits += 1

    def _read_fenced(self) -> Snapshot:
        if self._broken is not None:
            raise self._broken
        return self._read()

    def _not_open_error(self) -> Unavailable:
        return Unavailable(f"the store {self.name} is not open")


def _check_record_names(changes: Sequence[Change]) -> None:
    names = [name for change in changes for name in (change.kind, change.key)]
    text = "".join(names)
    if text.isascii() and "\0" not in text:
        return
    for name in names:
        if "\0" in name or not _is_encodable(name):
            raise InvalidRequest(
                f"the name {name!r} is not text",
                would_work="use letters, digits, - and _",
            )


def _is_encodable(record_name: str) -> bool:
    try:
        record_name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _settle_commits(waiting_commits: list[_WaitingCommit], error: BaseException | None) -> None:
    for _, commit_future in waiting_commits:
        if commit_future.done():
            continue  # its caller was cancelled
        if error is None:
            commit_future.set_result(None)
        else:
            commit_future.set_exception(error)
