"""Commits, and the outcomes that may travel with a later one.

A step's intent is committed before its hardware is touched. Its good outcome can be read off
the hardware after a crash, so it need not cost a commit of its own: it rides with the next
commit of anybody, or after a short while alone. Order is kept: an outcome is durable no later
than anything that builds on it.

The first commit that fails stops the controller for good: a new start reads the truth. Where the
disk is full it is read from until then, so nothing in memory may be ahead of what is written:
what was taken for a change is given back `unless_written`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from podwright.controller.state._audit_intents import with_intent
from podwright.controller.state._request_ids import with_request
from podwright.errors import PodwrightError, Unavailable
from podwright.store import Change, Store


@contextmanager
def unless_written(undo: Callable[[], None]) -> Iterator[None]:
    """Around a commit. undo: gives back what memory took for it, where it failed."""
    try:
        yield
    except BaseException:
        undo()
        raise


class Journal:
    """Writes changes to the store. linger_seconds: seconds that one may wait, to be written with
    others.
    """

    def __init__(self, store: Store, *, linger_seconds: float = 0.02) -> None:
        self._store = store
        self._linger_seconds = linger_seconds
        self._waiting: dict[tuple[str, str], Change] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  #: by the loop's clock: when what waits is written, whoever comes or not
        self._flush_tasks: set[asyncio.Task[None]] = set()
        #: Grows with every change that is written, or will be.
        self.changes = 0
        #: Why nothing can be written any more, or None.
        self.failure: PodwrightError | None = None

    async def commit(self, changes: Sequence[Change]) -> None:
        """Write changes, and all that wait, in one transaction; durable on return.

        Raises wire.Unavailable or wire.Fenced; after that nothing can be written any more.
        """
        self.check()
        if changes:  # what waits was counted by `later`
            self.changes += 1
        changes = with_intent(with_request(changes))
        waiting_changes = self._waiting
        if waiting_changes:
            for change in changes:
                waiting_changes.pop((change.kind, change.key), None)
            changes = [*waiting_changes.values(), *changes]
            self._waiting = {}
        try:
            await self._store.commit(changes)
        except BaseException as commit_error:
            self._record_failure(commit_error)
            raise

    def later(self, change: Change) -> None:
        """Store a change with the next commit, or after `linger_seconds` seconds."""
        self.changes += 1
        if not self._waiting:
            loop = asyncio.get_running_loop()
            self._due = loop.time() + self._linger_seconds
            if self._timer is None:
                self._timer = loop.call_at(self._due, self._start_flush)
        self._waiting[change.kind, change.key] = change

    async def flush(self) -> None:
        """Commit the waiting changes now."""
        if self._waiting:
            await self.commit(())
        while self._flush_tasks:
            await asyncio.gather(*self._flush_tasks, return_exceptions=True)

    def check(self) -> None:
        """Raise wire.Unavailable once a commit has failed."""
        if self.failure is not None:
            raise Unavailable(
                f"the server has stopped, since its store failed ({self.failure.message})",
                would_work="restart the server; it goes on from what was written",
            )

    @property
    def full(self) -> PodwrightError | None:
        """Why nothing can be written for now, where that is a full disk: what is in memory is what
        was written, and can be read; else None."""
        return self.failure if self.failure is not None and self.failure.data.get("full") else None

    def only_read(self, cause: PodwrightError) -> None:
        """Refuse all writes from the start on. cause: the error of a full disk."""
        self._record_failure(cause)

    def _record_failure(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = (
                error
                if isinstance(error, PodwrightError)
                else Unavailable(f"a commit did not end well ({type(error).__name__})")
            )

    def _start_flush(self) -> None:
        """Write what has waited for long enough.

        A commit takes what waits along and leaves the timer as it is: most commits do that, and
        a timer of its own for each of them would cost more than this look.
        """
        self._timer = None
        if self.failure is not None or not self._waiting:
            return
        loop = asyncio.get_running_loop()
        # What waits may have come later than what the timer was set for. Loops round their timers,
        # so one that is early by a little is in time.
        if loop.time() + self._linger_seconds / 10 < self._due:
            self._timer = loop.call_at(self._due, self._start_flush)
        else:
            flush_task = loop.create_task(self._flush_alone())
            self._flush_tasks.add(flush_task)
            flush_task.add_done_callback(self._flush_tasks.discard)

    async def _flush_alone(self) -> None:
        try:
            await self.commit(())
        except PodwrightError:
            return  # `failure` says it to everybody who asks
