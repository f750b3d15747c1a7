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
MINUTE_SECONDS: Final = 60.0


class Recorder:
    """Records the pod's state.

    read_list: returns one of the server's own lists, whole. count_changes: returns a number that
    grows with every change. store_epoch: returns the store's. wall_clock: seconds since 1970.
    """

    def __init__(
        self,
        history: History,
        read_list: Callable[[str], Awaitable[Any]],
        count_changes: Callable[[], int],
        store_epoch: Callable[[], int],
        *,
        wall_clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._history, self._ask, self._counted, self._epoch = (
            history,
            read_list,
            count_changes,
            store_epoch,
        )
        self._now, self._sleep = wall_clock, sleep
        self._writer = Writer()
        self._seen: tuple[int, int] | None = None  # None: what is there may have changed
        self._last = 0
        self._problem = ""

    async def run(self) -> None:
        """Record each minute at its beginning, without end."""
        while True:
            await self._sleep(MINUTE_SECONDS - self._now() % MINUTE_SECONDS)
            await self.record()

    async def record(self) -> None:
        """Record the present state, unless this minute is recorded already."""
        minute = int(self._now() // MINUTE_SECONDS)
        if minute <= self._last or not self._epoch():
            return  # the clock was set back, or another server is active
        try:
            await self._write_minute(minute)
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

    async def _write_minute(self, minute: int) -> None:
        store_epoch, change_count = self._epoch(), self._counted()
        snapshot = None
        if self._seen != (store_epoch, change_count):
            snapshot = await take(self._ask, self._now, topics=TOPICS)
        if self._last and minute > self._last + 1:
            self._writer.forget()  # the recorder was stopped for a while
            snapshot = snapshot or await take(self._ask, self._now, topics=TOPICS)
        minute_row = await asyncio.to_thread(self._writer.add, minute, snapshot)
        await self._history.write(minute_row, since=minute - KEEP, most=MOST, epoch=store_epoch)
        # Readings change without being counted.
        has_readings = bool(snapshot and snapshot.get("readings"))
        self._seen, self._last = None if has_readings else (store_epoch, change_count), minute
