"""Moves jobs that agreed to it, so that the first job in Slurm's queue gets a block of its size.
The free devices are enough for that job by number, but do not lie together. A move changes a job's
devices only: the job and its hosts stay the same.

Slurm is first told that neither the block that is emptied nor the places that jobs move to can be
had. Jobs are asked to move only after each job that Slurm had started before has got its devices.
So whatever Slurm starts finds its place, before the move and after it. The server asks the
launches, and changes their devices when they have ended (`controller.calls._scheduler_moves`). The
devices that they leave are reset. They are counted again as soon as all of them are free: then the
waiting job can have them, and Slurm starts it by its own priority.

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
from podwright.guests.slurm.service._pod_holdings import (
    DEVICES_DEADLINE_S,
    JobHolding,
    PodBook,
    job_of,
    settled,
)
from podwright.guests.slurm.service._squeue_jobs import Listed
from podwright.placement.buddy_blocks import BuddyBlocks, fit
from podwright.placement.move_plans import MovePlan, likely_end_time, plan_moves
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
    from podwright.guests.slurm.service._native_service import Service

_log = logging.getLogger("podwright.slurm")
_PAUSE: Final = 0.3
#: Seconds between a plan that failed and the next one for the same job.
_FAILED_PLAN_PAUSE_S: Final = 60.0

_V = TypeVar("_V", bound=Value)


class MoveServer(Protocol):
    """What the mover asks of vipu-server."""

    async def call(self, method: str, request: Value, reply: type[_V]) -> _V:
        """Call any method of podwright.v1. Raises PodwrightError."""
        ...


class _PlanStage(enum.Enum):
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
    stage: _PlanStage = _PlanStage.HIDDEN
    requested: list[JobHolding] = field(default_factory=list)
    over: str = ""


class JobMover:
    """Makes plans with each sweep, and carries them out in a task of its own.

    wall: returns seconds since 1970.
    """

    def __init__(
        self, service: Service, move_server: MoveServer, wall: Callable[[], float] = time.time
    ) -> None:
        self._service, self._server, self._wall = service, move_server, wall
        self._plans: dict[str, _Plan] = {}
        self._rest: dict[int, float] = {}
        self._wake = asyncio.Event()

    async def update(self, jobs: Mapping[int, Listed], waiting: Iterable[Waits]) -> None:
        """Plan moves for the job that waits first, and give up plans that are for another job."""
        service = self._service
        first_jobs = {pod_type: job for job in first_in_line(waiting) for pod_type in job.orders}
        self._rest = {
            number: until for number, until in self._rest.items() if until > service.clock()
        }
        for pod_type, pod_book in service.books.items():
            first_waiting, current_plan = first_jobs.get(pod_type), self._plans.get(pod_type)
            if current_plan is not None:
                if first_waiting is None or first_waiting.job != current_plan.job:
                    current_plan.over = (
                        current_plan.over or f"job {current_plan.job} is not the first that waits"
                    )
            elif pod_book.emptied:  # all have moved, and their old devices are being reset
                lost_devices = pod_book.closed & pod_book.unusable & ~pod_book.resetting
                if (
                    first_waiting is None
                    or first_waiting.job != pod_book.closed_for
                    or lost_devices
                ):
                    pod_book.stay()
                    service.counts.poke()
            elif (
                first_waiting is not None
                and not first_waiting.alone
                and first_waiting.job not in self._rest
            ):
                await self._start_plan(pod_type, first_waiting, jobs)

    async def run(self) -> None:
        """Carry plans out until cancelled."""
        while True:
            await self._wake.wait()
            for plan in list(self._plans.values()):
                try:
                    await self._continue_plan(plan)
                except PodwrightError as error:
                    _log.warning("room for job %d: %s", plan.job, error)
            if not self._plans:
                self._wake.clear()
            await asyncio.sleep(_PAUSE)

    # -- planning ----------------------------------------------------------------------------

    async def _start_plan(
        self, pod_type: str, first_waiting: Waits, listed_jobs: Mapping[int, Listed]
    ) -> None:
        pod_book = self._service.books[pod_type]
        (block_order,) = first_waiting.orders[pod_type]
        unheld = _unheld_blocks(pod_book)
        if not any(map(_may_move, pod_book.holdings.values())) or fit(unheld, [block_order]):
            return
        if unheld.free.bit_count() < 1 << block_order:
            return
        job_moves = await self._list_moves(pod_book)
        move_plan = self._plan_moves(pod_book, block_order, job_moves, listed_jobs)
        if move_plan is None or not job_moves.allowed:
            return
        moving_jobs = ", ".join(str(number) for number, _ in move_plan.jobs)
        _log.info(
            "job %s fits if %s move to other devices: room is made", first_waiting.job, moving_jobs
        )
        pod_book.empty(move_plan.devices, first_waiting.job, move_plan.jobs)
        self._plans[pod_type] = _Plan(first_waiting.job, pod_book, self._service.clock())
        self._service.counts.poke()
        self._wake.set()

    def _plan_moves(
        self,
        pod_book: PodBook,
        block_order: int,
        job_moves: JobMoves,
        listed_jobs: Mapping[int, Listed],
    ) -> MovePlan | None:
        move_seconds = {
            job_of(held_or_move.partition): held_or_move.seconds
            for held_or_move in job_moves.moves
            if held_or_move.state == "ABLE"
        }
        seconds_of_movable = {
            number: move_seconds[number]
            for number, held_or_move in pod_book.holdings.items()
            if number in move_seconds and _may_move(held_or_move)
        }
        wall_time = self._wall()
        bits_and_ends = {
            number: (
                held_or_move.bits,
                likely_end_time(_end_time(listed_jobs.get(number)), held_or_move.began, wall_time)[
                    0
                ],
            )
            for number, held_or_move in pod_book.holdings.items()
        }
        return plan_moves(
            _unheld_blocks(pod_book),
            block_order,
            bits_and_ends,
            seconds_of_movable,
            now=wall_time,
            unusable_bits=pod_book.unusable,
        )

    # -- carrying out ------------------------------------------------------------------------

    async def _continue_plan(self, room_plan: _Plan) -> None:
        book = room_plan.book
        if not room_plan.over and room_plan.stage is _PlanStage.HIDDEN:
            if await self._is_settled(room_plan):
                room_plan.stage, book.unsettled = _PlanStage.ASKED, False
                await self._request_moves(room_plan)
        elif not room_plan.over:
            await self._watch_moves(room_plan)
        if room_plan.over:
            await self._call_off_moves(room_plan)
        elif room_plan.stage is _PlanStage.ASKED and not book.moves:
            _log.info("room for job %d: all have moved", room_plan.job)
            self._forget(room_plan)

    async def _is_settled(self, room_plan: _Plan) -> bool:
        """Return whether Slurm knows what is hidden, and all jobs that it had started before have
        their devices.
        """
        book, service = room_plan.book, self._service
        await service.counts.wait_until_synced()
        all_jobs_placed = await settled(service.slurm, book)
        if not (book.emptied and book.moves):
            room_plan.over = "Slurm had started others before, or who was to move has ended"
            return False
        if not all_jobs_placed and service.clock() - room_plan.since > DEVICES_DEADLINE_S:
            room_plan.over = "Slurm has started jobs that got no devices yet"
        return all_jobs_placed

    async def _request_moves(self, room_plan: _Plan) -> None:
        pod_book, longest_move_s = room_plan.book, 0.0
        for job_number, target_bits in list(pod_book.moves.items()):
            job_holding = pod_book.holdings[job_number]
            room_plan.requested.append(job_holding)
            first_device, block_order = (
                (target_bits & -target_bits).bit_length() - 1,
                target_bits.bit_count().bit_length() - 1,
            )
            move_request = AskToMoveRequest(
                partition=job_holding.name,
                job=job_holding.words,
                devices=pod_book.line.devices(first_device, block_order),
                room_for=f"job {room_plan.job}",
            )
            try:
                move_row = await self._server.call("AskToMove", move_request, MoveRow)
            except NotFound:
                move_row = MoveRow(partition=job_holding.name, state="STAYS")
            if move_row.state != "ASKED":
                room_plan.over = f"job {job_number} cannot be moved now"
                return
            longest_move_s = max(longest_move_s, move_row.within)
        pod_book.moves_end = f"{datetime.fromtimestamp(self._wall() + longest_move_s):%H:%M:%S}"
        self._service.sweep_wanted.set()  # it writes this into the waiting job's comment

    async def _watch_moves(self, room_plan: _Plan) -> None:
        """Follow the moves. A job that the server no longer asks has moved by now, or it stays, and
        then the plan is over.
        """
        book = room_plan.book
        job_moves = await self._list_moves(book)
        moving_jobs = {job_of(row.partition) for row in job_moves.moves if row.state != "ABLE"}
        await self._service.refresh()
        if staying_jobs := book.moves.keys() - moving_jobs:
            room_plan.over = f"job {min(staying_jobs)} stays where it is"

    async def _call_off_moves(self, room_plan: _Plan) -> None:
        for asked_holding in room_plan.requested:
            if asked_holding.job in room_plan.book.moves:
                request = CallOffMoveRequest(partition=asked_holding.name, job=asked_holding.words)
                with contextlib.suppress(NotFound):
                    await self._server.call("CallOffMove", request, Empty)
        await self._service.refresh()  # a job may have moved meanwhile
        self._end_plan(room_plan, room_plan.over)

    def _end_plan(self, room_plan: _Plan, reason: str) -> None:
        service = self._service
        _log.info("room for job %d: %s", room_plan.job, reason)
        self._forget(room_plan)
        room_plan.book.stay()
        service.figures.stayed += 1
        if room_plan.stage is _PlanStage.ASKED:
            self._rest[room_plan.job] = service.clock() + _FAILED_PLAN_PAUSE_S
        service.counts.poke()

    def _forget(self, room_plan: _Plan) -> None:
        """Drop the plan, and count the jobs that moved: those that were asked, still hold their
        devices and have no move left.
        """
        book = room_plan.book
        del self._plans[book.pod.type]
        book.moves_end = ""
        self._service.figures.moved += sum(
            book.holdings.get(holding.job) is holding and holding.job not in book.moves
            for holding in room_plan.requested
        )

    async def _list_moves(self, pod_book: PodBook) -> JobMoves:
        request = JobMovesRequest(cluster=pod_book.cluster, allocation=pod_book.allocation)
        return await self._server.call("ListJobMoves", request, JobMoves)


def _may_move(job_holding: JobHolding) -> bool:
    """Return whether a holding may move. A part of a heterogeneous job stays, because its launch
    may span other parts.
    """
    return job_holding.movable and job_holding.created and not job_holding.leader


def _unheld_blocks(pod_book: PodBook) -> BuddyBlocks:
    """Return the devices that nobody holds, whether or not they are closed."""
    blocks = BuddyBlocks(pod_book.blocks.capacity, shared_grid=pod_book.blocks)
    blocks.free = pod_book.unheld()
    return blocks


def _end_time(listed_job: Listed | None) -> float:
    """Return when a job's time is over, in seconds since 1970, or 0 where that is unlimited or not
    known.
    """
    try:
        return datetime.fromisoformat(listed_job.end).timestamp() if listed_job else 0.0
    except ValueError:
        return 0.0
