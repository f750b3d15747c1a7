"""The one thread that owns a database.

It takes work from a queue and does nothing else. An executor would make a future, with its locks,
for each piece of work. A commit has a future already, and its hand-over is half of its cost.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

_T = TypeVar("_T")


class DatabaseThread:
    """Runs work in the order in which it arrives.

    The interpreter does not wait for it at its end.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        #: Queues work that nobody waits for. The work must not raise.
        self.submit: Callable[[Callable[[], None]], None] = self._queue.put
        threading.Thread(target=self._run_queued_work, name="store", daemon=True).start()

    async def run(self, work: Callable[[], _T]) -> _T:
        """Run a piece of work in the thread. Return what it returns, and raise what it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        self.submit(partial(_run_and_settle, work, loop, future))
        return await future

    def end(self) -> None:
        """End the thread once all queued work is done."""
        self._queue.put(None)

    def _run_queued_work(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            del work  # the thread keeps no reference to it while it waits


def _run_and_settle(
    work: Callable[[], Any], loop: asyncio.AbstractEventLoop, result_future: asyncio.Future[Any]
) -> None:
    settle_call: Callable[[], None]
    try:
        settle_call = partial(_settle_future, result_future, work(), None)
    except BaseException as error:  # the caller waits for any error
        settle_call = partial(_settle_future, result_future, None, error)
    with suppress(RuntimeError):  # the loop has ended, and with it the caller
        loop.call_soon_threadsafe(settle_call)


def _settle_future(
    result_future: asyncio.Future[Any], outcome: Any, error: BaseException | None
) -> None:
    if result_future.done():
        return  # the caller was cancelled
    if error is None:
        result_future.set_result(outcome)
    else:
        result_future.set_exception(error)
