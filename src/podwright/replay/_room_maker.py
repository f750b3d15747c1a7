"""Makes room for a large job that small ones would pass for ever, by closing a block or by moves.

This follows the Slurm service of the product (`podwright slurm serve`). The service closes the
block that is free soonest or, with moves, asks launches to move out of the way.
"""

from __future__ import annotations

import math
from heapq import heappush

from podwright.placement.move_plans import MovePlan, likely_end, may_be_asked, plan_moves
from podwright.replay._run_state import SimulationState
from podwright.replay.grounds._pod_ground import Counted, PodGround


class RoomMaker:
    """Makes room for the first job of the queue, after each event.

    changed: whether a job arrived or ended since the last search for moves. moving: whether moves
    are under way; there is one plan at a time.
    """

    def __init__(self, state: SimulationState, pod: PodGround | Counted | None) -> None:
        """pod: the ground of `state` if it is a pod; room is made on no other."""
        self._state, self._pod = state, pod
        self._first, self._first_since = -1, 0.0
        self.changed, self.moving = True, False

    def make_room(self, now: float) -> bool:
        """Make room for the first job of the queue, if it has waited as long as the service
        requires.

        Returns whether a closed block was opened again, so that the main scheduler must run at
        once.
        """
        pod = self._pod
        if pod is None:
            return False
        first = min((heap[0] for heap in self._state.backlog.heaps.values() if heap), default=None)
        if first is None:
            self._first = -1
            if pod.closed:
                pod.open()
            return False
        job = first[1]
        if pod.closed and pod.closed_for != job and not self.moving:
            pod.open()
            return True
        if job != self._first:
            sweep = self._state.slurm.sweep_s
            self._first = job
            self._first_since = math.ceil(now / sweep) * sweep if sweep else now
            if self._state.slurm.room_s > 0:
                self._state.events.add(self._due(), "room")
        demand = pod.demand(self._state.trace.devices[job], 0, 0, 0)
        if self._moves(now):
            return False
        if self._state.slurm.room_s <= 0 or pod.closed or now < self._due():
            return False
        if not pod.fits(demand):
            pod.close(job, demand, self._likely_ends(now))
        return False

    def _due(self) -> float:
        """Return when room is made for the first job of the queue: at a sweep of the service."""
        due, sweep = self._first_since + self._state.slurm.room_s, self._state.slurm.sweep_s
        return math.ceil(due / sweep) * sweep if sweep else due

    def _moves(self, now: float) -> bool:
        """Move the jobs that block the first waiting job with enough free devices, but no free
        block.
        """
        pod = self._pod
        if (
            not isinstance(pod, PodGround)
            or pod.policy != "moves"
            or self.moving
            or not self.changed
        ):
            return False
        self.changed = False
        able: dict[int, float] | None = None
        occupied: dict[int, tuple[int, float]] = {}
        for _, job in sorted(heap[0] for heap in self._state.backlog.heaps.values() if heap):
            demand = pod.demand(self._state.trace.devices[job], 0, 0, 0)
            free = pod.free.bit_count() if pod.closed_for == job else pod.blocks.free.bit_count()
            if free < 1 << demand or pod.fits(demand):
                continue
            if pod.closed_for == job:
                pod.open()
            elif pod.closed:
                continue
            if able is None:  # the same for all candidates
                able = self._able(now)
                end_times = self._likely_ends(now) if able else {}
                occupied = (
                    {job: (pod.jobs[job][0], end_times[job]) for job in pod.jobs} if able else {}
                )
            plan = plan_moves(pod.blocks, demand, occupied, able, now=now, unusable=pod.unusable)
            if plan is not None:
                self._move(job, plan, now)
                return True
        return False

    def _move(self, job: int, plan: MovePlan, now: float) -> None:
        """Begin the moves of a plan, which makes room for this job."""
        pod, state, outcome = self._pod, self._state, self._state.outcome
        assert isinstance(pod, PodGround)
        pod.closed, pod.closed_for = plan.devices, job
        pod.blocks.free &= ~plan.devices
        lost = state.chances.move_s
        for other, order in plan.jobs:
            pod.move(other, order)
            outcome.moves += 1
            outcome.moved_seconds += lost * (1 << order)
            self._delay(other, lost, now)
            # While a job moves, its devices do no work.
            outcome.series.add(now, now + lost, -state.trace.devices[other], 0, 0)
            state.events.add(now + lost, "left", other)
            outcome.leaves(other, state.jobs.rows[other], now + lost)
            state.draw(other, now)
        self.moving = True

    def _likely_ends(self, now: float) -> dict[int, float]:
        """Return when running jobs end, as far as Slurm can tell."""
        began, until = self._state.outcome.start_times, self._state.jobs.until
        return {job: likely_end(end, began[job], now)[0] for job, (end, _) in until.items()}

    def _able(self, now: float) -> dict[int, float]:
        """Return the jobs that can be moved now, with the seconds that each loses."""
        assert isinstance(self._pod, PodGround)
        jobs, lost = self._state.jobs, self._state.chances.move_s
        able = (job for job in self._pod.jobs if jobs.movable[job])
        return {job: lost for job in able if may_be_asked(jobs.moved_at.get(job, ()), now)}

    def _delay(self, job: int, lost: float, now: float) -> None:
        """Delay the end of a job that moves by these seconds."""
        state, jobs = self._state, self._state.jobs
        jobs.end_revision[job] += 1
        runs = state.trace.runtime[job] + state.slurm.overhead_s
        moved = jobs.moved_at.setdefault(job, [])
        moved.append(now)
        end = state.outcome.start_times[job] + runs + lost * len(moved)
        heappush(state.events.job_ends, (end, job, jobs.end_revision[job]))
