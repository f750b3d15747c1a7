"""Jobs move for the first in the queue, and Slurm never counts devices that cannot be had."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from podwright.errors import NotFound
from podwright.guests.slurm.service import Service, Site
from podwright.guests.slurm.service._job_mover import JobMover, _unheld_blocks
from podwright.guests.slurm.service._missed_hook_sweep import sentence
from podwright.guests.slurm.service._pod_holdings import PodBook
from podwright.guests.slurm.service._queue_large_job_room import QueueRoom
from podwright.guests.slurm.service._squeue_jobs import Listed
from podwright.placement.buddy_blocks import soonest
from podwright.placement.move_plans import plan_moves
from podwright.testing import FakePod, FakeSlurm
from podwright.wire import (
    AskToMoveRequest,
    CallOffMoveRequest,
    DeviceInfo,
    Empty,
    JobMoves,
    MoveRow,
    Value,
)
from tests.guests.slurm.native.test_service import POD, ask

NOW = 1_000_000_000.0


def after(seconds: float) -> str:
    """Return a time in squeue's form."""
    return datetime.fromtimestamp(NOW + seconds).isoformat()


_V = TypeVar("_V", bound=Value)


class MovingPod(FakePod):
    """Sixteen devices, with launches that report the cost of a move, and where they were asked to
    go.

    resetting: devices that a launch has left. refuses: partitions that cannot be moved after all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.able: dict[str, float] = {}
        self.asked: dict[str, tuple[int, ...]] = {}
        self.refuses: set[str] = set()
        self.resetting: set[int] = set()
        self.allowed = True

    async def devices(self, cluster: str, allocation: str) -> list[DeviceInfo]:
        kept = {at for target in self.asked.values() for at in target}

        def state(info: DeviceInfo) -> str:
            at = info.device.offset
            return "RESETTING" if at in self.resetting else "RESERVED" if at in kept else info.state

        found = await super().devices(cluster, allocation)
        return [msgspec.structs.replace(info, state=state(info)) for info in found]

    async def call(self, method: str, request: Value, reply: type[_V]) -> _V:
        self.check_answers()
        await asyncio.sleep(0)
        answer = self._answer(request)
        assert isinstance(answer, reply)
        return answer

    def _answer(self, request: Value) -> Value:
        if isinstance(request, AskToMoveRequest):
            name = request.partition
            if name not in self.made or self.made[name].job != request.job:
                raise NotFound(name)
            if name in self.refuses:
                return MoveRow(partition=name, state="STAYS")
            self.asked[name] = tuple(offset for _, offset in request.devices)
            return MoveRow(partition=name, state="ASKED", within=120.0)
        if isinstance(request, CallOffMoveRequest):
            self.asked.pop(request.partition, None)
            return Empty()
        rows = [
            MoveRow(partition=name, state="ASKED" if name in self.asked else "ABLE", seconds=cost)
            for name, cost in self.able.items()
            if name in self.made
        ]
        return JobMoves(allowed=self.allowed, moves=rows)

    def move(self, name: str) -> None:
        """Note that the launch has ended, and give it the other devices."""
        self.resetting |= set(self.offsets(name))
        self.place(name, self.asked.pop(name))


class Used:
    """A slurmctld. used: its count of the smallest blocks that jobs hold."""

    def __init__(self) -> None:
        self.used = 0
        self.asked = 0

    def __call__(self, argv: Sequence[str]) -> str | None:
        if "licenses" not in argv:
            return None
        self.asked += 1
        return f"LicenseName=ipu_x1 Total=16 Used={self.used} Free=0"


class Lab:
    """A service with its moves, and a queue that the test determines."""

    def __init__(self) -> None:
        self.server, self.slurm = MovingPod(), Used()
        site = Site(pods=(POD,), patience_s=0.05, room_s=3600)
        self.service = Service(site, self.server, FakeSlurm(self.slurm))
        self.mover = JobMover(self.service, self.server, wall=lambda: NOW)
        self.room = QueueRoom(self.service)
        self.book = self.service.books["pod16"]
        self.jobs: dict[int, Listed] = {}

    async def start(self, job: int, size: int, *, movable: bool = True) -> None:
        await self.service.begin_job(ask(job, size, movable="1" if movable else ""))
        self.server.able[f"slurm_{job}"] = 10.0
        self.slurm.used += size
        self.jobs[job] = listed(job, size, "RUNNING", end=after(3600))

    async def end(self, job: int) -> None:
        await self.service.end_job(ask(job, 4))
        self.slurm.used -= self.size(job)
        del self.jobs[job]

    def size(self, job: int) -> int:
        return int(self.jobs[job].licences.removeprefix("ipu:"))

    async def look(self) -> None:
        await self.mover.update(self.jobs, self.room.waiting(self.jobs))
        self.room.update(self.jobs)

    def told(self) -> dict[int, int]:
        """Return how many devices Slurm may give out in blocks of each size."""
        held = {k: self.book.used(k) for k in range(5)}
        return {1 << k: 16 - held[k] - self.service.hidden()[f"ipu_x{1 << k}"] for k in range(5)}


def listed(job: int, size: int, state: str, *, priority: int = 1, end: str = "") -> Listed:
    return Listed(job, state, 0, 0, priority, "Licenses", end, f"ipu:{size}", "")


async def until(true: Callable[[], object]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(120):
        while not true():  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.01)


@pytest.fixture
async def lab(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    """Jobs 2 and 4 hold four devices each in halves of the pod; job 9 waits for eight."""
    monkeypatch.setattr("podwright.guests.slurm.service._job_mover._PAUSE", 0.01)
    made = Lab()
    await made.service.refresh()
    tasks = [asyncio.create_task(made.service.counts.run())]
    for job in (1, 2, 3, 4):
        await made.start(job, 4)
    for job in (1, 3):
        await made.end(job)
    made.jobs[9] = listed(9, 8, "PENDING", priority=7)
    tasks.append(asyncio.create_task(made.mover.run()))
    yield made
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_the_one_in_the_way_moves_and_the_block_is_counted_when_all_of_it_is_free(
    lab: Lab,
) -> None:
    assert lab.told() == {1: 8, 2: 8, 4: 8, 8: 0, 16: 0}
    await lab.look()
    assert lab.told() == {
        1: 0,
        2: 0,
        4: 0,
        8: 0,
        16: 0,
    }  # one half is emptied, the other is where to
    await until(lambda: lab.server.asked)
    ((name, target),) = lab.server.asked.items()
    assert name == "slurm_2"
    await until(lambda: lab.book.moves_end)
    said = sentence(lab.book, 8, 9)
    assert "a block is emptied for it, 4 are free; a job moves to other devices, by " in said
    lab.server.move(name)
    await lab.service.refresh()  # the sweep may be the first to see it
    assert not lab.book.moves
    assert lab.book.holdings[2].bits == sum(1 << at for at in target)
    assert lab.told()[8] == 0  # it is being reset
    await lab.look()
    assert lab.book.closed
    lab.server.resetting.clear()
    await lab.service.refresh()
    assert lab.told() == {1: 8, 2: 8, 4: 8, 8: 8, 16: 0}
    await lab.start(9, 8)
    await until(lambda: lab.service.figures.moved == 1)
    assert lab.service.figures.waited == 0
    await lab.look()
    assert not lab.book.closed


@pytest.mark.parametrize("why", ["asked for nothing", "no handler", "never", "it ends before"])
async def test_nobody_is_asked_who_did_not_agree_or_in_vain(lab: Lab, why: str) -> None:
    if why == "asked for nothing":
        for holding in lab.book.holdings.values():
            holding.movable = False
    elif why == "no handler":
        lab.server.able.clear()
    elif why == "never":
        lab.server.allowed = False
    else:
        for job in (2, 4):
            lab.jobs[job] = lab.jobs[job]._replace(end=after(3))
    await lab.look()
    assert not lab.book.closed
    assert not lab.book.moves


async def test_who_was_started_before_comes_first_as_long_as_nobody_is_asked(lab: Lab) -> None:
    lab.slurm.used += 4  # slurmctld has started job 5, whose hook has not asked yet
    await lab.look()
    await until(lambda: lab.slurm.asked > 2)
    assert not lab.server.asked
    await lab.service.begin_job(ask(5, 4))
    assert lab.service.figures.waited == 0
    assert not lab.book.moves
    assert not lab.book.closed
    await until(lambda: lab.service.figures.stayed == 1)
    assert not lab.server.asked


@pytest.mark.parametrize("why", ["refused", "did not end", "not first", "gone"])
async def test_what_comes_to_nothing_is_undone(lab: Lab, why: str) -> None:
    if why == "refused":
        lab.server.refuses.add("slurm_2")
        await lab.look()
    else:
        await lab.look()
        await until(lambda: lab.server.asked)
    if why == "did not end":
        lab.server.asked.clear()
    elif why == "not first":
        lab.jobs[10] = listed(10, 16, "PENDING", priority=8)
    elif why == "gone":
        del lab.jobs[9]
    await lab.look()
    await until(lambda: not lab.book.moves)
    assert not lab.server.asked
    assert not lab.book.closed
    await lab.service.refresh()
    assert lab.told() == {1: 8, 2: 8, 4: 8, 8: 0, 16: 0}
    lab.jobs = {job: one for job, one in lab.jobs.items() if job != 10}
    await lab.look()
    assert not lab.book.closed  # it rests


async def test_a_mover_that_ends_is_as_good(lab: Lab) -> None:
    await lab.look()
    await until(lambda: lab.server.asked)
    lab.server.asked.clear()  # with its lease
    await lab.end(2)
    await until(lambda: lab.told()[8] == 8)
    await lab.service.refresh()
    assert lab.told() == {1: 12, 2: 12, 4: 12, 8: 8, 16: 0}


async def test_a_new_service_lets_go_on_what_the_old_one_asked(lab: Lab) -> None:
    await lab.look()
    await until(lambda: lab.server.asked)
    again = Service(lab.service.site, lab.server, FakeSlurm(lab.slurm))
    await again.refresh()
    assert sum(again.books["pod16"].blocks.whole_counts_by_order()[:1]) == 4
    lab.server.move("slurm_2")
    await again.refresh()
    assert again.books["pod16"].holdings[2].movable
    lab.server.resetting.clear()
    await again.refresh()
    assert again.books["pod16"].blocks.whole(3) == 8


# -- the block rule ------------------------------------------------------------------------------

N = 32
ACTS = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 31), st.integers(0, 4)), max_size=120)


class Model:
    """A book, a Slurm that starts whatever the counts permit, and hooks that come later.

    running: the jobs that Slurm has started. unborn: those of them that have no devices yet.
    """

    def __init__(self) -> None:
        pod = msgspec.structs.replace(POD, devices=N, largest=N, domain=N)
        self.book = PodBook(pod)
        self.book.blocks = type(self.book.blocks)((1 << N) - 1)
        self.told = self.book.hidden()
        self.running: dict[int, int] = {}
        self.unborn: list[int] = []
        self.is_told = False
        self.jobs = 0

    def may_start(self, order: int) -> bool:
        def used(k: int) -> int:
            return sum(1 << o for o in self.running.values() if o >= k)

        return all(
            N - used(k) - self.told[f"ipu_x{1 << k}"] >= 1 << order for k in range(order + 1)
        )

    def start(self, order: int) -> None:
        if self.may_start(order):
            self.jobs += 1
            self.running[self.jobs] = order
            self.unborn.append(self.jobs)

    def arrive(self, which: int) -> None:
        if not self.unborn:
            return
        job = self.unborn.pop(which % len(self.unborn))
        found = self.book.take(job, self.running[job])
        assert found is not None, "Slurm started what does not fit"
        found.created = True

    def end(self, which: int) -> None:
        if self.book.holdings:
            job = sorted(self.book.holdings)[which % len(self.book.holdings)]
            self.book.release(job)
            self.told = self.book.hidden()
            del self.running[job]

    def plan(self, order: int) -> None:
        book = self.book
        if book.moves or book.closed:
            return
        held = {job: (one.bits, math.inf) for job, one in book.holdings.items()}
        able = dict.fromkeys(held, 1.0)
        found = plan_moves(
            _unheld_blocks(book), order, held, able, now=0.0, unusable_bits=book.unusable
        )
        if found:
            book.empty(found.devices, 0, found.jobs)
            self.is_told = False

    def room(self, order: int) -> None:
        book = self.book
        if not (book.moves or book.closed):
            held = [(one.bits, job) for job, one in book.holdings.items()]
            book.close(soonest(book.blocks.capacity, book.unusable, held, [order], first=-1), 0)
            self.is_told = False

    def tell(self) -> None:
        self.told = self.book.hidden()
        self.is_told = True

    def ask(self) -> None:
        """Check, as in `settled`, that Slurm counts no more than the book."""
        used = sum(1 << order for order in self.running.values())
        if self.is_told and used <= self.book.used(0):
            self.book.unsettled = False

    def move(self, which: int) -> None:
        book = self.book
        if book.moves and not book.unsettled:
            job = sorted(book.moves)[which % len(book.moves)]
            holding = book.holdings[job]
            book.unusable |= holding.bits
            holding.moved = book.moves.pop(job)
            book.count()

    def check(self) -> None:
        book = self.book
        seen = 0
        for bits in [*(one.bits for one in book.holdings.values()), *book.moves.values()]:
            assert not seen & bits, "given twice"
            seen |= bits
        assert not seen & book.blocks.free
        assert not book.closed & book.blocks.free


@settings(deadline=None)
@given(ACTS)
@example([(0, 0, 0), (3, 0, 0), (0, 0, 0), (9, 0, 4), (3, 0, 0)])  # a start around a closed block
def test_what_slurm_may_start_by_the_counts_fits_at_any_time_of_a_move_and_of_room(
    acts: list[tuple[int, int, int]],
) -> None:
    model = Model()
    for act, which, order in acts:
        if act <= 2:
            model.start(order)
        elif act == 3:
            model.arrive(which)
        elif act == 4:
            model.end(which)
        elif act == 5:
            model.plan(order + 1)
        elif act == 6:
            model.tell()
        elif act == 7:
            model.ask()
        elif act == 8:
            model.move(which)
        elif act == 9:
            model.room(order + 1)
        elif which % 4:
            model.book.unusable = 0  # what was left is reset
            model.book.count()
        else:
            model.book.stay()
        model.check()
    while model.unborn:
        model.arrive(0)
        model.check()
    assert sum(1 << order for order in model.running.values()) == model.book.used(0)
