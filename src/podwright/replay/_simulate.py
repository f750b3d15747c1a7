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

from podwright.replay._backfill import Profile
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
from podwright.replay._slurm_settings import SlurmModel
from podwright.replay.grounds._ground import Ground, StartAnswer, Unfit
from podwright.replay.grounds._host_resources import Hosts
from podwright.replay.grounds._pod_ground import Counted, PodGround
from podwright.replay.traces._trace import Trace

Progress = Callable[[int, int], None]
#: How often a failing job is started. Slurm would restart it without a limit.
_LIVES = 10
_GIVEN_UP = f"ended {_LIVES} times by machines that failed"


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
        inner = ground.inner if isinstance(ground, Hosts) else ground
        self.pod = inner if isinstance(inner, PodGround | Counted) else None
        nothing = array("d", [math.nan]) * len(trace)
        series = Series.over(trace.span)
        self.out = Outcome(ground.name, ground.size, nothing, array("d", nothing), series)
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
        self.backfilled = -math.inf
        self.done = 0
        self.progress = progress

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> Outcome:
        arrivals = self._arrivals()
        arrivals.reverse()
        if self.chances.mtbf_s < math.inf:
            for machine in range(self.ground.machines):
                self.events.add(self.rng.expovariate(1 / self.chances.mtbf_s), "fail", machine)
        eligible, end_events, timers = self.jobs.eligible, self.events.job_ends, self.events.timers
        while arrivals or end_events or self.backlog.waiting:
            now = math.inf
            if arrivals:
                now = eligible[arrivals[-1]]
            if end_events and end_events[0][0] < now:
                now = end_events[0][0]
            if timers and timers[0][0] < now:
                now = timers[0][0]
            if now == math.inf:
                break  # the jobs that are left in the queue never start
            self._account(now)
            while end_events and end_events[0][0] <= now:
                _, job, end_revision = heappop(end_events)
                if self.jobs.end_revision[job] == end_revision and self.jobs.state[job] == RUNS:
                    self._end(job, now)
            while arrivals and eligible[arrivals[-1]] <= now:
                self._push(arrivals.pop(), now)
            backfill_due = False
            while timers and timers[0][0] <= now:
                _, _, kind, subject = heappop(timers)
                backfill_due |= kind == "backfill"
                self._tick(kind, subject, now)
            if self.priorities.is_stale(now):
                self._rank(now)
            self._main(now)
            if backfill_due:
                self._backfill(now)
            if self.room.make_room(now):
                self._main(now)
            self.out.events += 1
        self._finish()
        return self.out

    def _arrivals(self) -> list[int]:
        """Return the jobs in the order in which they become eligible.

        Refused jobs, and jobs that wait for others, are not among them.
        """
        trace, order = self.trace, []
        kinds: dict[tuple[int, int, int, int], int | str] = {}
        for job in range(len(trace)):
            demand = self._demand(job, kinds)
            if demand < 0:
                self.jobs.state[job] = OVER
                continue
            self.jobs.demands[job] = demand
        for job in range(len(trace)):
            if self.jobs.state[job] == OVER:
                continue
            before = trace.after[job]
            if before >= 0 and self.jobs.state[before] != OVER:
                self.jobs.after.setdefault(before, []).append(job)
            else:
                order.append(job)
        eligible = self.jobs.eligible
        if any(eligible[order[i]] > eligible[order[i + 1]] for i in range(len(order) - 1)):
            order.sort(key=lambda job: (eligible[job], job))
        return order

    def _demand(self, job: int, kinds: dict[tuple[int, int, int, int], int | str]) -> int:
        """Return the demand of a job on the ground; -1 if the ground never has room for its
        kind.
        """
        trace = self.trace
        devices = trace.devices[job]
        key = (devices, trace.nodes[job], trace.cpus[job], trace.memory[job])
        kind = kinds.get(key)
        if kind is None:
            try:
                kind = self.ground.demand(*key)
            except Unfit as unfit:
                kind = unfit.reason
            kinds[key] = kind
        if isinstance(kind, int):
            return kind
        self.out.refused[kind] = self.out.refused.get(kind, 0) + 1
        self.out.refused_seconds += devices * trace.runtime[job]
        return -1

    def _tick(self, kind: str, subject: int, now: float) -> None:
        if kind == "backfill":
            self.backfill_due = False
        elif kind == "left":
            assert isinstance(self.pod, PodGround)
            self.pod.left(subject)
            self.room.moving = False
        elif kind == "fail":
            self._fail(subject, now)
        elif kind == "repair":
            self.ground.repair(subject)
            if self.backlog.waiting or self.jobs.until:
                self.events.add(
                    now + self.rng.expovariate(1 / self.chances.mtbf_s), "fail", subject
                )

    # -- jobs ------------------------------------------------------------------------------------

    def _push(self, job: int, now: float) -> None:
        trace = self.trace
        devices = trace.devices[job]
        self.jobs.state[job] = WAITS
        self.room.changed = True
        self.backlog.waiting[devices] = self.backlog.waiting.get(devices, 0) + 1
        key = self.priorities.key(job, self.jobs.eligible[job], devices, trace.user[job], now)
        heappush(self.backlog.heaps.setdefault(self.jobs.demands[job], []), key)
        if self.ground.plans:
            insort(self.backlog.line, key)
            self._plan(now)

    def _start(self, job: int, demand: int, now: float) -> StartAnswer:
        trace = self.trace
        limit = trace.limit[job]
        until = now + limit if limit == limit else math.inf  # NaN: the limit is not known
        answer = self.ground.take(job, demand, until)
        if answer is not StartAnswer.TAKEN:
            return answer
        devices = trace.devices[job]
        self.jobs.state[job] = RUNS
        left = self.backlog.waiting[devices] - 1
        if left:
            self.backlog.waiting[devices] = left
        else:
            del self.backlog.waiting[devices]
        self.useful += devices
        self.out.start_times[job] = now
        runs = trace.runtime[job] + self.slurm.overhead_s
        heappush(self.events.job_ends, (now + runs, job, self.jobs.end_revision[job]))
        self.jobs.until[job] = until, self.ground.units(demand)
        self.priorities.job_began(trace.user[job], devices, now)
        self.state.draw(job, now)
        return answer

    def _end(self, job: int, now: float) -> None:
        self._stop(job, now)
        self.out.end_times[job] = now
        self._over(job, now)

    def _over(self, job: int, now: float) -> None:
        self.jobs.state[job] = OVER
        self.done += 1
        if self.progress and not self.done & 1023:
            self.progress(self.done, len(self.trace))
        for other in self.jobs.after.pop(job, ()):
            self.jobs.eligible[other] = max(self.trace.submit[other], now)
            self._push(other, now)

    def _stop(self, job: int, now: float) -> None:
        devices = self.trace.devices[job]
        self.ground.give(job)
        self.out.leaves(job, self.jobs.rows.pop(job), now)
        del self.jobs.until[job]
        self.useful -= devices
        self.priorities.job_ended(self.trace.user[job], devices, now)
        self.jobs.moved_at.pop(job, None)
        self.room.changed = True
        if self.ground.plans:
            self._plan(now)

    def _fail(self, machine: int, now: float) -> None:
        for job in self.ground.fail(machine):
            self._stop(job, now)
            self.jobs.end_revision[job] += 1
            self.out.failed += 1
            self.jobs.failures[job] = self.jobs.failures.get(job, 0) + 1
            if self.jobs.failures[job] < _LIVES:
                self._push(job, now)
                continue
            self.out.start_times[job] = math.nan
            self.out.refused[_GIVEN_UP] = self.out.refused.get(_GIVEN_UP, 0) + 1
            self.out.refused_seconds += self.trace.devices[job] * self.trace.runtime[job]
            self._over(job, now)
        self.events.add(now + self.chances.repair_s, "repair", machine)

    # -- the main scheduler ----------------------------------------------------------------------

    def _main(self, now: float) -> None:
        state, queue = self.jobs.state, self.backlog.heaps
        heads = []
        for demand, heap in queue.items():
            while heap and state[heap[0][1]] != WAITS:
                heappop(heap)
            if heap:
                heads.append((*heap[0], demand))
        heapify(heads)
        while heads:
            _, job, demand = heappop(heads)
            answer = self._start(job, demand, now)
            if answer is StartAnswer.NODES:
                return
            if answer is StartAnswer.LICENCES:
                continue
            heap = queue[demand]
            heappop(heap)
            while heap and state[heap[0][1]] != WAITS:
                heappop(heap)
            if heap:
                heappush(heads, (*heap[0], demand))

    def _rank(self, now: float) -> None:
        """Compute all priorities anew, and sort the queue by them."""
        self.priorities.rank(now)
        trace = self.trace
        for heap in self.backlog.heaps.values():
            heap[:] = [
                self.priorities.key(
                    job, self.jobs.eligible[job], trace.devices[job], trace.user[job], now
                )
                for _, job in heap
                if self.jobs.state[job] == WAITS
            ]
            heapify(heap)
        if self.ground.plans:
            self.backlog.line = sorted(
                entry for heap in self.backlog.heaps.values() for entry in heap
            )

    # -- backfill --------------------------------------------------------------------------------

    def _plan(self, now: float) -> None:
        """Schedule backfill for the end of its interval, unless it is scheduled already."""
        if self.ground.plans and not self.backfill_due:
            self.backfill_due = True
            self.events.add(max(now, self.backfilled + self.slurm.bf_interval), "backfill")

    def _backfill(self, now: float) -> None:
        self.backfilled = now
        slurm, ground, trace = self.slurm, self.ground, self.trace
        least = min((ground.units(d) for d, heap in self.backlog.heaps.items() if heap), default=0)
        if ground.free_units() < least:
            return
        if len(self.backlog.line) > 2 * sum(self.backlog.waiting.values()) + 100:
            self.backlog.line = [
                entry for entry in self.backlog.line if self.jobs.state[entry[1]] == WAITS
            ]
        profile = Profile(now, ground.free_units(), self.jobs.until.values())
        started, users = 0, dict[int, int]()
        never: dict[int, float] = {}  # units -> the shortest length for which there is no room
        examined = 0
        for _, job in self.backlog.line:
            if self.jobs.state[job] != WAITS:
                continue
            examined += 1
            if profile.now < least or examined > slurm.bf_max_job_test:
                return  # no later job can start now, and each run plans anew
            demand = self.jobs.demands[job]
            user = trace.user[job]
            users[user] = users.get(user, 0) + 1
            if slurm.bf_max_job_user and users[user] > slurm.bf_max_job_user:
                continue
            units, limit = ground.units(demand), trace.limit[job]
            length = limit if limit == limit else math.inf
            if units in never and length >= never[units]:
                continue  # reservations only take away, so this job has no room
            begin = profile.earliest(units, length, now + slurm.bf_window)
            if begin == math.inf:
                never[units] = length
                continue
            if begin <= now and self._start(job, demand, now) is StartAnswer.TAKEN:
                profile.reserve(now, now + length, units)
                started += 1
                if slurm.bf_max_job_start and started >= slurm.bf_max_job_start:
                    return
                continue
            first = max(now, self._coarse(begin))
            end = self._coarse(begin + length) if length < math.inf else math.inf
            profile.reserve(first, max(first, end), units)

    def _coarse(self, time: float) -> float:
        """Return a time on the grid of backfill's table, whose steps follow the clock
        (bf_resolution).
        """
        grain, epoch = self.slurm.bf_resolution, self.trace.epoch
        return math.floor((time + epoch) / grain) * grain - epoch

    # -- figures ---------------------------------------------------------------------------------

    def _account(self, now: float) -> None:
        free = self.ground.size - self.ground.occupied - self.ground.lost
        stuck = free if self.backlog.waiting and min(self.backlog.waiting) <= free else 0
        self.out.series.add(self.last, now, self.useful, self.ground.occupied, stuck)
        self.last = now

    def _finish(self) -> None:
        if self.trace.has_dependencies:
            self.out.eligible = self.jobs.eligible
        behind = self.jobs.state.count(BEHIND)
        for reason, left in (
            ("never started", sum(self.backlog.waiting.values())),
            ("wait for a job that never ends", behind),
        ):
            if left:
                self.out.refused[reason] = left
        out, ground = self.out, self.ground
        out.extra_domains = getattr(ground, "extra_domains", 0)
        out.wide_jobs = getattr(ground, "wide_jobs", 0)
        if self.progress:
            self.progress(len(self.trace), len(self.trace))
