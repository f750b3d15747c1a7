"""Moves jobs that agreed to it, so that the first job in Slurm's queue gets a block of its size.
The free devices are enough for that job by number, but do not lie together. A move changes a job's
devices only: the job and its hosts stay the same.

Slurm is first told that neither the block that is emptied nor the places that jobs move to can be
had. Jobs are asked to move only after each job that Slurm had started before has got its devices.
So whatever Slurm starts finds its place, before the move and after it. The server asks the
launches, and changes their devices when they have ended (`SchedulerMoves`). The devices that they
leave are reset. They are counted again as soon as all of them are free: then the waiting job can
have them, and Slurm starts it by its own priority.

Nothing of this is durable. When the service is gone, the server alone decides whether a launch
moves or stays. Until then nobody else gets the places that it was to move to.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from podwright.errors import NotFound, PodwrightError
from podwright.guests.shared import Waits, first_in_line
from podwright.guests.slurm.service._pod_book import (
    SETTLE_S,
    JobHolding,
    PodBook,
    job_of,
    settled,
)
from podwright.guests.slurm.service._queue import Listed
from podwright.placement.buddy_blocks import Blocks, fit
from podwright.placement.move_plans import MovePlan, likely_end, plan_moves
from podwright.wire import (
    AskToMoveRequest,
    CallOffMoveRequest,
    Empty,
    JobMoves,
    JobMovesRequest,
    MoveRow,
    Value,
)

if TYPE_CHECKING:
    from podwright.guests.slurm.service._service import Service

_log = logging.getLogger("podwright.slurm")
_PAUSE: Final = 0.3
#: Seconds between a plan that failed and the next one for the same job.
_REST_S: Final = 60.0

_V = TypeVar("_V", bound=Value)


class MoveServer(Protocol):
    """What the mover asks of vipu-server."""

    async def call(self, method: str, request: Value, reply: type[_V]) -> _V:
        """Call any method of podwright.v1. Raises PodwrightError."""
        ...


class _Stage(enum.Enum):
    HIDDEN = "Slurm is told"
    ASKED = "launches are asked"


@dataclass(slots=True, eq=False)
class _Plan:
    """The plan of moves that makes room for one job.

    job: the job that gets room. since: when the plan was made, by the service's clock. requested:
    the holdings that were asked to move. over: why the plan is not wanted any more, or cannot be
    carried out; empty while it can.
    """

    job: int
    book: PodBook
    since: float
    stage: _Stage = _Stage.HIDDEN
    requested: list[JobHolding] = field(default_factory=list)
    over: str = ""


class JobMover:
    """Makes plans with each sweep, and carries them out in a task of its own.

    wall: returns seconds since 1970.
    """

    def __init__(
        self, service: Service, server: MoveServer, wall: Callable[[], float] = time.time
    ) -> None:
        self._service, self._server, self._wall = service, server, wall
        self._plans: dict[str, _Plan] = {}
        self._rest: dict[int, float] = {}
        self._wake = asyncio.Event()

    async def update(self, jobs: Mapping[int, Listed], waiting: Iterable[Waits]) -> None:
        """Plan moves for the job that waits first, and give up plans that are for another job."""
        service = self._service
        firsts = {
            pod: first_job for first_job in first_in_line(waiting) for pod in first_job.orders
        }
        self._rest = {job: until for job, until in self._rest.items() if until > service.clock()}
        for pod, book in service.books.items():
            first, plan = firsts.get(pod), self._plans.get(pod)
            if plan is not None:
                if first is None or first.job != plan.job:
                    plan.over = plan.over or f"job {plan.job} is not the first that waits"
            elif book.emptied:  # all have moved, and their old devices are being reset
                lost = book.closed & book.unusable & ~book.resetting
                if first is None or first.job != book.closed_for or lost:
                    book.stay()
                    service.counts.poke()
            elif first is not None and not first.alone and first.job not in self._rest:
                await self._consider(pod, first, jobs)

    async def run(self) -> None:
        """Carry plans out until cancelled."""
        while True:
            await self._wake.wait()
            for plan in list(self._plans.values()):
                try:
                    await self._carry_on(plan)
                except PodwrightError as error:
                    _log.warning("room for job %d: %s", plan.job, error)
            if not self._plans:
                self._wake.clear()
            await asyncio.sleep(_PAUSE)

    # -- planning ----------------------------------------------------------------------------

    async def _consider(self, pod: str, first: Waits, jobs: Mapping[int, Listed]) -> None:
        book = self._service.books[pod]
        (order,) = first.orders[pod]
        blocks = _unheld(book)
        if not any(map(_may, book.holdings.values())) or fit(blocks, [order]):
            return
        if blocks.free.bit_count() < 1 << order:
            return
        moves = await self._moves(book)
        plan = self._plan(book, order, moves, jobs)
        if plan is None or not moves.allowed:
            return
        movers = ", ".join(str(job) for job, _ in plan.jobs)
        _log.info("job %s fits if %s move to other devices: room is made", first.job, movers)
        book.empty(plan.devices, first.job, plan.jobs)
        self._plans[pod] = _Plan(first.job, book, self._service.clock())
        self._service.counts.poke()
        self._wake.set()

    def _plan(
        self, book: PodBook, order: int, moves: JobMoves, jobs: Mapping[int, Listed]
    ) -> MovePlan | None:
        seconds = {
            job_of(entry.partition): entry.seconds for entry in moves.moves if entry.state == "ABLE"
        }
        able = {
            job: seconds[job]
            for job, entry in book.holdings.items()
            if job in seconds and _may(entry)
        }
        now = self._wall()
        holdings = {
            job: (entry.bits, likely_end(_end_time(jobs.get(job)), entry.began, now)[0])
            for job, entry in book.holdings.items()
        }
        return plan_moves(_unheld(book), order, holdings, able, now=now, unusable=book.unusable)

    # -- carrying out ------------------------------------------------------------------------

    async def _carry_on(self, plan: _Plan) -> None:
        book = plan.book
        if not plan.over and plan.stage is _Stage.HIDDEN:
            if await self._settled(plan):
                plan.stage, book.unsettled = _Stage.ASKED, False
                await self._ask(plan)
        elif not plan.over:
            await self._watch(plan)
        if plan.over:
            await self._call_off(plan)
        elif plan.stage is _Stage.ASKED and not book.moves:
            _log.info("room for job %d: all have moved", plan.job)
            self._forget(plan)

    async def _settled(self, plan: _Plan) -> bool:
        """Return whether Slurm knows what is hidden, and all jobs that it had started before have
        their devices.
        """
        book, service = plan.book, self._service
        await service.counts.synced()
        all_placed = await settled(service.slurm, book)
        if not (book.emptied and book.moves):
            plan.over = "Slurm had started others before, or who was to move has ended"
            return False
        if not all_placed and service.clock() - plan.since > SETTLE_S:
            plan.over = "Slurm has started jobs that got no devices yet"
        return all_placed

    async def _ask(self, plan: _Plan) -> None:
        book, longest = plan.book, 0.0
        for job, target in list(book.moves.items()):
            holding = book.holdings[job]
            plan.requested.append(holding)
            start, order = (target & -target).bit_length() - 1, target.bit_count().bit_length() - 1
            request = AskToMoveRequest(
                partition=holding.name,
                job=holding.words,
                devices=book.line.devices(start, order),
                room_for=f"job {plan.job}",
            )
            try:
                row = await self._server.call("AskToMove", request, MoveRow)
            except NotFound:
                row = MoveRow(partition=holding.name, state="STAYS")
            if row.state != "ASKED":
                plan.over = f"job {job} cannot be moved now"
                return
            longest = max(longest, row.within)
        book.moves_end = f"{datetime.fromtimestamp(self._wall() + longest):%H:%M:%S}"
        self._service.sweep_wanted.set()  # it writes this into the waiting job's comment

    async def _watch(self, plan: _Plan) -> None:
        """Follow the moves. A job that the server no longer asks has moved by now, or it stays, and
        then the plan is over.
        """
        book = plan.book
        reply = await self._moves(book)
        on_it = {job_of(row.partition) for row in reply.moves if row.state != "ABLE"}
        await self._service.refresh()
        if stays := book.moves.keys() - on_it:
            plan.over = f"job {min(stays)} stays where it is"

    async def _call_off(self, plan: _Plan) -> None:
        for holding in plan.requested:
            if holding.job in plan.book.moves:
                request = CallOffMoveRequest(partition=holding.name, job=holding.words)
                with contextlib.suppress(NotFound):
                    await self._server.call("CallOffMove", request, Empty)
        await self._service.refresh()  # a job may have moved meanwhile
        self._end(plan, plan.over)

    def _end(self, plan: _Plan, reason: str) -> None:
        service = self._service
        _log.info("room for job %d: %s", plan.job, reason)
        self._forget(plan)
        plan.book.stay()
        service.figures.stayed += 1
        if plan.stage is _Stage.ASKED:
            self._rest[plan.job] = service.clock() + _REST_S
        service.counts.poke()

    def _forget(self, plan: _Plan) -> None:
        """Drop the plan, and count the jobs that moved: those that were asked, still hold their
        devices and have no move left.
        """
        book = plan.book
        del self._plans[book.pod.type]
        book.moves_end = ""
        self._service.figures.moved += sum(
            book.holdings.get(holding.job) is holding and holding.job not in book.moves
            for holding in plan.requested
        )

    async def _moves(self, book: PodBook) -> JobMoves:
        wanted = JobMovesRequest(cluster=book.cluster, allocation=book.allocation)
        return await self._server.call("ListJobMoves", wanted, JobMoves)


def _may(holding: JobHolding) -> bool:
    """Return whether a holding may move. A part of a heterogeneous job stays, because its launch
    may span other parts.
    """
    return holding.movable and holding.created and not holding.leader


def _unheld(book: PodBook) -> Blocks:
    """Return the devices that nobody holds, whether or not they are closed."""
    blocks = Blocks(book.blocks.capacity, grid=book.blocks)
    blocks.free = book.unheld()
    return blocks


def _end_time(job: Listed | None) -> float:
    """Return when a job's time is over, in seconds since 1970, or 0 where that is unlimited or not
    known.
    """
    try:
        return datetime.fromisoformat(job.end).timestamp() if job else 0.0
    except ValueError:
        return 0.0
