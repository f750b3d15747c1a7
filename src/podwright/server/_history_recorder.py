"""Records once a minute what changed in the pod, without delaying any call.

It costs what has changed: partitions and link domains that changed since the minute before, and
short lists. A minute in which nothing changed costs one number. The pod as a whole is written
first, and again after as many changes as make up another one; other work goes on between parts of
it. A failure here is logged once and tried again with the next minute; the server never waits for
it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from podwright.controller import PodObserver
from podwright.errors import Fenced, PodwrightError
from podwright.history import (
    KEEP_ROWS,
    MOST,
    Writer,
    encode_part,
    kept_items,
    measured,
    sums_of,
)
from podwright.page import Changes, Snapshot, changes, take
from podwright.store import History
from podwright.wire import READING_ATTRIBUTES

_log = logging.getLogger("podwright.server")
MINUTE_SECONDS: Final = 60.0
_LISTS: Final = ("waiters", "jobs")  #: topics that are read as lists
_SLICE: Final = 500  #: partitions of the whole that are read in one turn of the loop
_DOMAIN_SLICE: Final = 20


class _Seen(NamedTuple):
    """Up to where the pod was recorded. definitions: of clusters. change: of
    all changes, the last one."""

    epoch: int
    observer: PodObserver
    definitions: Mapping[str, int]
    change: int
    partitions: int
    domains: int


class Recorder:
    """Records the pod's state.

    read_list: returns one of the server's own lists, whole. observe: returns the present
    controller's observer. count_changes: returns a number that grows with every change.
    store_epoch: returns the store's. wall_clock: seconds since 1970.
    """

    def __init__(
        self,
        history: History,
        read_list: Callable[[str], Awaitable[Any]],
        observe: Callable[[], PodObserver],
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
        self._observe = observe
        self._now, self._sleep = wall_clock, sleep
        self._writer = Writer()
        self._seen: _Seen | None = None
        self._lists: dict[str, dict[str, Any]] = {}
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
        observer, seen = self._observe(), self._seen
        now_seen = _Seen(
            self._epoch(),
            observer,
            observer.definitions(),
            self._counted(),
            observer.partition_feed.revision,
            0,
        )
        if seen is None or seen[:3] != now_seen[:3] or (self._last and minute > self._last + 1):
            self._writer.forget()  # what happened meanwhile is not known
            seen = None
        names: list[str] | None = []
        keys: list[str] | None = []
        lists = self._lists
        if seen is None or seen.change != now_seen.change:
            lists = await self._read_lists(observer)
            names = observer.partition_feed.since(seen.partitions) if seen is not None else None
            await observer.summary.refresh()
            keys = observer.summary.feed.since(seen.domains) if seen is not None else None
        now_seen = now_seen._replace(domains=observer.summary.feed.revision)
        sums = await self._sums(observer, lists)
        if (
            names is None
            or keys is None
            or (self._writer.wants_whole(minute) and (names or keys or lists is not self._lists))
        ):
            parts = await _whole_in_parts(observer, minute, lists)
            row = await asyncio.to_thread(self._writer.whole, minute, parts, sums)
        else:
            changed = {
                **changes(self._lists, lists),
                **_domain_changes(observer, keys),
                **_partition_changes(observer, names),
            }
            row = await asyncio.to_thread(self._writer.add, minute, changed, sums)
        await self._history.write(row, since=minute - KEEP_ROWS, most=MOST, epoch=now_seen.epoch)
        self._seen, self._lists, self._last = now_seen, lists, minute

    async def _read_lists(self, observer: PodObserver) -> dict[str, dict[str, Any]]:
        found = await take(self._ask, self._now, topics=_LISTS)
        lists = {topic: kept_items(topic, found.get(topic, {})) for topic in _LISTS}
        return {"clusters": kept_items("clusters", observer.clusters()), **lists}

    async def _sums(self, observer: PodObserver, lists: Snapshot) -> list[Any]:
        states: Counter[str] = Counter()
        for (_, state), count in observer.summary.states.items():
            states[state] += count
        waiting = len(lists["waiters"]) + len(lists["jobs"])
        sums: list[Any] = sums_of(states, waiting, observer.failed, observer.size_fits())
        if attributes := observer.machine_attributes():
            readings = await asyncio.to_thread(_measured, attributes)
            return sums if readings is None else [*sums, readings]
        return sums


def _measured(attributes: Iterable[Iterable[Mapping[str, str]]]) -> Any:
    """What drivers measured. It runs in a thread, since it looks at all devices that measure."""
    return measured(
        device
        for machine in attributes
        for device in machine
        if not READING_ATTRIBUTES.isdisjoint(device)
    )


def _partition_changes(observer: PodObserver, names: Iterable[str]) -> Changes:
    items: dict[str, object] = {name: observer.partition(name) for name in names}
    return {"partitions": items} if items else {}


def _domain_changes(observer: PodObserver, keys: Iterable[str]) -> Changes:
    items: dict[str, object] = {key: observer.summary.runs(key) for key in keys}
    return {"devices": items} if items else {}


async def _whole_in_parts(observer: PodObserver, minute: int, lists: Snapshot) -> list[bytes]:
    """The pod as a whole. What changes meanwhile is recorded with the next minute as well."""
    parts = [encode_part(minute, {topic: dict(items) for topic, items in lists.items()})]
    keys = iter(observer.summary.keys())
    while some := list(islice(keys, _DOMAIN_SLICE)):
        layouts: dict[str, object] = {key: observer.summary.machines(key) for key in some}
        parts.append(encode_part(minute, {"layout": layouts, **_domain_changes(observer, some)}))
        await asyncio.sleep(0)
    names = observer.partition_names()
    while some := list(islice(names, _SLICE)):
        parts.append(encode_part(minute, _partition_changes(observer, some)))
        await asyncio.sleep(0)
    return parts
