"""Makes room for a large job that small ones would pass for ever, by closing a block or by moves.

This follows the Slurm service of the product (`podwright slurm serve`). The service closes the
block that is free soonest or, with moves, asks launches to move out of the way.
"""

from __future__ import annotations

import math
from heapq import heappush

from podwright.placement.move_plans import MovePlan, likely_end_time, may_be_asked, plan_moves
from podwright.replay._run_state import SimulationState
from podwright.replay.grounds._pod_ground import PodGround, ShapelessGround


class RoomMaker:
    """Makes room for the first job of the queue, after each event.

    changed: whether a job arrived or ended since the last search for moves. moving: whether moves
    are under way; there is one plan at a time.
    """

    def __init__(
        self, state: SimulationState, pod_ground: PodGround | ShapelessGround | None
    ) -> None:
        """pod_ground: the ground of `state` if it is a pod; room is made on no other."""
        self._state, self._pod = state, pod_ground
        self._first, self._first_since = -1, 0.0
        self.changed, self.moving = True, False

    def make_room(self, now: float) -> bool:
        """Make room for the first job of the queue, if it has waited as long as the service
        requires.

        Returns whether a closed block was opened again, so that the main scheduler must run at
        once.
        """
        pod_ground = self._pod
        if pod_ground is None:
            return False
        first_entry = min(
            (heap[0] for heap in self._state.backlog.heaps.values() if heap),
            default=None,
        )
        if first_entry is None:
            self._first = -1
            if pod_ground.closed:
                pod_ground.open()
            return False
        first_job = first_entry[1]
        if pod_ground.closed and pod_ground.closed_for != first_job and not self.moving:
            pod_ground.open()
            return True
        if first_job != self._first:
            sweep_s = self._state.slurm.sweep_s
            self._first = first_job
            self._first_since = math.ceil(now / sweep_s) * sweep_s if sweep_s else now
            if self._state.slurm.room_s > 0:
                self._state.events.add(self._room_due_time(), "room")
        demand = pod_ground.demand(self._state.trace.devices[first_job], 0, 0, 0)
        if self._move_for_first_job(now):
            return False
        if self._state.slurm.room_s <= 0 or pod_ground.closed or now < self._room_due_time():
            return False
        if not pod_ground.fits(demand):
            pod_ground.close(first_job, demand, self._likely_ends(now))
        return False

    def _room_due_time(self) -> float:
        """Return when room is made for the first job of the queue: at a sweep of the service."""
        due_time, sweep_s = self._first_since + self._state.slurm.room_s, self._state.slurm.sweep_s
        return math.ceil(due_time / sweep_s) * sweep_s if sweep_s else due_time

    def _move_for_first_job(self, now: float) -> bool:
        """Move the jobs that block the first waiting job with enough free devices, but no free
        block.
        """
        pod_ground = self._pod
        if (
            not isinstance(pod_ground, PodGround)
            or pod_ground.policy != "moves"
            or self.moving
            or not self.changed
        ):
            return False
        self.changed = False
        movable_jobs: dict[int, float] | None = None
        occupied: dict[int, tuple[int, float]] = {}
        for _, job in sorted(heap[0] for heap in self._state.backlog.heaps.values() if heap):
            demand = pod_ground.demand(self._state.trace.devices[job], 0, 0, 0)
            free_devices = (
                pod_ground.free.bit_count()
                if pod_ground.closed_for == job
                else pod_ground.blocks.free.bit_count()
            )
            if free_devices < 1 << demand or pod_ground.fits(demand):
                continue
            if pod_ground.closed_for == job:
                pod_ground.open()
            elif pod_ground.closed:
                continue
            if movable_jobs is None:  # the same for all candidates
                movable_jobs = self._seconds_by_movable_job(now)
                end_times = self._likely_ends(now) if movable_jobs else {}
                occupied = (
                    {job: (pod_ground.jobs[job][0], end_times[job]) for job in pod_ground.jobs}
                    if movable_jobs
                    else {}
                )
            move_plan = plan_moves(
                pod_ground.blocks,
                demand,
                occupied,
                movable_jobs,
                now=now,
                unusable_bits=pod_ground.unusable,
            )
            if move_plan is not None:
                self._begin_move_plan(job, move_plan, now)
                return True
        return False

    def _begin_move_plan(self, job: int, move_plan: MovePlan, now: float) -> None:
        """Begin the moves of a plan, which makes room for this job."""
        pod_ground, state, outcome = self._pod, self._state, self._state.outcome
        assert isinstance(pod_ground, PodGround)
        pod_ground.closed, pod_ground.closed_for = move_plan.devices, job
        pod_ground.blocks.free &= ~move_plan.devices
        lost_seconds = state.chances.move_s
        for moved_job, size_order in move_plan.jobs:
            pod_ground.move(moved_job, size_order)
            outcome.moves += 1
            outcome.moved_seconds += lost_seconds * (1 << size_order)
            self._delay_job_end(moved_job, lost_seconds, now)
            # While a job moves, its devices do no work.
            outcome.series.add(now, now + lost_seconds, -state.trace.devices[moved_job], 0, 0)
            state.events.add(now + lost_seconds, "left", moved_job)
            outcome.leaves(moved_job, state.jobs.rows[moved_job], now + lost_seconds)
            state.draw(moved_job, now)
        self.moving = True

    def _likely_ends(self, now: float) -> dict[int, float]:
        """Return when running jobs end, as far as Slurm can tell."""
        start_times, limits_by_job = self._state.outcome.start_times, self._state.jobs.until
        return {
            job: likely_end_time(limit_end, start_times[job], now)[0]
            for job, (limit_end, _) in limits_by_job.items()
        }

    def _seconds_by_movable_job(self, now: float) -> dict[int, float]:
        """Return the jobs that can be moved now, with the seconds that each loses."""
        assert isinstance(self._pod, PodGround)
        states, seconds = self._state.jobs, self._state.chances.move_s
        movable_jobs = (job for job in self._pod.jobs if states.movable[job])
        return {
            job: seconds for job in movable_jobs if may_be_asked(states.moved_at.get(job, ()), now)
        }

    def _delay_job_end(self, job: int, lost_seconds: float, now: float) -> None:
        """Delay the end of a job that moves by these seconds."""
        state, job_states = self._state, self._state.jobs
        job_states.end_revision[job] += 1
        run_seconds = state.trace.runtime[job] + state.slurm.overhead_s
        move_times = job_states.moved_at.setdefault(job, [])
        move_times.append(now)
        end_time = state.outcome.start_times[job] + run_seconds + lost_seconds * len(move_times)
        heappush(state.events.job_ends, (end_time, job, job_states.end_revision[job]))
