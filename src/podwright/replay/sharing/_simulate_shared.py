"""Simulates the guests of one pod: the server's own queue decides, the guests are models.

A scheduler starts its jobs in its own order, and any that fit. It acts at once when one of its own
jobs is submitted or ends. What others do it learns with its next look. The looks of each scheduler
are LOOK_S apart, as with the running system, and lie between those of the others. With each look it
names its first job, and learns what the server keeps. A look that could bring nothing new is left
out. People's requests are in the server's own queue, which serves them without any look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from podwright.controller import PodRehearsal, Sharing
from podwright.fabric import IPU, simulated_ipus
from podwright.placement import Block
from podwright.placement.buddy_blocks import Blocks, block, fit, soonest
from podwright.placement.move_plans import likely_end
from podwright.replay._outcome import Outcome
from podwright.replay.sharing._shared_guest import PEOPLE, GuestJobs, SharedGuest

Progress = Callable[[int, int], None]
LOOK_S: Final = 2.0  #: seconds between two looks of a scheduler
_STRIDE: Final = IPU.max_domain_devices
#: The kinds of events, in the order in which those of one moment are handled.
_END, _ARRIVAL, _LOOK, _THINK = range(4)


def simulate_shared(
    guests: Sequence[SharedGuest],
    devices: int,
    *,
    common_queue: bool = True,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Return the outcome of each guest on a pod that they share.

    devices: of the pod, a multiple of 4. common_queue: as `vipu-server --sharing`. progress: called
    sometimes with finished jobs, and all jobs.
    """
    return _SharedRun(guests, devices, common_queue, progress).run()


