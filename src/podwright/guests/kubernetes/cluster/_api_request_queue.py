"""Orders requests to the API server: a limited number run at a time, and the most urgent go first.

A thousand jobs may want something at the same time. A job whose IPUs are ready must not wait behind
jobs that are only queued, and neither must a job that has IPUs to give back.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Final

#: NOW: the job's IPUs are ready and nothing uses them yet. SOON: the job has IPUs. LATER: all else.
NOW, SOON, LATER = range(3)
_REQUEST_RANK: Final[ContextVar[int]] = ContextVar("rank", default=LATER)


@contextlib.contextmanager
def ranked(rank: int) -> Iterator[None]:
    """Give all requests within the block that rank."""
    token = _REQUEST_RANK.set(rank)
    try:
        yield
    finally:
        _REQUEST_RANK.reset(token)


class RequestQueue:
    """Lets requests run in the order of their ranks. max_running: how many run at a time."""

    def __init__(self, max_running: int) -> None:
        self._free = max_running
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, which ends with the block.

        A caller that is cancelled in the very moment in which it got its turn passes the turn on,
        so that none is lost.
        """
        if self._free:
            self._free -= 1
        else:
            turn_future = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (_REQUEST_RANK.get(), next(self._numbers), turn_future))
            try:
                await turn_future
            except asyncio.CancelledError:
                if not turn_future.cancelled():  # it had just got its turn
                    self._pass_turn_on()
                raise
        try:
            yield
        finally:
            self._pass_turn_on()

    def _pass_turn_on(self) -> None:
        while self._waiting:
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(None)
                return
        self._free += 1
