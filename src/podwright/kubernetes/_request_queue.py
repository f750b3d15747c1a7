"""Who asks the API server next: so many at once, the most urgent first.

A thousand jobs may want something at the same time. One whose IPUs are ready must not stand behind
all that only wait, nor one that has IPUs to give back.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Final

#: IPUs are ready and nothing uses them; a job has some; all else.
NOW, SOON, LATER = range(3)
_RANK: Final[ContextVar[int]] = ContextVar("rank", default=LATER)


@contextlib.contextmanager
def ranked(rank: int) -> Iterator[None]:
    """What is asked in here has that rank."""
    token = _RANK.set(rank)
    try:
        yield
    finally:
        _RANK.reset(token)


class RequestQueue:
    """most: how many at once."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for it; it ends with the block."""
        if self._free:
            self._free -= 1
        else:
            mine = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (_RANK.get(), next(self._numbers), mine))
            try:
                await mine
            except asyncio.CancelledError:
                if not mine.cancelled():  # it was our turn already
                    self._pass_on()
                raise
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting:
            _, _, one = heapq.heappop(self._waiting)
            if not one.done():
                one.set_result(None)
                return
        self._free += 1
