"""Simulates a trace on a ground under a model of Slurm, event by event, the same each time.

An event is a job that becomes eligible or ends, a machine that fails or is repaired, a run of
backfill, or room that is due. All events of one moment are handled together; then the main
scheduler goes through the queue. On one ground, jobs of one kind fit together or not at all. So the
queue is a heap for each kind, and the cost of a pass grows with the jobs that it starts.
"""

from __future__ import annotations

import math
import random
from array import array
from bisect import insort
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from podwright.replay._backfill_profile import FreeUnitsProfile
from podwright.replay._outcome import Outcome, Series
from podwright.replay._priority import Priorities
from podwright.replay._room_maker import RoomMaker
from podwright.replay._run_state import (
    BEHIND,
    NO_FAILURES,
    OVER,
    RUNS,
    WAITS,
    Backlog,
    Chances,
    Events,
    JobStates,
    SimulationState,
)
from podwright.replay._slurm_model import SlurmModel
from podwright.replay.grounds._ground import Ground, StartAnswer, UnfitJob
from podwright.replay.grounds._host_limited_ground import Hosts
from podwright.replay.grounds._pod_ground import PodGround, ShapelessGround
from podwright.replay.traces._trace import Trace

Progress = Callable[[int, int], None]
#: How often a failing job is started. Slurm would restart it without a limit.
_MAX_JOB_STARTS = 10
_GIVEN_UP_REASON = f"ended {_MAX_JOB_STARTS} times by machines that failed"


def simulate(
    trace: Trace,
    ground: Ground,
    slurm: SlurmModel,
    chances: Chances = NO_FAILURES,
    *,
    progress: Progress | None = None,
) -> Outcome:
    """Return the outcome of a trace. progress: called sometimes with finished jobs, and all
    jobs.
    """
    return _Run(trace, ground, slurm, chances, progress).run()


