"""A trace on a ground under a model of Slurm: event by event, the same each time.

An event is a job that becomes eligible, one that ends, a machine that fails or is repaired, a
look of backfill, or room that is due. All that happens at one moment is taken together, then the
main scheduler looks at the queue. Jobs of one kind and one ground fit together or not at all, so
the queue is a heap for each kind, and a look costs as much as it starts jobs.
"""

from __future__ import annotations

import math
import random
from array import array
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from podwright.placement.move_plans import MovePlan, likely_end, may_be_asked, plan_moves
from podwright.replay._backfill import Profile
from podwright.replay._ground import Ground, StartAnswer, Unfit
from podwright.replay._host_resources import Hosts
from podwright.replay._outcome import Outcome, Series
from podwright.replay._pod_ground import Counted, PodGround
from podwright.replay._priority import Priorities
from podwright.replay._slurm_settings import SlurmModel
from podwright.replay._trace import Trace

Progress = Callable[[int, int], None]
_BEHIND, _WAITS, _RUNS, _OVER = range(4)
#: So often a job begins; Slurm would go on for ever.
_LIVES = 10
_GIVEN_UP = f"ended {_LIVES} times by machines that failed"


@dataclass(frozen=True)
class Chances:
    """What happens by chance, from one seed. movable: the share of jobs that may be moved, move_s:
    what each loses by it. mtbf_s: how long a machine lives until it fails, infinite for never;
    repair_s: how long it is away then.
    """

    seed: int = 1
    movable: float = 1.0
    move_s: float = 300.0
    mtbf_s: float = math.inf
    repair_s: float = 14400.0


