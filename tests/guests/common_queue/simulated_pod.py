"""A pod in virtual time whose guests are models and whose queue is the server's own.

It takes a thousandth of the time that `SharedPod` takes, so it can play thousands of histories and
a million recorded jobs. Real are the server's queue (`PodRehearsal`) and the guests' choice of the
job that they name (`JobNaming`). A guest is a model: a scheduler that starts its jobs in its own
order, and any that fits. Slurm counts devices, so it also starts others on a place that was offered
for one job, and then raises that job's priority. The operator starts nobody else there.

A scheduler acts at once when one of its own jobs is submitted or ends. What others do it learns
with its next look; the looks of each are LOOK_S apart. A look that could bring nothing new is left
out. People's requests are in the server's own queue.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from podwright.fabric import IPU, simulated_ipus
from podwright.guests.shared import JobNaming, Waits
from podwright.placement import Block
from podwright.placement.buddy_blocks import BuddyBlocks, block
from tests.guests.common_queue.rehearsal import PodRehearsal

LOOK_S = 2.0  #: seconds between two looks of a scheduler
SILENT_S = 62.0  #: seconds after which the server has noticed that a scheduler is silent
_STRIDE = IPU.max_domain_devices
#: Jobs of a scheduler's queue that it considers at a look: the first of each size, and so many.
_FULL_LIST = 64


@dataclass(slots=True, eq=False)
class Job:
    """A job. size: devices. limit: seconds that it announces; 0: none. task_of: its array. then:
    the job that is submitted once it has ended. waits_since: when it was submitted or requeued.
    """

    name: str
    size: int
    seconds: float
    submit: float = 0.0
    priority: int = 0
    limit: float = 0.0
    task_of: str = ""
    then: Job | None = None
    waits_since: float = -1.0
    started: float = -1.0
    ended: float = -1.0
    held: bool = False
    gone: bool = False
    bits: int = 0
    run: int = 0  #: how often it was requeued

    @property
    def order(self) -> int:
        return (self.size - 1).bit_length()

    @property
    def waits(self) -> bool:
        return self.waits_since >= 0 and self.started < 0 and not (self.held or self.gone)

    @property
    def rank(self) -> tuple[int, float, str]:
        return -self.priority, self.submit, self.name


@dataclass
class Kept:
    """The first place that was kept for a job of `guest`. beside: the jobs that ran there, or were
    started there by the same guest before it knew of the place."""

    since: float
    bits: int
    guest: int
    beside: list[Job] = field(default_factory=list)
    passes: set[float] = field(default_factory=set)  #: when the guest started others there
    lost: bool = False  #: a machine failed, or its guest was silent

    def until(self) -> float:
        """When the last of them had ended; infinite while one runs: the job had another place."""
        return max([self.since, *(j.ended if j.ended >= 0 else math.inf for j in self.beside)])


class Guest:
    """A guest. away_until: it neither looks nor gives devices back until then."""

    def __init__(self, index: int, name: str, jobs: Sequence[Job], room_s: float) -> None:
        self.index, self.name, self.jobs, self.room_s = index, name, list(jobs), room_s
        self.naming = JobNaming(room_s)
        self.by_name = {job.name: job for job in self.jobs}
        self.away_until = -1.0
        self._lines: dict[int, list[tuple[Any, int, Job]]] = {}
        self._ages: dict[int, list[tuple[float, int, Job]]] = {}
        self._serial = count()
        self.raised: set[str] = set()
        self.offered = 0  #: the devices of its own place, once it knows that all are free

    @property
    def is_people(self) -> bool:
        return self.name == "people"

    def push(self, job: Job) -> None:
        heappush(self._lines.setdefault(job.order, []), (job.rank, next(self._serial), job))
        heappush(self._ages.setdefault(job.order, []), (job.waits_since, next(self._serial), job))

    def first_of(self, order: int) -> Job | None:
        """The first waiting job of a size, in the guest's own order."""
        line = self._lines.get(order, [])
        while line and not (line[0][2].waits and line[0][0] == line[0][2].rank):
            heappop(line)
        return line[0][2] if line else None

    def _oldest_of(self, order: int) -> Job | None:
        line = self._ages.get(order, [])
        while line and not (line[0][2].waits and line[0][0] == line[0][2].waits_since):
            heappop(line)
        return line[0][2] if line else None

    def orders(self) -> list[int]:
        return list(self._lines)

    def candidates(self) -> list[Job]:
        """The waiting jobs of which one may be named: the first and the oldest of each size, and
        the one that is named."""
        if len(self.jobs) <= _FULL_LIST:
            return [job for job in self.jobs if job.waits]
        found = [self.first_of(order) for order in self._lines]
        found += [self._oldest_of(order) for order in self._lines]
        named = self.naming.named.get("pod")
        found.append(self.by_name.get(named.job.job) if named else None)
        return list({id(job): job for job in found if job is not None and job.waits}.values())


