"""Records once a minute what the pod is like, without delaying any call.

A minute in which nothing changed costs one number. A failure here is logged once and tried again
with the next minute; the server never waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from podwright.errors import Fenced, PodwrightError
from podwright.history import KEEP, MOST, TOPICS, Writer
from podwright.page import take
from podwright.store import History

_log = logging.getLogger("podwright.server")
MINUTE: Final = 60.0


class Recorder:
    """Records the pod's state.

    ask: returns one of the server's own lists, whole. counted: returns a number that grows with
    every change. epoch: returns the store's. now: seconds since 1970.
    """

    def __init__(
        self,
        history: History,
        ask: Callable[[str], Awaitable[Any]],
        counted: Callable[[], int],
        epoch: Callable[[], int],
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._history, self._ask, self._counted, self._epoch = history, ask, counted, epoch
        self._now, self._sleep = now, sleep
        self._writer = Writer()
        self._seen: tuple[int, int] | None = None  # None: what is there may have changed
        self._last = 0
        self._problem = ""

    async def run(self) -> None:
        """Record each minute at its beginning, without end."""
        while True:
            await self._sleep(MINUTE - self._now() % MINUTE)
            await self.record()

    async def record(self) -> None:
        """Record the present state, unless this minute is recorded already."""
        minute = int(self._now() // MINUTE)
        if minute <= self._last or not self._epoch():
            return  # the clock was set back, or another server is active
        try:
            await self._write(minute)
            problem = ""
        except Fenced:
            return  # another server writes now
        except PodwrightError as error:
            problem = f"{error}"
        except Exception as error:
            _log.debug("the history", exc_info=True)
            problem = f"{type(error).__name__}: {error}"
        if problem:
            self._seen = None
            self._writer.forget()
        if problem and not self._problem:
            _log.warning(
                "the pod's history cannot be written, and writing is tried again: %s", problem
            )
        elif self._problem and not problem:
            _log.info("the pod's history is written again")
        self._problem = problem

    async def _write(self, minute: int) -> None:
        epoch, counted = self._epoch(), self._counted()
        snapshot = None
        if self._seen != (epoch, counted):
            snapshot = await take(self._ask, self._now, topics=TOPICS)
        if self._last and minute > self._last + 1:
            self._writer.forget()  # the recorder was stopped for a while
            snapshot = snapshot or await take(self._ask, self._now, topics=TOPICS)
        row = await asyncio.to_thread(self._writer.add, minute, snapshot)
        await self._history.write(row, since=minute - KEEP, most=MOST, epoch=epoch)
        # Readings change without being counted.
        measures = bool(snapshot and snapshot.get("readings"))
        self._seen, self._last = None if measures else (epoch, counted), minute
