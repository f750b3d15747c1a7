"""Group commit: what the durable stores have in common.

One thread owns the database. Commits that wait at the same time share one transaction, so many
clients cost as many waits for the disk as one. A failure after which nobody can tell what became
durable ends the handle: only opening anew reads the truth.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from podwright.errors import Fenced, InvalidRequest, PodwrightError, Unavailable
from podwright.store._clock import Clock
from podwright.store._protocol import Change, Opened, Put, Snapshot

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

#: One caller's changes, and what it waits for.
_Waiting = tuple[Sequence[Change], "asyncio.Future[None]"]
#: (kind, key) -> body, or None where the record goes.
Final = Mapping[tuple[str, str], bytes | None]
_T = TypeVar("_T")


class GroupStore(ABC):
    """A `Store` whose database is called from a thread of its own.

    name: the database as messages name it, without secrets. A subclass opens, writes and closes;
    each of these runs in the thread.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._clock: Clock | None = None
        self._epoch = 0
        self._commits = 0
        self._broken: PodwrightError | None = None
        self._waiting: deque[_Waiting] = deque()
        self._handing_over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: ThreadPoolExecutor | None = None

    # -- what a database does, in the thread -------------------------------------------------

    @abstractmethod
    def _open_database(self) -> tuple[Opened, Clock]:
        """Claim the database."""

    @abstractmethod
    def _write(self, final: Final, now: float) -> bool:
        """Write one transaction. Returns False, having written nothing, when a newer server has
        opened the store. Raises PodwrightError."""

    @abstractmethod
    def _read(self) -> Snapshot:
        """All records, as of one instant."""

    @abstractmethod
    def _replace(self, records: Mapping[tuple[str, str], bytes], epoch: int) -> bool:
        """Put these records in the place of all others; see Store. Returns as `_write`."""

    @abstractmethod
    def _close_database(self) -> None:
        """Let go; nothing may be open."""

    @abstractmethod
    def _nothing_written(self, error: BaseException) -> bool:
        """Whether it is certain that the transaction that failed left nothing behind."""

    # -- the door ----------------------------------------------------------------------------

    async def open(self) -> Opened:
        """Claim the database, made when missing; see Store.

        Raises wire.Unavailable when it cannot be opened, is damaged, is not ours, or was written
        by a newer Podwright.
        """
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        await self.close()
        self._broken = None
        self._loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        try:
            opened, clock = await self._loop.run_in_executor(thread, self._open_database)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        self._thread, self._clock, self._epoch = thread, clock, opened.epoch
        return opened

    async def commit(self, changes: Sequence[Change]) -> None:
        """Apply all changes or none, durably; see Store.

        A caller that is cancelled cannot tell whether they were applied: they mostly are.
        """
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            raise self._not_open()
        group = tuple(changes)
        _check_text(group)  # here, so that it fails alone and not with its neighbours
        done = loop.create_future()
        self._waiting.append((group, done))
        if not self._handing_over:
            # Not at once: what other tasks commit in this turn of the loop goes with it.
            self._handing_over = True
            loop.call_soon(self._hand_over, thread)
        await done

    async def read(self) -> Snapshot:
        """All records as of one instant; see Store."""
        return await self._in_thread(self._read_fenced)

    async def replace(self, records: Mapping[tuple[str, str], bytes], *, epoch: int) -> None:
        """Put these records in the place of all others; see Store."""
        await self._in_thread(lambda: self._checked(lambda: self._replace(records, epoch)))

    def now(self) -> float:
        """The store's clock; see Store."""
        if self._clock is None:
            raise self._not_open()
        return self._clock.now()

    async def close(self) -> None:
        """Finish what waits, then close the database. Closing twice is no error."""
        loop, thread, self._thread = self._loop, self._thread, None
        if loop is None or thread is None:
            return
        thread.submit(self._write_waiting)
        await loop.run_in_executor(thread, self._close_database)
        self._clock = None
        thread.shutdown(wait=False)

    @property
    def commits(self) -> int:
        """Transactions so far."""
        return self._commits

    # -- inside ------------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        if self._loop is None or self._thread is None:
            raise self._not_open()
        return await self._loop.run_in_executor(self._thread, work)

    def _hand_over(self, thread: ThreadPoolExecutor) -> None:
        self._handing_over = False
        thread.submit(self._write_waiting)

    def _write_waiting(self) -> None:
        """In the store's thread: everything that waits, as one transaction."""
        group: list[_Waiting] = []
        while self._waiting:
            group.append(self._waiting.popleft())
        if not group:
            return  # an earlier turn took it
        final: dict[tuple[str, str], bytes | None] = {}
        for changes, _ in group:
            for change in changes:
                final[change.kind, change.key] = change.body if isinstance(change, Put) else None
        error: BaseException | None = None
        try:
            assert self._clock is not None
            now = self._clock.now()
            self._checked(lambda: self._write(final, now))
        except BaseException as exception:  # whatever it is, the callers wait for it
            error = exception
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
            self._loop.call_soon_threadsafe(_settle, group, error)

    def _checked(self, transaction: Callable[[], bool]) -> None:
        """Run a transaction of ours; after one whose outcome is unknown no other follows."""
        if self._broken is not None:
            raise self._broken
        try:
            ours = transaction()
        except BaseException as error:
            if not self._nothing_written(error):
                # What became durable shows only when the database is read anew.
                self._broken = Unavailable(
                    f"the store {self.name} failed before ({error})",
                    would_work="open it anew, which reads what became durable",
                )
            raise
        if not ours:
            raise Fenced(
                f"a newer server has opened the store {self.name} since epoch {self._epoch}"
            )
        self._commits += 1

    def _read_fenced(self) -> Snapshot:
        if self._broken is not None:
            raise self._broken
        return self._read()

    def _not_open(self) -> Unavailable:
        return Unavailable(f"the store {self.name} is not open")


def _check_text(changes: Sequence[Change]) -> None:
    for change in changes:
        for name in (change.kind, change.key):
            if "\0" in name or not (name.isascii() or _is_text(name)):
                raise InvalidRequest(
                    f"the name {name!r} is not text", would_work="use letters, digits, - and _"
                )


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _settle(group: list[_Waiting], error: BaseException | None) -> None:
    for _, done in group:
        if done.done():
            continue  # its caller was cancelled
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