class SimulatedPod:
    """A pod with its guests, and a record of who got what when.

    name_of: what a scheduler calls a job; a fault may be planted here. late, on_kept, out_of_turn:
    what broke the promise, in words.
    """

    def __init__(
        self,
        devices: int,
        guests: Mapping[str, Sequence[Job]],
        *,
        weights: Mapping[str, float] | None = None,
        room_s: float | Mapping[str, float] = 60.0,
        name_of: Callable[[Job], str] = lambda job: job.name,
    ) -> None:
        cluster = simulated_ipus("pod", max(devices, _STRIDE) if devices > _STRIDE else devices)
        self.machines = [machine.name for domain in cluster.domains for machine in domain.machines]
        self.devices, self.name_of = devices, name_of
        self.pod = PodRehearsal(cluster, weights or {}, self._served, machines=self.machines)
        self.blocks = BuddyBlocks((1 << devices) - 1)
        self.free, self.down = self.blocks.capacity, 0
        self.guests = [
            Guest(index, name, jobs, room_s if isinstance(room_s, float) else room_s[name])
            for index, (name, jobs) in enumerate(guests.items())
        ]
        self.schedulers = [guest for guest in self.guests if not guest.is_people]
        self.now, self._thinks_at = 0.0, -1.0
        self._events: list[tuple[float, int, int, Callable[[], None]]] = []
        self._serial = count()
        self._looks: dict[int, float] = {}
        self._active: set[int] = set()
        self._changed = False
        self.kept: dict[str, Kept] = {}
        self._place: tuple[str, int] = ("", 0)
        self._idle_since = -1.0
        self.idle = self.used = 0.0  #: device-seconds
        self.late: list[str] = []
        self.on_kept: list[str] = []
        self.out_of_turn: list[str] = []
        self.worst_late = 0.0
        self.ended_jobs = 0
        self._running: dict[str, tuple[Guest, Job]] = {}

    # -- time --------------------------------------------------------------------------------

    def at(self, moment: float, action: Callable[[], None], kind: int = 1) -> None:
        """Do something at a moment. Of one moment, ends (0) come first and looks (2) last."""
        heappush(self._events, (moment, kind, next(self._serial), action))

    def run(self, until: float = math.inf) -> None:
        """Play until nothing happens any more, or until a moment."""
        for guest in self.guests:
            followers = {id(job.then) for job in guest.jobs if job.then is not None}
            for job in guest.jobs:
                if id(job) not in followers:
                    self._events.append(
                        (
                            job.submit,
                            1,
                            next(self._serial),
                            partial(self.submit, guest, job),
                        )
                    )
        heapify(self._events)
        self.run_on(until)

    def run_on(self, until: float) -> None:
        """Play on until a later moment."""
        while self._events and self._events[0][0] <= until:
            self._advance(self._events[0][0])
            while self._events and self._events[0][0] <= self.now:
                if self._events[0][1] == 2 and self._active:
                    break
                heappop(self._events)[3]()
            for index in sorted(self._active):
                self._active.discard(index)
                if not self.guests[index].is_people:
                    self._start_jobs(self.guests[index])
            self._observe()
            if self._changed:
                self._changed = False
                self._plan_looks()
        if until < math.inf:
            self._advance(until)

    def last_end(self) -> float:
        """When the last job ended."""
        return max(job.ended for guest in self.guests for job in guest.jobs)

    def _advance(self, now: float) -> None:
        elapsed = now - self.now
        self.used += elapsed * (self.blocks.capacity & ~self.free).bit_count()
        if self._idle_since >= 0:
            self.idle += elapsed * self._place[1].bit_count()
        self.now = now
        self.pod.advance(now)

    def _plan_looks(self) -> None:
        for guest in self.schedulers:
            if guest.naming.named or any(
                job is not None for job in map(guest.first_of, guest.orders())
            ):
                self._look_after(guest, self.now)
        thinks_at = self.pod.thinks_at
        if thinks_at < math.inf and not self.now < self._thinks_at <= thinks_at:
            self._thinks_at = thinks_at
            self.at(thinks_at, self._replan)

    def _replan(self) -> None:
        before = self.pod.kept_places
        self.pod.replan()
        self._changed |= before != self.pod.kept_places

    def _look_after(self, guest: Guest, moment: float) -> None:
        phase = LOOK_S * self.schedulers.index(guest) / len(self.schedulers)
        look = phase + LOOK_S * (math.floor((moment - phase) / LOOK_S + 1e-9) + 1)
        look = max(look, guest.away_until)
        if not self.now < self._looks.get(guest.index, -1.0) <= look:
            self._looks[guest.index] = look
            self.at(look, lambda: self._look(guest), 2)

    # -- what happens ------------------------------------------------------------------------

    def submit(self, guest: Guest, job: Job) -> None:
        if job.gone:
            self._go_on(guest, job)
            return
        job.waits_since = job.submit = self.now
        self._active.add(guest.index)
        self._changed = True
        if guest.is_people:
            self.pod.request(job.name, guest.name, 1 << job.order, job.limit)
        else:
            guest.push(job)

    def end(self, job: Job, run: int) -> None:
        if job.run != run or job.ended >= 0 or job.started < 0:
            return
        guest, _ = self._running[job.name]
        if guest.away_until > self.now:
            self.at(guest.away_until, lambda: self.end(job, run), 0)
            return
        self._give_back(guest, job)
        job.ended = self.now
        self.ended_jobs += 1
        self._go_on(guest, job)

    def _go_on(self, guest: Guest, job: Job) -> None:
        """A script submits its next job."""
        if (then := job.then) is not None:
            self.at(self.now + 0.5, lambda: self.submit(guest, then))

    def _give_back(self, guest: Guest, job: Job) -> None:
        self.free |= job.bits & ~self.down
        del self._running[job.name]
        self._active.add(guest.index)
        self._changed = True
        self.pod.end(job.name)

    def requeue(self, job: Job) -> None:
        """A running job goes back into its queue; a person's is over."""
        if job.started < 0 or job.ended >= 0:
            return
        guest, _ = self._running[job.name]
        job.run += 1
        if guest.is_people:
            job.ended, job.gone = self.now, True
            self._give_back(guest, job)
            self._go_on(guest, job)
            return
        for kept in self.kept.values():
            if job in kept.beside:
                kept.beside.remove(job)
                kept.since = max(kept.since, self.now)
        self._give_back(guest, job)
        job.started, job.waits_since, job.bits = -1.0, self.now, 0
        self.kept.pop(self._title(guest, job), None)
        guest.push(job)

    def cancel(self, guest: Guest, job: Job) -> None:
        if job.waits:
            job.gone = True
            self.kept.pop(self._title(guest, job), None)
            self._changed = True
            if guest.is_people:
                self.pod.cancel(job.name)
            self._go_on(guest, job)

    def hold(self, guest: Guest, job: Job, seconds: float) -> None:
        if job.waits and not guest.is_people:
            job.held = True
            self._changed = True
            self.kept.pop(self._title(guest, job), None)
            self.at(self.now + seconds, lambda: self._release(guest, job))

    def _release(self, guest: Guest, job: Job) -> None:
        job.held = False
        job.waits_since = self.now
        guest.push(job)
        self._active.add(guest.index)
        self._changed = True

    def set_priority(self, guest: Guest, job: Job, priority: int) -> None:
        if job.waits and not guest.is_people:
            job.priority = priority
            guest.push(job)
            self._active.add(guest.index)
            self._changed = True

    def go_away(self, guest: Guest, seconds: float) -> None:
        if guest.is_people:
            return
        guest.away_until = max(guest.away_until, self.now + seconds)
        self.at(self.now + SILENT_S, self._sweep)
        self.at(guest.away_until, lambda: self._return(guest))

    def _return(self, guest: Guest) -> None:
        if self.now >= guest.away_until:
            self._changed = True
            self._look_after(guest, self.now)

    def _sweep(self) -> None:
        present = [guest.name for guest in self.schedulers if guest.away_until <= self.now]
        before = self.pod.kept_places
        self.pod.sweep(present)
        for guest in self.schedulers:
            if guest.name not in present:
                for kept in self.kept.values():
                    kept.lost |= kept.guest == guest.index
        self._changed |= before != self.pod.kept_places

    def fail_machine(self, machine: int, seconds: float) -> None:
        """A machine is out of service for a while. Its jobs are requeued."""
        width = IPU.devices_per_machine
        bits = ((1 << width) - 1) << machine * width
        if bits & self.down:
            return
        self.down |= bits
        self.free &= ~bits
        self.pod.set_machine(self.machines[machine], in_service=False)
        for _, job in list(self._running.values()):
            if job.bits & bits:
                self.requeue(job)
        for kept in self.kept.values():
            kept.lost |= bool(kept.bits & bits)
        self._changed = True
        self.at(self.now + seconds, lambda: self._repair(machine, bits))

    def _repair(self, machine: int, bits: int) -> None:
        self.down &= ~bits
        held = 0
        for _, job in self._running.values():
            held |= job.bits
        self.free |= bits & ~held
        self.pod.set_machine(self.machines[machine], in_service=True)
        self._active.update(guest.index for guest in self.schedulers)
        self._changed = True

    # -- starts ------------------------------------------------------------------------------

    def _served(self, name: str, blocks: tuple[Block, ...]) -> None:
        guest = next(guest for guest in self.guests if guest.is_people)
        self._began(guest, guest.by_name[name], _bits(blocks))

    def _began(self, guest: Guest, job: Job, bits: int) -> None:
        self._changed = True
        assert not bits & ~self.free, f"{job.name} got devices that are not free"
        waiter, place = self._present_place()[:2]
        if place & bits and waiter != self._title(guest, job):
            kept = self.kept.get(waiter)
            if kept is None:
                pass  # its job has just started, and the place is given on with the next call
            elif kept.guest == guest.index and not guest.is_people:
                kept.beside.append(job)
                if self.now > kept.since + 2 * LOOK_S:
                    kept.passes.add(self.now)
            else:
                self.on_kept.append(f"{job.name} at {self.now:.0f} s on the place of {waiter}")
        self.free &= ~bits
        job.started, job.bits = self.now, bits
        self._running[job.name] = guest, job
        run = job.run
        self.at(self.now + job.seconds, lambda: self.end(job, run), 0)
        self._judge_start(guest, job)

    def _title(self, guest: Guest, job: Job) -> str:
        """What the server calls a first job."""
        return job.name if guest.is_people else f"{self.name_of(job)} of {guest.name}"

    def _look(self, guest: Guest) -> None:
        if guest.away_until > self.now:
            self._look_after(guest, guest.away_until)
            return
        before = self.pod.kept_places
        alone = guest.name.startswith("kubernetes")
        candidates = guest.candidates()
        guest.naming.update(
            [
                Waits(
                    job.priority + (1 << 20) * (job.name in guest.raised),
                    job.name,
                    {"pod": [job.order]},
                    name=self.name_of(job),
                    since=job.waits_since,
                )
                for job in sorted(candidates, key=lambda job: job.rank)
                if job.order < self.devices.bit_length()
            ],
            self.now,
        )
        named = guest.naming.named.get("pod")
        if named is not None:
            due_at = named.since + guest.room_s
            if not named.is_due and due_at > self.now:
                self._look_after(guest, max(self.now, due_at - LOOK_S))
            job = guest.by_name[named.job.job]
            self.pod.enqueue(guest.name, named.job.title, 1 << job.order, due=named.is_due)
        else:
            self.pod.enqueue(guest.name, "", 0, due=False)
        own = [place for place in self.pod.places(guest.name) if place.own]
        guest.naming.hear("pod", has_place=bool(own), offered=any(place.offered for place in own))
        guest.offered = sum(_bits(place.blocks) for place in own if place.offered)
        if not alone:
            guest.raised.update(waits.job for waits in guest.naming.passed())
        self._changed |= before != self.pod.kept_places
        self._observe()
        self._start_jobs(guest)

    def _start_jobs(self, guest: Guest) -> None:
        """Start all jobs of a scheduler that fit, in its order."""
        if guest.away_until > self.now:
            return
        alone = guest.name.startswith("kubernetes")
        countable, own = self.free, 0
        for place in self.pod.places(guest.name):
            own |= guest.offered & _bits(place.blocks) if place.own else 0
            countable &= ~_bits(place.blocks)
        countable |= 0 if alone else own & self.free
        named = guest.naming.named.get("pod")
        job = guest.by_name[named.job.job] if named is not None and own else None
        if alone and job is not None and job.waits:
            countable &= ~self._start(guest, job, countable | own & self.free)
        tried: set[int] = set()
        while True:
            heads = [guest.by_name[name] for name in guest.raised]
            heads += filter(None, map(guest.first_of, guest.orders()))
            heads = [head for head in heads if head.waits and head.order not in tried]
            if not heads:
                return
            job = min(heads, key=lambda head: (head.name not in guest.raised, head.rank))
            bits = self._start(guest, job, countable)
            countable &= ~bits
            if not bits:
                tried.add(job.order)

    def _start(self, guest: Guest, job: Job, countable: int) -> int:
        """Start a job on some of these devices. Returns those that it got."""
        self.blocks.free = countable
        start = self.blocks.find(job.order)
        if start is None:
            return 0
        devices = [divmod(slot, _STRIDE) for slot in range(start, start + (1 << job.order))]
        end_time = self.now + job.limit if job.limit else math.inf
        if not self.pod.start(guest.name, job.name, devices, end_time):
            return 0
        guest.raised.discard(job.name)
        self._began(guest, job, block(start, job.order))
        return job.bits

    # -- the judge ---------------------------------------------------------------------------

    def _observe(self) -> None:
        """Note which place is kept, and whether it idles. There is one at a time."""
        waiter, bits, incomplete = self._present_place()
        if waiter and waiter != self._place[0]:
            self._judge_turn(waiter)
        if waiter and (waiter, bits) != self._place:
            self._note_kept(waiter, bits)
        self._place = waiter, bits
        idles = bool(waiter) and not incomplete
        if idles and self._idle_since < 0:
            self._idle_since = self.now
        elif not idles:
            self._idle_since = -1.0

    def _present_place(self) -> tuple[str, int, bool]:
        """For whom a place is kept, its devices, and whether some are in use."""
        for waiter, blocks, incomplete in self.pod.kept_places:
            return waiter, _bits(blocks), incomplete
        return "", 0, False

    def _note_kept(self, waiter: str, bits: int) -> None:
        kept = self.kept.get(waiter)
        named = [guest.naming.named.get("pod") for guest in self.schedulers]
        if " of " in waiter and not any(
            job is not None and job.is_due and waiter.startswith(f"{job.job.title} of ")
            for job in named
        ):
            return  # it is not due: it is offered what is free, until its guest names another
        if kept is None or kept.lost:
            self.kept[waiter] = self.make_kept(waiter, bits)
        else:
            kept.bits = bits

    def make_kept(self, waiter: str, bits: int) -> Kept:
        """The record of a place that is kept from now on."""
        beside = [job for _, job in self._running.values() if job.bits & bits]
        people = [guest.index for guest in self.guests if guest.is_people]
        owners = [g.index for g in self.guests if waiter.endswith(f" of {g.name}")]
        return Kept(self.now, bits, (owners or people)[0], beside)

    def _judge_turn(self, waiter: str) -> None:
        """A place was given. No job with an earlier turn, and that is due, may lack one for it."""
        turns = self.pod.turns()
        turn = turns.get(waiter, turns.get("", (math.inf, False)))[0]
        for other, (other_turn, has_tag) in turns.items():
            if has_tag and other != waiter and other_turn < turn - 1e-6 and not self.down:
                self.out_of_turn.append(
                    f"{waiter} ({turn:.0f}) before {other} ({other_turn:.0f}) at {self.now:.0f} s"
                )

    def _judge_start(self, guest: Guest, job: Job) -> None:
        kept = self.kept.pop(self._title(guest, job), None)
        if kept is None or kept.lost or guest.away_until > kept.since:
            return  # nobody starts a job while its guest is away
        if kept.since < job.waits_since:
            return  # it was held, and its guest had not said so yet when the place was kept
        late = self.now - kept.until()
        self.worst_late = max(self.worst_late, late)
        if late > 30.0 or len(kept.passes) > 2:
            self.late.append(f"{job.name} {late:.0f} s, passed {sorted(kept.passes)}, {kept.since}")


def _bits(blocks: Iterable[Block]) -> int:
    bits = 0
    for domain, offset, size in blocks:
        bits |= ((1 << size) - 1) << domain * _STRIDE + offset
    return bits
