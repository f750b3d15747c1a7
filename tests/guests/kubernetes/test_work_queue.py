"""Each job is reconciled once at a time, no change is lost, and failures are repeated in pauses."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from podwright.errors import Unavailable, WrongState
from podwright.guests.kubernetes import JobKey
from podwright.guests.kubernetes.operator._operator_metrics import OperatorCounts
from podwright.guests.kubernetes.operator._work_queue import WorkQueue

KEY, OTHER = JobKey("team", "one", "uid-1"), JobKey("team", "two", "uid-2")
WALL = 5000.0


def make_queue(
    reconcile: Callable[[JobKey], Awaitable[float]], counts: OperatorCounts | None = None
) -> WorkQueue:
    return WorkQueue(
        reconcile, wall=lambda: WALL, clock=lambda: 0.0, counts=counts or OperatorCounts()
    )


async def until(true: Callable[[], Any]) -> None:
    end = time.monotonic() + 300
    while not true():
        assert time.monotonic() < end
        await asyncio.sleep(0.0)


class Timers:
    """Takes the loop's `call_later`: what is due runs when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.due: list[tuple[float, asyncio.TimerHandle, Callable[[], object]]] = []
        loop = asyncio.get_running_loop()

        def call_later(seconds: float, call: Callable[..., object], *args: Any) -> Any:
            handle = asyncio.TimerHandle(0.0, call, args, loop)
            self.due.append((seconds, handle, lambda: call(*args)))
            return handle

        monkeypatch.setattr(loop, "call_later", call_later)

    @property
    def seconds(self) -> list[float]:
        """The pauses of all timers that are not cancelled."""
        return [seconds for seconds, handle, _ in self.due if not handle.cancelled()]

    def run(self) -> None:
        """Run the timers that are not cancelled."""
        due, self.due = self.due, []
        for _, handle, call in due:
            if not handle.cancelled():
                call()


@pytest.mark.parametrize("seed", range(40))
async def test_the_last_change_of_a_job_is_seen_whenever_it_comes(seed: int) -> None:
    """A reconciliation reads the job early, and the job changes at every moment after that."""
    chance = random.Random(seed)
    version = {KEY: 0, OTHER: 0}
    seen = dict(version)
    under_way: set[JobKey] = set()

    async def reconcile(key: JobKey) -> float:
        assert key not in under_way
        under_way.add(key)
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        read = version[key]
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        under_way.discard(key)
        if chance.random() < 0.2:
            raise WrongState("it was changed")
        seen[key] = read
        return 0.0

    jobs = make_queue(reconcile)
    for _ in range(30):
        key = chance.choice([KEY, OTHER])
        version[key] += 1
        jobs.poke(key)
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
    await until(lambda: jobs.quiet)
    assert seen == version
    assert jobs.idle_uids() == {KEY.uid, OTHER.uid}


async def test_many_changes_during_one_reconciliation_request_one_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers(monkeypatch)
    runs, go_on = 0, asyncio.Event()

    async def reconcile(key: JobKey) -> float:
        nonlocal runs
        runs += 1
        await go_on.wait()
        return WALL + 100.0

    jobs = make_queue(reconcile)
    jobs.poke(KEY)
    await until(lambda: runs == 1)
    assert jobs.idle_uids() == set()
    for _ in range(5):
        jobs.poke(KEY)
    go_on.set()
    await until(lambda: jobs.idle_uids())
    assert timers.seconds == [0.05]  # the change comes before the look in 100 s
    timers.run()
    await until(lambda: runs == 2 and jobs.idle_uids())
    assert timers.seconds == [100.0]


async def test_failures_are_repeated_in_pauses_that_double(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, counts = Timers(monkeypatch), OperatorCounts()
    fails = True

    async def reconcile(key: JobKey) -> float:
        if fails:
            raise Unavailable("nothing answers")
        return 0.0

    jobs = make_queue(reconcile, counts)
    pauses = []
    for _ in range(9):
        jobs.poke(KEY)
        await until(lambda: jobs.idle_uids())
        pauses += timers.seconds
        timers.due.clear()
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert (counts.errors, counts.reconciles) == (9, 9)
    fails = False
    jobs.poke(KEY)
    await until(lambda: jobs.idle_uids())
    fails = True
    jobs.poke(KEY)
    await until(lambda: jobs.idle_uids())
    assert timers.seconds == [1.0]  # a success begins anew


async def test_a_job_at_which_our_code_fails_is_tried_again_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers, counts = Timers(monkeypatch), OperatorCounts()

    async def reconcile(key: JobKey) -> float:
        raise KeyError("spec")

    jobs = make_queue(reconcile, counts)
    jobs.poke(KEY)
    await until(lambda: timers.seconds)
    assert (timers.seconds, counts.errors) == ([60.0], 1)


async def test_a_job_that_is_forgotten_is_not_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers(monkeypatch)

    async def reconcile(key: JobKey) -> float:
        return WALL + 1.0

    jobs = make_queue(reconcile)
    jobs.poke(KEY)
    await until(lambda: timers.seconds)
    assert jobs.key_of(KEY.uid) == KEY
    jobs.forget(KEY.uid)
    assert jobs.key_of(KEY.uid) is None
    assert timers.seconds == []
    await until(lambda: jobs.quiet)


async def test_nothing_starts_after_the_stop() -> None:
    runs = 0

    async def reconcile(key: JobKey) -> float:
        nonlocal runs
        runs += 1
        jobs.poke(OTHER)
        await asyncio.Event().wait()
        return 0.0

    async def beside() -> None:
        raise AssertionError("it began")

    jobs = make_queue(reconcile)
    jobs.poke(KEY)
    await until(lambda: runs == 2)
    jobs.poke(KEY)  # marked: the end of the reconciliation would begin another
    await jobs.stop()
    jobs.poke(KEY)
    jobs.later(KEY, 0.0)
    jobs.begin(beside())
    assert jobs.quiet
    assert runs == 2