class _SharedRun:
    """free: the devices that no job has, as bits. changed: whether something has happened since the
    last looks were set. next_looks: when each scheduler looks next. thinks_at: when the server
    thinks places over.
    """

    def __init__(
        self,
        guests: Sequence[SharedGuest],
        devices: int,
        common_queue: bool,
        progress: Progress | None,
    ) -> None:
        self.common_queue, self.progress = common_queue, progress
        weights = {guest.name: guest.weight for guest in guests}
        rounded_size = -(-devices // _STRIDE) * _STRIDE if devices > _STRIDE else devices
        cluster = simulated_ipus("pod", rounded_size)
        names = [machine.name for domain in cluster.domains for machine in domain.machines]
        self.pod = PodRehearsal(
            cluster,
            Sharing(common_queue, weights),
            self._served,
            machines=names[: devices // IPU.devices_per_machine],
        )
        self.blocks = Blocks((1 << devices) - 1)
        self.free = self.blocks.capacity
        self.lines = [GuestJobs(guest, devices) for guest in guests]
        self.schedulers = [
            guest_index for guest_index, guest in enumerate(guests) if guest.name != PEOPLE
        ]
        self.next_looks = dict.fromkeys(self.schedulers, -1.0)
        self.events: list[tuple[float, int, int, int]] = []
        self.now, self.thinks_at = 0.0, -1.0
        self.changed = False
        self.done, self.jobs = 0, sum(len(guest.trace) for guest in guests)

    def run(self) -> list[Outcome]:
        events = self.events
        for place, line in enumerate(self.lines):
            events.extend((arrival, _ARRIVAL, place, job) for arrival, job in line.arrivals())
        heapify(events)
        while events:
            self.now = events[0][0]
            self.pod.advance(self.now)
            acting: set[int] = set()
            looking: list[int] = []
            while events and events[0][0] <= self.now:
                _, kind, place, job = heappop(events)
                if kind == _LOOK:
                    looking.append(place)
                elif kind == _THINK:
                    self._think()
                else:
                    (self._end if kind == _END else self._arrive)(place, job)
                    acting.add(place)
            for place in sorted(acting.intersection(self.schedulers)):
                self._start_jobs(place)
            for place in dict.fromkeys(looking):
                self._examine(place)
            if self.changed:
                self._wake()
        for line in self.lines:
            line.finish()
        if self.progress:
            self.progress(self.jobs, self.jobs)
        return [line.outcome for line in self.lines]

    # -- events ------------------------------------------------------------------------------

    def _arrive(self, place: int, job: int) -> None:
        self.changed = True
        line = self.lines[place]
        if place in self.next_looks:
            line.push(job)
            return
        trace, limit = line.guest.trace, line.limit(job)
        seconds = limit if limit < math.inf else 0.0
        user = trace.users[trace.user[job]]
        self.pod.request(f"{place}-{job}", user, 1 << line.order(job), seconds)

    def _served(self, name: str, blocks: tuple[Block, ...]) -> None:
        """Note that a person's request has its devices."""
        place, _, job = name.partition("-")
        self._began(int(place), int(job), _bits(blocks))

    def _began(self, place: int, job: int, devices: int) -> None:
        self.changed = True
        self.free &= ~devices
        end = self.lines[place].began(job, devices, self.now)
        heappush(self.events, (end, _END, place, job))

    def _end(self, place: int, job: int) -> None:
        self.changed = True
        line = self.lines[place]
        self.free |= line.running[job]
        for other in line.over(job, self.now):
            heappush(self.events, (self.now, _ARRIVAL, place, other))
        self.pod.end(f"{place}-{job}")
        self.done += 1
        if self.progress and not self.done & 255:
            self.progress(self.done, self.jobs)

    def _think(self) -> None:
        before = self.pod.kept_places
        self.pod.think_over()
        self.changed |= self.pod.kept_places != before

    def _wake(self) -> None:
        """Set the next look of each scheduler that waits, and the server's next thought."""
        self.changed = False
        for place in self.schedulers:
            line = self.lines[place]
            if line.first is not None or line.heads():
                self._look_at(place, self.now)
        thinks_at = self.pod.thinks_at
        if thinks_at < math.inf and not self.now < self.thinks_at <= thinks_at:
            self.thinks_at = thinks_at
            heappush(self.events, (thinks_at, _THINK, 0, 0))

    def _look_at(self, place: int, after: float) -> None:
        """Set a scheduler's first look after a moment, unless it looks between now and then."""
        phase = LOOK_S * self.schedulers.index(place) / len(self.schedulers)
        look_time = phase + LOOK_S * (math.floor((after - phase) / LOOK_S) + 1)
        if not self.now < self.next_looks[place] <= look_time:
            self.next_looks[place] = look_time
            heappush(self.events, (look_time, _LOOK, place, 0))

    # -- schedulers --------------------------------------------------------------------------

    def _examine(self, place: int) -> None:
        """Have a scheduler look: it names its first job, and starts what it can."""
        line = self.lines[place]
        before = self.pod.kept_places
        first = line.first_waiting()
        if first != line.first:
            line.first, line.since = first, self.now
        due = self.now - line.since >= line.guest.room_s > 0
        if first is not None and line.guest.room_s > 0 and not due:
            self._look_at(place, line.since + line.guest.room_s)
        if self.common_queue:
            name, size = ("", 0) if first is None else (f"{place}-{first}", 1 << line.order(first))
            self.pod.enqueue(line.guest.name, name, size, due=due)
        else:
            self._make_room(line, first if due else None)
        self.changed |= self.pod.kept_places != before
        self._start_jobs(place)
        self.changed |= line.first_waiting() != line.first

    def _start_jobs(self, place: int) -> None:
        """Start all jobs of a scheduler that fit, in its order."""
        line, blocks = self.lines[place], self.blocks
        blocks.free = self._counted(line)
        heads = line.heads()
        heapify(heads)
        while heads:
            _, job = heappop(heads)
            order = line.order(job)
            start = blocks.find(order)
            if start is None:
                continue
            devices = [divmod(slot, _STRIDE) for slot in range(start, start + (1 << order))]
            end = self.now + line.limit(job)
            if not self.pod.start(line.guest.name, f"{place}-{job}", devices, end):
                continue
            blocks.take(start, order)
            line.pop(order)
            self._began(place, job, block(start, order))
            heads = line.heads()
            heapify(heads)

    def _counted(self, line: GuestJobs) -> int:
        """Return the devices that a scheduler counts as free, as bits."""
        free = self.free
        for place in self.pod.places(line.guest.name):
            if not (place.own and place.offered):
                free &= ~_bits(place.blocks)
        if not line.closed & ~free:
            line.closed = 0  # all of it is free: it counts again
        return free & ~line.closed

    def _make_room(self, line: GuestJobs, first: int | None) -> None:
        """Close the block whose jobs end soonest for a scheduler's first job, without the server.

        first: None if no room is to be made. The scheduler knows of its own jobs only.
        """
        usable = self.free
        for place in self.pod.places(line.guest.name):
            usable &= ~_bits(place.blocks)
        for devices in line.running.values():
            usable |= devices
        if line.closed and (line.closed_for != first or line.closed & ~usable):
            line.closed = 0
        if first is None or line.closed:
            return
        order = line.order(first)
        self.blocks.free = self._counted(line)
        if fit(self.blocks, [order]):
            return
        capacity, began = self.blocks.capacity, line.outcome.start_times
        occupied = []
        for job, devices in line.running.items():
            start = began[job] + line.guest.begin
            occupied.append((devices, likely_end(start + line.limit(job), start, self.now)[0]))
        line.closed = soonest(capacity, capacity & ~usable, occupied, [order], first=-math.inf)
        line.closed_for = first


def _bits(blocks: Iterable[Block]) -> int:
    """Return the devices of blocks, as bits."""
    out = 0
    for domain, offset, size in blocks:
        out |= ((1 << size) - 1) << domain * _STRIDE + offset
    return out