class _Run:
    def __init__(
        self,
        trace: Trace,
        ground: Ground,
        slurm: SlurmModel,
        chances: Chances,
        progress: Progress | None,
    ) -> None:
        self.trace, self.ground, self.slurm, self.chances = trace, ground, slurm, chances
        inner_ground = ground.inner if isinstance(ground, Hosts) else ground
        self.pod = inner_ground if isinstance(inner_ground, PodGround | ShapelessGround) else None
        nan_times = array("d", [math.nan]) * len(trace)
        series = Series.over(trace.span)
        self.out = Outcome(ground.name, ground.size, nan_times, array("d", nan_times), series)
        self.out.simpler = ground.simpler
        self.priorities = Priorities(slurm, ground.size, len(trace.users))
        self.rng = random.Random(chances.seed)
        movable = bytes(self.rng.random() < chances.movable for _ in range(len(trace)))
        self.jobs = JobStates.of(trace, movable)
        self.backlog, self.events = Backlog(), Events()
        state = SimulationState(
            trace, ground, slurm, chances, self.out, self.jobs, self.backlog, self.events
        )
        self.state, self.room = state, RoomMaker(state, self.pod)
        self.useful = 0
        self.last = 0.0
        self.backfill_due = False
        self.backfilled_at = -math.inf
        self.done = 0
        self.progress = progress

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> Outcome:
        arrivals = self._jobs_by_eligibility()
        arrivals.reverse()
        if self.chances.mtbf_s < math.inf:
            for machine in range(self.ground.machines):
                self.events.add(self.rng.expovariate(1 / self.chances.mtbf_s), "fail", machine)
        eligible_times, end_events, timers = (
            self.jobs.eligible,
            self.events.job_ends,
            self.events.timers,
        )
        while arrivals or end_events or self.backlog.waiting:
            now = math.inf
            if arrivals:
                now = eligible_times[arrivals[-1]]
            if end_events and end_events[0][0] < now:
                now = end_events[0][0]
            if timers and timers[0][0] < now:
                now = timers[0][0]
            if now == math.inf:
                break  # the jobs that are left in the queue never start
            self._add_device_areas(now)
            while end_events and end_events[0][0] <= now:
                _, job, end_revision = heappop(end_events)
                if self.jobs.end_revision[job] == end_revision and self.jobs.state[job] == RUNS:
                    self._end_job(job, now)
            while arrivals and eligible_times[arrivals[-1]] <= now:
                self._queue_job(arrivals.pop(), now)
            backfill_due = False
            while timers and timers[0][0] <= now:
                _, _, timer_kind, timer_subject = heappop(timers)
                backfill_due |= timer_kind == "backfill"
                self._handle_timer(timer_kind, timer_subject, now)
            if self.priorities.is_stale(now):
                self._rank_queue(now)
            self._run_main_scheduler(now)
            if backfill_due:
                self._run_backfill(now)
            if self.room.make_room(now):
                self._run_main_scheduler(now)
            self.out.events += 1
        self._finish_outcome()
        return self.out

    def _jobs_by_eligibility(self) -> list[int]:
        """Return the jobs in the order in which they become eligible.

        Refused jobs, and jobs that wait for others, are not among them.
        """
        trace, job_order = self.trace, []
        demands_by_request: dict[tuple[int, int, int, int], int | str] = {}
        for job in range(len(trace)):
            demand = self._ground_demand(job, demands_by_request)
            if demand < 0:
                self.jobs.state[job] = OVER
                continue
            self.jobs.demands[job] = demand
        for job in range(len(trace)):
            if self.jobs.state[job] == OVER:
                continue
            earlier_job = trace.after[job]
            if earlier_job >= 0 and self.jobs.state[earlier_job] != OVER:
                self.jobs.after.setdefault(earlier_job, []).append(job)
            else:
                job_order.append(job)
        eligible_times = self.jobs.eligible
        if any(
            eligible_times[job_order[i]] > eligible_times[job_order[i + 1]]
            for i in range(len(job_order) - 1)
        ):
            job_order.sort(key=lambda job: (eligible_times[job], job))
        return job_order

    def _ground_demand(
        self, job: int, demands_by_request: dict[tuple[int, int, int, int], int | str]
    ) -> int:
        """Return the demand of a job on the ground; -1 if the ground never has room for its
        kind.
        """
        trace = self.trace
        devices = trace.devices[job]
        request_key = (devices, trace.nodes[job], trace.cpus[job], trace.memory[job])
        demand_or_reason = demands_by_request.get(request_key)
        if demand_or_reason is None:
            try:
                demand_or_reason = self.ground.demand(*request_key)
            except UnfitJob as unfit:
                demand_or_reason = unfit.reason
            demands_by_request[request_key] = demand_or_reason
        if isinstance(demand_or_reason, int):
            return demand_or_reason
        self.out.refused[demand_or_reason] = self.out.refused.get(demand_or_reason, 0) + 1
        self.out.refused_seconds += devices * trace.runtime[job]
        return -1

    def _handle_timer(self, timer_kind: str, timer_subject: int, now: float) -> None:
        if timer_kind == "backfill":
            self.backfill_due = False
        elif timer_kind == "left":
            assert isinstance(self.pod, PodGround)
            self.pod.left(timer_subject)
            self.room.moving = False
        elif timer_kind == "fail":
            self._fail_machine(timer_subject, now)
        elif timer_kind == "repair":
            self.ground.repair(timer_subject)
            if self.backlog.waiting or self.jobs.until:
                self.events.add(
                    now + self.rng.expovariate(1 / self.chances.mtbf_s), "fail", timer_subject
                )

    # -- jobs ------------------------------------------------------------------------------------

    def _queue_job(self, job: int, now: float) -> None:
        trace = self.trace
        devices = trace.devices[job]
        self.jobs.state[job] = WAITS
        self.room.changed = True
        self.backlog.waiting[devices] = self.backlog.waiting.get(devices, 0) + 1
        key = self.priorities.key(job, self.jobs.eligible[job], devices, trace.user[job], now)
        heappush(self.backlog.heaps.setdefault(self.jobs.demands[job], []), key)
        if self.ground.plans:
            insort(self.backlog.line, key)
            self._schedule_backfill(now)

    def _start_job(self, job: int, demand: int, now: float) -> StartAnswer:
        trace = self.trace
        limit_s = trace.limit[job]
        limit_end = now + limit_s if limit_s == limit_s else math.inf  # NaN: the limit is not known
        start_answer = self.ground.take(job, demand, limit_end)
        if start_answer is not StartAnswer.TAKEN:
            return start_answer
        devices = trace.devices[job]
        self.jobs.state[job] = RUNS
        waiting_count = self.backlog.waiting[devices] - 1
        if waiting_count:
            self.backlog.waiting[devices] = waiting_count
        else:
            del self.backlog.waiting[devices]
        self.useful += devices
        self.out.start_times[job] = now
        run_seconds = trace.runtime[job] + self.slurm.overhead_s
        heappush(self.events.job_ends, (now + run_seconds, job, self.jobs.end_revision[job]))
        self.jobs.until[job] = limit_end, self.ground.units(demand)
        self.priorities.job_began(trace.user[job], devices, now)
        self.state.draw(job, now)
        return start_answer

    def _end_job(self, job: int, now: float) -> None:
        self._stop_job(job, now)
        self.out.end_times[job] = now
        self._finish_job(job, now)

    def _finish_job(self, job: int, now: float) -> None:
        self.jobs.state[job] = OVER
        self.done += 1
        if self.progress and not self.done & 1023:
            self.progress(self.done, len(self.trace))
        for dependent_job in self.jobs.after.pop(job, ()):
            self.jobs.eligible[dependent_job] = max(self.trace.submit[dependent_job], now)
            self._queue_job(dependent_job, now)

    def _stop_job(self, job: int, now: float) -> None:
        devices = self.trace.devices[job]
        self.ground.give(job)
        self.out.leaves(job, self.jobs.rows.pop(job), now)
        del self.jobs.until[job]
        self.useful -= devices
        self.priorities.job_ended(self.trace.user[job], devices, now)
        self.jobs.moved_at.pop(job, None)
        self.room.changed = True
        if self.ground.plans:
            self._schedule_backfill(now)

    def _fail_machine(self, machine: int, now: float) -> None:
        for job in self.ground.fail(machine):
            self._stop_job(job, now)
            self.jobs.end_revision[job] += 1
            self.out.failed += 1
            self.jobs.failures[job] = self.jobs.failures.get(job, 0) + 1
            if self.jobs.failures[job] < _MAX_JOB_STARTS:
                self._queue_job(job, now)
                continue
            self.out.start_times[job] = math.nan
            self.out.refused[_GIVEN_UP_REASON] = self.out.refused.get(_GIVEN_UP_REASON, 0) + 1
            self.out.refused_seconds += self.trace.devices[job] * self.trace.runtime[job]
            self._finish_job(job, now)
        self.events.add(now + self.chances.repair_s, "repair", machine)

    # -- the main scheduler ----------------------------------------------------------------------

    def _run_main_scheduler(self, now: float) -> None:
        job_states, heaps = self.jobs.state, self.backlog.heaps
        heap_heads = []
        for demand, heap in heaps.items():
            while heap and job_states[heap[0][1]] != WAITS:
                heappop(heap)
            if heap:
                heap_heads.append((*heap[0], demand))
        heapify(heap_heads)
        while heap_heads:
            _, job, demand = heappop(heap_heads)
            start_answer = self._start_job(job, demand, now)
            if start_answer is StartAnswer.NODES:
                return
            if start_answer is StartAnswer.LICENCES:
                continue
            heap = heaps[demand]
            heappop(heap)
            while heap and job_states[heap[0][1]] != WAITS:
                heappop(heap)
            if heap:
                heappush(heap_heads, (*heap[0], demand))

    def _rank_queue(self, now: float) -> None:
        """Compute all priorities anew, and sort the queue by them."""
        self.priorities.rank(now)
        trace = self.trace
        for demand_heap in self.backlog.heaps.values():
            demand_heap[:] = [
                self.priorities.key(
                    job, self.jobs.eligible[job], trace.devices[job], trace.user[job], now
                )
                for _, job in demand_heap
                if self.jobs.state[job] == WAITS
            ]
            heapify(demand_heap)
        if self.ground.plans:
            self.backlog.line = sorted(
                entry for heap in self.backlog.heaps.values() for entry in heap
            )

    # -- backfill --------------------------------------------------------------------------------

    def _schedule_backfill(self, now: float) -> None:
        """Schedule backfill for the end of its interval, unless it is scheduled already."""
        if self.ground.plans and not self.backfill_due:
            self.backfill_due = True
            self.events.add(max(now, self.backfilled_at + self.slurm.bf_interval), "backfill")

    def _run_backfill(self, now: float) -> None:
        self.backfilled_at = now
        slurm, ground, trace = self.slurm, self.ground, self.trace
        least_units = min(
            (
                ground.units(queued_demand)
                for queued_demand, heap in self.backlog.heaps.items()
                if heap
            ),
            default=0,
        )
        if ground.free_units() < least_units:
            return
        if len(self.backlog.line) > 2 * sum(self.backlog.waiting.values()) + 100:
            self.backlog.line = [
                entry for entry in self.backlog.line if self.jobs.state[entry[1]] == WAITS
            ]
        unit_profile = FreeUnitsProfile(now, ground.free_units(), self.jobs.until.values())
        started_count, jobs_by_user = 0, dict[int, int]()
        # units -> the shortest length for which there is no room.
        hopeless_lengths: dict[int, float] = {}
        examined_count = 0
        for _, job in self.backlog.line:
            if self.jobs.state[job] != WAITS:
                continue
            examined_count += 1
            if unit_profile.now < least_units or examined_count > slurm.bf_max_job_test:
                return  # no later job can start now, and each run plans anew
            demand = self.jobs.demands[job]
            user = trace.user[job]
            jobs_by_user[user] = jobs_by_user.get(user, 0) + 1
            if slurm.bf_max_job_user and jobs_by_user[user] > slurm.bf_max_job_user:
                continue
            units, limit = ground.units(demand), trace.limit[job]
            duration_s = limit if limit == limit else math.inf
            if units in hopeless_lengths and duration_s >= hopeless_lengths[units]:
                continue  # reservations only take away, so this job has no room
            earliest_start = unit_profile.earliest(units, duration_s, now + slurm.bf_window)
            if earliest_start == math.inf:
                hopeless_lengths[units] = duration_s
                continue
            if earliest_start <= now and self._start_job(job, demand, now) is StartAnswer.TAKEN:
                unit_profile.reserve(now, now + duration_s, units)
                started_count += 1
                if slurm.bf_max_job_start and started_count >= slurm.bf_max_job_start:
                    return
                continue
            reserve_start = max(now, self._backfill_grid_time(earliest_start))
            reserve_end = (
                self._backfill_grid_time(earliest_start + duration_s)
                if duration_s < math.inf
                else math.inf
            )
            unit_profile.reserve(reserve_start, max(reserve_start, reserve_end), units)

    def _backfill_grid_time(self, time: float) -> float:
        """Return a time on the grid of backfill's table, whose steps follow the clock
        (bf_resolution).
        """
        resolution_s, epoch = self.slurm.bf_resolution, self.trace.epoch
        return math.floor((time + epoch) / resolution_s) * resolution_s - epoch

    # -- figures ---------------------------------------------------------------------------------

    def _add_device_areas(self, now: float) -> None:
        free_devices = self.ground.size - self.ground.occupied - self.ground.lost
        stuck_devices = (
            free_devices
            if self.backlog.waiting and min(self.backlog.waiting) <= free_devices
            else 0
        )
        self.out.series.add(self.last, now, self.useful, self.ground.occupied, stuck_devices)
        self.last = now

    def _finish_outcome(self) -> None:
        if self.trace.has_dependencies:
            self.out.eligible = self.jobs.eligible
        behind_count = self.jobs.state.count(BEHIND)
        for reason, job_count in (
            ("never started", sum(self.backlog.waiting.values())),
            ("wait for a job that never ends", behind_count),
        ):
            if job_count:
                self.out.refused[reason] = job_count
        if self.progress:
            self.progress(len(self.trace), len(self.trace))