def simulate(
    trace: Trace,
    ground: Ground,
    slurm: SlurmModel,
    chances: Chances = Chances(),
    *,
    progress: Progress | None = None,
) -> Outcome:
    """What the jobs of a trace come to. progress: called now and then with jobs done, and all."""
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
        jobs = len(trace)
        nothing = array("d", [math.nan]) * jobs
        series = Series.over(trace.span)
        self.out = Outcome(ground.name, ground.size, nothing, array("d", nothing), series)
        self.out.simpler = ground.simpler
        self.priorities = Priorities(slurm, ground.size, len(trace.users))
        self.eligible = array("d", trace.eligible)  # with dependencies: when they are met
        self.demands = array("q", [-1]) * jobs
        self.kinds: dict[tuple[int, int, int, int], int | str] = {}
        self.state = bytearray(jobs)
        self.life = array("i", bytes(4 * jobs))
        self.failures: dict[int, int] = {}
        self.bars: dict[int, int] = {}  # running: the first of its rows in out.where
        self.queue: dict[int, list[tuple[float, int]]] = {}
        self.line: list[tuple[float, int]] = []  # the queue as backfill walks it, and who left it
        self.waiting: dict[int, int] = {}  # how many jobs wait that ask for so many devices
        self.ends: list[tuple[float, int, int]] = []
        self.until: dict[int, tuple[float, int]] = {}  # running: end by its limit, units
        self.timers: list[tuple[float, int, str, int]] = []
        self.timer_number = 0
        self.after: dict[int, list[int]] = {}
        self.useful = 0
        self.last = 0.0
        self.backfill_due = False
        self.backfilled = -math.inf
        self.first, self.first_since = -1, 0.0
        self.freed = True  # has anything changed since moves were last looked for?
        self.moving = False
        self.moved_at: dict[int, list[float]] = {}  # of those that run: when each moved
        self.done = 0
        self.progress = progress
        rng = random.Random(chances.seed)
        self.movable = bytes(rng.random() < chances.movable for _ in range(jobs))
        self.rng = rng

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> Outcome:
        arrivals = self._arrivals()
        arrivals.reverse()
        if self.chances.mtbf_s < math.inf:
            for machine in range(self.ground.machines):
                self._timer(self.rng.expovariate(1 / self.chances.mtbf_s), "fail", machine)
        eligible, ends, timers = self.eligible, self.ends, self.timers
        while arrivals or ends or self._waits():
            now = math.inf
            if arrivals:
                now = eligible[arrivals[-1]]
            if ends and ends[0][0] < now:
                now = ends[0][0]
            if timers and timers[0][0] < now:
                now = timers[0][0]
            if now == math.inf:
                break  # what is left in the queue never starts
            self._account(now)
            while ends and ends[0][0] <= now:
                _, job, life = heappop(ends)
                if self.life[job] == life and self.state[job] == _RUNS:
                    self._end(job, now)
            while arrivals and eligible[arrivals[-1]] <= now:
                self._push(arrivals.pop(), now)
            look = False
            while timers and timers[0][0] <= now:
                _, _, what, which = heappop(timers)
                look |= what == "backfill"
                self._tick(what, which, now)
            if self.priorities.is_stale(now):
                self._rank(now)
            self._main(now)
            if look:
                self._backfill(now)
            if self.pod is not None:
                self._room(now)
            self.out.events += 1
        self._finish()
        return self.out

    def _arrivals(self) -> list[int]:
        """Jobs by when they are eligible; those that are refused, or wait for others, are not
        among them."""
        trace, order = self.trace, []
        for job in range(len(trace)):
            demand = self._demand(job)
            if demand < 0:
                self.state[job] = _OVER
                continue
            self.demands[job] = demand
        for job in range(len(trace)):
            if self.state[job] == _OVER:
                continue
            before = trace.after[job]
            if before >= 0 and self.state[before] != _OVER:
                self.after.setdefault(before, []).append(job)
            else:
                order.append(job)
        eligible = self.eligible
        if any(eligible[order[i]] > eligible[order[i + 1]] for i in range(len(order) - 1)):
            order.sort(key=lambda job: (eligible[job], job))
        return order

    def _demand(self, job: int) -> int:
        trace = self.trace
        devices = trace.devices[job]
        key = (devices, trace.nodes[job], trace.cpus[job], trace.memory[job])
        kind = self.kinds.get(key)
        if kind is None:
            try:
                kind = self.ground.demand(*key)
            except Unfit as unfit:
                kind = unfit.reason
            self.kinds[key] = kind
        if isinstance(kind, int):
            return kind
        self.out.refused[kind] = self.out.refused.get(kind, 0) + 1
        self.out.refused_seconds += devices * trace.runtime[job]
        return -1

    def _waits(self) -> bool:
        return bool(self.waiting)

    def _timer(self, at: float, what: str, which: int = 0) -> None:
        self.timer_number += 1
        heappush(self.timers, (at, self.timer_number, what, which))

    def _tick(self, what: str, which: int, now: float) -> None:
        if what == "backfill":
            self.backfill_due = False
        elif what == "left":
            assert isinstance(self.pod, PodGround)
            self.pod.left(which)
            self.moving = False
        elif what == "fail":
            self._fail(which, now)
        elif what == "repair":
            self.ground.repair(which)
            if self.waiting or self.until:
                self._timer(now + self.rng.expovariate(1 / self.chances.mtbf_s), "fail", which)

    # -- jobs ------------------------------------------------------------------------------------

    def _push(self, job: int, now: float) -> None:
        trace = self.trace
        devices = trace.devices[job]
        self.state[job] = _WAITS
        self.freed = True
        self.waiting[devices] = self.waiting.get(devices, 0) + 1
        key = self.priorities.key(job, self.eligible[job], devices, trace.user[job], now)
        heappush(self.queue.setdefault(self.demands[job], []), key)
        if self.ground.plans:
            insort(self.line, key)
            self._plan(now)

    def _start(self, job: int, demand: int, now: float) -> StartAnswer:
        trace = self.trace
        limit = trace.limit[job]
        until = now + limit if limit == limit else math.inf  # NaN: it is not known
        answer = self.ground.take(job, demand, until)
        if answer is not StartAnswer.TAKEN:
            return answer
        devices = trace.devices[job]
        self.state[job] = _RUNS
        left = self.waiting[devices] - 1
        if left:
            self.waiting[devices] = left
        else:
            del self.waiting[devices]
        self.useful += devices
        self.out.began[job] = now
        runs = trace.runtime[job] + self.slurm.overhead_s
        heappush(self.ends, (now + runs, job, self.life[job]))
        self.until[job] = until, self.ground.units(demand)
        self.priorities.began(trace.user[job], devices, now)
        self._bars(job, now)
        return answer

    def _bars(self, job: int, now: float) -> None:
        """Where a job is from here on, as the report draws it."""
        self.bars[job] = len(self.out.where) // 3
        for first, count in self.ground.spans(job):
            self.out.where.extend((job, first, count))
            self.out.when.extend((now, math.nan))

    def _end(self, job: int, now: float) -> None:
        self._stop(job, now)
        self.out.ended[job] = now
        self._over(job, now)

    def _over(self, job: int, now: float) -> None:
        self.state[job] = _OVER
        self.done += 1
        if self.progress and not self.done & 1023:
            self.progress(self.done, len(self.trace))
        for other in self.after.pop(job, ()):
            self.eligible[other] = max(self.trace.submit[other], now)
            self._push(other, now)

    def _stop(self, job: int, now: float) -> None:
        devices = self.trace.devices[job]
        self.ground.give(job)
        self.out.leaves(job, self.bars.pop(job), now)
        del self.until[job]
        self.useful -= devices
        self.priorities.ended(self.trace.user[job], devices, now)
        self.moved_at.pop(job, None)
        self.freed = True
        if self.ground.plans:
            self._plan(now)

    def _fail(self, machine: int, now: float) -> None:
        for job in self.ground.fail(machine):
            self._stop(job, now)
            self.life[job] += 1
            self.out.failed += 1
            self.failures[job] = self.failures.get(job, 0) + 1
            if self.failures[job] < _LIVES:
                self._push(job, now)
                continue
            self.out.began[job] = math.nan
            self.out.refused[_GIVEN_UP] = self.out.refused.get(_GIVEN_UP, 0) + 1
            self.out.refused_seconds += self.trace.devices[job] * self.trace.runtime[job]
            self._over(job, now)
        self._timer(now + self.chances.repair_s, "repair", machine)

    # -- the main scheduler ----------------------------------------------------------------------

    def _main(self, now: float) -> None:
        state, queue = self.state, self.queue
        heads = []
        for demand, heap in queue.items():
            while heap and state[heap[0][1]] != _WAITS:
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
            while heap and state[heap[0][1]] != _WAITS:
                heappop(heap)
            if heap:
                heappush(heads, (*heap[0], demand))

    def _rank(self, now: float) -> None:
        """Priorities are reckoned anew."""
        self.priorities.rank(now)
        trace = self.trace
        for heap in self.queue.values():
            heap[:] = [
                self.priorities.key(
                    job, self.eligible[job], trace.devices[job], trace.user[job], now
                )
                for _, job in heap
                if self.state[job] == _WAITS
            ]
            heapify(heap)
        if self.ground.plans:
            self.line = sorted(entry for heap in self.queue.values() for entry in heap)

    # -- backfill --------------------------------------------------------------------------------

    def _plan(self, now: float) -> None:
        """Backfill looks when its interval is over, if anything has changed."""
        if self.ground.plans and not self.backfill_due:
            self.backfill_due = True
            self._timer(max(now, self.backfilled + self.slurm.bf_interval), "backfill")

    def _backfill(self, now: float) -> None:
        self.backfilled = now
        slurm, ground, trace = self.slurm, self.ground, self.trace
        least = min((ground.units(d) for d, heap in self.queue.items() if heap), default=0)
        if ground.free_units() < least:
            return
        if len(self.line) > 2 * sum(self.waiting.values()) + 100:
            self.line = [entry for entry in self.line if self.state[entry[1]] == _WAITS]
        profile = Profile(now, ground.free_units(), self.until.values())
        started, users = 0, dict[int, int]()
        never: dict[int, float] = {}  # units -> the shortest length for which there is no room
        looked = 0
        for _, job in self.line:
            if self.state[job] != _WAITS:
                continue
            looked += 1
            if profile.now < least or looked > slurm.bf_max_job_test:
                return  # none of those behind can start now, and plans are made anew each time
            demand = self.demands[job]
            user = trace.user[job]
            users[user] = users.get(user, 0) + 1
            if slurm.bf_max_job_user and users[user] > slurm.bf_max_job_user:
                continue
            units, limit = ground.units(demand), trace.limit[job]
            length = limit if limit == limit else math.inf
            if units in never and length >= never[units]:
                continue  # plans only take away, so it is in vain for this one as well
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
        """A time in backfill's table, whose steps are those of the clock (bf_resolution)."""
        grain, epoch = self.slurm.bf_resolution, self.trace.epoch
        return math.floor((time + epoch) / grain) * grain - epoch

    # -- room and moves --------------------------------------------------------------------------

    def _room(self, now: float) -> None:
        """As the service makes room: for the first in the queue, when it has waited long."""
        pod = self.pod
        assert pod is not None
        first = min((heap[0] for heap in self.queue.values() if heap), default=None)
        if first is None:
            self.first = -1
            if pod.closed:
                pod.open()
            return
        job = first[1]
        if pod.closed and pod.closed_for != job and not self.moving:
            pod.open()
            self._main(now)
            return
        if job != self.first:
            sweep = self.slurm.sweep_s
            self.first = job
            self.first_since = math.ceil(now / sweep) * sweep if sweep else now
            if self.slurm.room_s > 0:
                self._timer(self._due(), "room")
        demand = pod.demand(self.trace.devices[job], 0, 0, 0)
        if self._moves(now):
            return
        if self.slurm.room_s <= 0 or pod.closed or now < self._due():
            return
        if not pod.fits(demand):
            pod.close(job, demand, self._likely_ends(now))

    def _due(self) -> float:
        """When room is made for the first in the queue: with a sweep of the service."""
        due, sweep = self.first_since + self.slurm.room_s, self.slurm.sweep_s
        return math.ceil(due / sweep) * sweep if sweep else due

    def _moves(self, now: float) -> bool:
        """Move what stands in the way of the first that fits by count and not by shape."""
        pod = self.pod
        if not isinstance(pod, PodGround) or pod.policy != "moves" or self.moving or not self.freed:
            return False
        self.freed = False
        able: dict[int, float] | None = None
        held: dict[int, tuple[int, float]] = {}
        for _, job in sorted(heap[0] for heap in self.queue.values() if heap):
            demand = pod.demand(self.trace.devices[job], 0, 0, 0)
            free = pod.free.bit_count() if pod.closed_for == job else pod.blocks.free.bit_count()
            if free < 1 << demand or pod.fits(demand):
                continue
            if pod.closed_for == job:
                pod.open()
            elif pod.closed:
                continue
            if able is None:  # the same for all heads
                able = self._able(now)
                ends = self._likely_ends(now) if able else {}
                held = {one: (pod.jobs[one][0], ends[one]) for one in pod.jobs} if able else {}
            plan = plan_moves(pod.blocks, demand, held, able, now=now, away=pod.away)
            if plan is not None:
                self._move(job, plan, now)
                return True
        return False

    def _move(self, job: int, plan: MovePlan, now: float) -> None:
        """The moves of a plan begin: it is for the first in the queue."""
        pod = self.pod
        assert isinstance(pod, PodGround)
        pod.closed, pod.closed_for = plan.devices, job
        pod.blocks.free &= ~plan.devices
        lost = self.chances.move_s
        for other, order in plan.jobs:
            pod.move(other, order)
            self.out.moves += 1
            self.out.moved_seconds += lost * (1 << order)
            self._delay(other, lost, now)
            self.out.series.add(now, now + lost, -self.trace.devices[other], 0, 0)  # no work done
            self._timer(now + lost, "left", other)
            self.out.leaves(other, self.bars[other], now + lost)
            self._bars(other, now)
        self.moving = True

    def _likely_ends(self, now: float) -> dict[int, float]:
        """When those that run end, as far as Slurm can tell."""
        began = self.out.began
        return {job: likely_end(end, began[job], now)[0] for job, (end, _) in self.until.items()}

    def _able(self, now: float) -> dict[int, float]:
        """Who can be moved now, and what each loses."""
        assert isinstance(self.pod, PodGround)
        moved = self.moved_at
        able = (job for job in self.pod.jobs if self.movable[job])
        return {job: self.chances.move_s for job in able if may_be_asked(moved.get(job, ()), now)}

    def _delay(self, job: int, lost: float, now: float) -> None:
        """A job that moves ends so much later."""
        self.life[job] += 1
        runs = self.trace.runtime[job] + self.slurm.overhead_s
        moved = self.moved_at.setdefault(job, [])
        moved.append(now)
        heappush(self.ends, (self.out.began[job] + runs + lost * len(moved), job, self.life[job]))

    # -- figures ---------------------------------------------------------------------------------

    def _account(self, now: float) -> None:
        free = self.ground.size - self.ground.taken - self.ground.lost
        stuck = free if self.waiting and min(self.waiting) <= free else 0
        self.out.series.add(self.last, now, self.useful, self.ground.taken, stuck)
        self.last = now

    def _finish(self) -> None:
        if self.trace.has_dependencies:
            self.out.eligible = self.eligible
        behind = self.state.count(_BEHIND)
        for reason, left in (
            ("never started", sum(self.waiting.values())),
            ("wait for a job that never ends", behind),
        ):
            if left:
                self.out.refused[reason] = left
        out, ground = self.out, self.ground
        out.extra_domains = getattr(ground, "extra_domains", 0)
        out.wide_jobs = getattr(ground, "wide_jobs", 0)
        if self.progress:
            self.progress(len(self.trace), len(self.trace))
