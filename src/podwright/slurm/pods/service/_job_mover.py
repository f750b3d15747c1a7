"""Jobs that agreed to it move to other devices, so that the first in Slurm's queue, which fits by
count, fits by shape as well. A move stays inside its job: the same job, the same hosts.

Slurm is told first that neither what is emptied nor where it goes can be had. Nobody is asked
before each job that Slurm had started until then has got its devices: so whatever it starts finds
its place, before the move and after. The server asks the launches, and changes their devices when
they have ended (`SchedulerMoves`); what they leave is reset, and counted again as soon as all of it
is free: then it is there for the job that waits, which Slurm starts by its own priority.

Nothing of this is durable. A service that is gone leaves launches that move or stay by the server's
word alone; what they were to move to is nobody's until then.
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
from podwright.guests import Waits, first_in_line
from podwright.placement.buddy_blocks import Blocks, fit
from podwright.placement.move_plans import MovePlan, likely_end, plan_moves
from podwright.slurm.pods.service._pod_book import (
    SETTLE_S,
    JobHolding,
    PodBook,
    job_of,
    settled,
)
from podwright.slurm.pods.service._queue import Listed
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
    from podwright.slurm.pods.service._service import Service

_log = logging.getLogger("podwright.slurm")
_PAUSE: Final = 0.3
#: Seconds after a plan that came to nothing until there is another for the same job.
_REST_S: Final = 60.0

_V = TypeVar("_V", bound=Value)


class MoveServer(Protocol):
    """What is asked of vipu-server."""

    async def call(self, method: str, request: Value, reply: type[_V]) -> _V:
        """Any call of podwright.v1. Raises PodwrightError."""
        ...


class _Stage(enum.Enum):
    HIDDEN = "Slurm is told"
    ASKED = "launches are asked"


@dataclass(slots=True, eq=False)
class _Plan:
    """job: who gets room. asked: who was asked. over: it is not wanted any more, or cannot be."""

    job: int
    book: PodBook
    since: float
    stage: _Stage = _Stage.HIDDEN
    asked: list[JobHolding] = field(default_factory=list)
    over: str = ""


class JobMover:
    """Plans with each sweep; carries out beside it. wall: seconds since 1970."""

    def __init__(
        self, service: Service, server: MoveServer, wall: Callable[[], float] = time.time
    ) -> None:
        self._service, self._server, self._wall = service, server, wall
        self._plans: dict[str, _Plan] = {}
        self._rest: dict[int, float] = {}
        self._some = asyncio.Event()

    async def look(self, jobs: Mapping[int, Listed], waiting: Iterable[Waits]) -> None:
        """Plan for who waits first, and give up what is for somebody else."""
        service = self._service
        firsts = {pod: one for one in first_in_line(waiting) for pod in one.orders}
        self._rest = {job: at for job, at in self._rest.items() if at > service.clock()}
        for pod, book in service.books.items():
            first, plan = firsts.get(pod), self._plans.get(pod)
            if plan is not None:
                if first is None or first.job != plan.job:
                    plan.over = plan.over or f"job {plan.job} is not the first that waits"
            elif book.emptied:  # all have moved, and what they left is being reset
                lost = book.closed & book.away & ~book.resetting
                if first is None or first.job != book.closed_for or lost:
                    book.stay()
                    service.counts.poke()
            elif first is not None and not first.alone and first.job not in self._rest:
                await self._consider(pod, first, jobs)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._some.wait()
            for plan in list(self._plans.values()):
                try:
                    await self._carry_on(plan)
                except PodwrightError as error:
                    _log.warning("room for job %d: %s", plan.job, error)
            if not self._plans:
                self._some.clear()
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
        found = await self._moves(book)
        plan = self._plan(book, order, found, jobs)
        if plan is None or not found.allowed:
            return
        movers = ", ".join(str(job) for job, _ in plan.jobs)
        _log.info("job %s fits if %s move to other devices: room is made", first.job, movers)
        book.empty(plan.devices, first.job, plan.jobs)
        self._plans[pod] = _Plan(first.job, book, self._service.clock())
        self._service.counts.poke()
        self._some.set()

    def _plan(
        self, book: PodBook, order: int, found: JobMoves, jobs: Mapping[int, Listed]
    ) -> MovePlan | None:
        said = {job_of(one.partition): one.seconds for one in found.moves if one.state == "ABLE"}
        able = {job: said[job] for job, one in book.holdings.items() if job in said and _may(one)}
        now = self._wall()
        held = {
            job: (one.bits, likely_end(_ends(jobs.get(job)), one.began, now)[0])
            for job, one in book.holdings.items()
        }
        return plan_moves(_unheld(book), order, held, able, now=now, away=book.away)

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
        """Does Slurm know what is hidden, and has all that it had started before its devices?"""
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
        book, ends = plan.book, 0.0
        for job, target in list(book.moves.items()):
            holding = book.holdings[job]
            plan.asked.append(holding)
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
            ends = max(ends, row.within)
        book.moves_end = f"{datetime.fromtimestamp(self._wall() + ends):%H:%M:%S}"
        self._service.look.set()  # the job that waits is told

    async def _watch(self, plan: _Plan) -> None:
        """Who is asked no more has moved by now, or stays."""
        book = plan.book
        found = await self._moves(book)
        on_it = {job_of(one.partition) for one in found.moves if one.state != "ABLE"}
        await self._service.refresh()
        if stays := book.moves.keys() - on_it:
            plan.over = f"job {min(stays)} stays where it is"

    async def _call_off(self, plan: _Plan) -> None:
        for holding in plan.asked:
            if holding.job in plan.book.moves:
                request = CallOffMoveRequest(partition=holding.name, job=holding.words)
                with contextlib.suppress(NotFound):
                    await self._server.call("CallOffMove", request, Empty)
        await self._service.refresh()  # one may have moved meanwhile
        self._end(plan, plan.over)

    def _end(self, plan: _Plan, why: str) -> None:
        service = self._service
        _log.info("room for job %d: %s", plan.job, why)
        self._forget(plan)
        plan.book.stay()
        service.figures.stayed += 1
        if plan.stage is _Stage.ASKED:
            self._rest[plan.job] = service.clock() + _REST_S
        service.counts.poke()

    def _forget(self, plan: _Plan) -> None:
        """Whoever was asked, holds its devices still and is to move no more, has moved."""
        book = plan.book
        del self._plans[book.pod.type]
        book.moves_end = ""
        self._service.figures.moved += sum(
            book.holdings.get(one.job) is one and one.job not in book.moves for one in plan.asked
        )

    async def _moves(self, book: PodBook) -> JobMoves:
        wanted = JobMovesRequest(cluster=book.cluster, allocation=book.allocation)
        return await self._server.call("ListJobMoves", wanted, JobMoves)


def _may(holding: JobHolding) -> bool:
    """A part of a heterogeneous job stays: its launch may span others."""
    return holding.movable and holding.made and not holding.leader


def _unheld(book: PodBook) -> Blocks:
    """What nobody holds, closed or not."""
    blocks = Blocks(book.blocks.capacity, grid=book.blocks)
    blocks.free = book.unheld()
    return blocks


def _ends(job: Listed | None) -> float:
    """When a job's time is over; 0 where that is not limited, or not known."""
    try:
        return datetime.fromisoformat(job.end).timestamp() if job else 0.0
    except ValueError:
        return 0.0
