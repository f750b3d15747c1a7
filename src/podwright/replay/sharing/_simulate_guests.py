"""Simulates the guests of one pod: the server's own queue decides, the guests are models.

A scheduler starts its jobs in its own order, and any that fit. It acts at once when one of its own
jobs is submitted or ends. What others do it learns with its next look. The looks of each scheduler
are LOOK_INTERVAL_S apart, as with the running system, and lie between those of the others. With
each look it names its first job, and learns what the server keeps. A look that could bring nothing
new is left out. People's requests are in the server's own queue, which serves them without any
look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from podwright.controller import PodRehearsal, Sharing
from podwright.fabric import IPU, simulated_ipus
from podwright.placement import Block
from podwright.placement.buddy_blocks import BuddyBlocks, block, fit, soonest
from podwright.placement.move_plans import likely_end_time
from podwright.replay._outcome import Outcome
from podwright.replay.sharing._shared_guest import PEOPLE, GuestJobs, SharedGuest

Progress = Callable[[int, int], None]
LOOK_INTERVAL_S: Final = 2.0  #: seconds between two looks of a scheduler
_DOMAIN_STRIDE_DEVICES: Final = IPU.max_domain_devices
#: The kinds of events, in the order in which those of one moment are handled.
_END_EVENT, _ARRIVAL_EVENT, _LOOK_EVENT, _REPLAN_EVENT = range(4)


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
        rounded_size = (
            -(-devices // _DOMAIN_STRIDE_DEVICES) * _DOMAIN_STRIDE_DEVICES
            if devices > _DOMAIN_STRIDE_DEVICES
            else devices
        )
        cluster = simulated_ipus("pod", rounded_size)
        machine_names = [machine.name for domain in cluster.domains for machine in domain.machines]
        self.pod = PodRehearsal(
            cluster,
            Sharing(common_queue, weights),
            self._note_request_served,
            machines=machine_names[: devices // IPU.devices_per_machine],
        )
        self.blocks = BuddyBlocks((1 << devices) - 1)
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
        for guest_index, guest_jobs in enumerate(self.lines):
            events.extend(
                (arrival_time, _ARRIVAL_EVENT, guest_index, job)
                for arrival_time, job in guest_jobs.arrivals()
            )
        heapify(events)
        while events:
            self.now = events[0][0]
            self.pod.advance(self.now)
            acting_guests: set[int] = set()
            looking_guests: list[int] = []
            while events and events[0][0] <= self.now:
                _, event_kind, guest_index, job = heappop(events)
                if event_kind == _LOOK_EVENT:
                    looking_guests.append(guest_index)
                elif event_kind == _REPLAN_EVENT:
                    self._replan_kept_places()
                else:
                    (self._note_job_ended if event_kind == _END_EVENT else self._note_job_arrived)(
                        guest_index, job
                    )
                    acting_guests.add(guest_index)
            for guest_index in sorted(acting_guests.intersection(self.schedulers)):
                self._start_jobs(guest_index)
            for guest_index in dict.fromkeys(looking_guests):
                self._run_scheduler_look(guest_index)
            if self.changed:
                self._schedule_next_looks()
        for guest_jobs in self.lines:
            guest_jobs.finish()
        if self.progress:
            self.progress(self.jobs, self.jobs)
        return [guest_jobs.outcome for guest_jobs in self.lines]

    # -- events ------------------------------------------------------------------------------

    def _note_job_arrived(self, guest_index: int, job: int) -> None:
        self.changed = True
        guest_jobs = self.lines[guest_index]
        if guest_index in self.next_looks:
            guest_jobs.push(job)
            return
        trace, limit_s = guest_jobs.guest.trace, guest_jobs.limit(job)
        announced_s = limit_s if limit_s < math.inf else 0.0
        user_name = trace.users[trace.user[job]]
        self.pod.request(f"{guest_index}-{job}", user_name, 1 << guest_jobs.order(job), announced_s)

    def _note_request_served(self, request_name: str, blocks: tuple[Block, ...]) -> None:
        """Note that a person's request has its devices."""
        index_text, _, job_text = request_name.partition("-")
        self._note_job_began(int(index_text), int(job_text), _block_device_bits(blocks))

    def _note_job_began(self, guest_index: int, job: int, device_bits: int) -> None:
        self.changed = True
        self.free &= ~device_bits
        end_time = self.lines[guest_index].began(job, device_bits, self.now)
        heappush(self.events, (end_time, _END_EVENT, guest_index, job))

    def _note_job_ended(self, guest_index: int, job: int) -> None:
        self.changed = True
        guest_jobs = self.lines[guest_index]
        self.free |= guest_jobs.running[job]
        for dependent in guest_jobs.over(job, self.now):
            heappush(self.events, (self.now, _ARRIVAL_EVENT, guest_index, dependent))
        self.pod.end(f"{guest_index}-{job}")
        self.done += 1
        if self.progress and not self.done & 255:
            self.progress(self.done, self.jobs)

    def _replan_kept_places(self) -> None:
        old_places = self.pod.kept_places
        self.pod.replan()
        self.changed |= self.pod.kept_places != old_places

    def _schedule_next_looks(self) -> None:
        """Set the next look of each scheduler that waits, and the server's next thought."""
        self.changed = False
        for guest_index in self.schedulers:
            guest_jobs = self.lines[guest_index]
            if guest_jobs.first is not None or guest_jobs.heads():
                self._schedule_look(guest_index, self.now)
        thinks_at = self.pod.thinks_at
        if thinks_at < math.inf and not self.now < self.thinks_at <= thinks_at:
            self.thinks_at = thinks_at
            heappush(self.events, (thinks_at, _REPLAN_EVENT, 0, 0))

    def _schedule_look(self, guest_index: int, after_time: float) -> None:
        """Set a scheduler's first look after a moment, unless it looks between now and then."""
        phase_s = LOOK_INTERVAL_S * self.schedulers.index(guest_index) / len(self.schedulers)
        look_time = phase_s + LOOK_INTERVAL_S * (
            math.floor((after_time - phase_s) / LOOK_INTERVAL_S) + 1
        )
        if not self.now < self.next_looks[guest_index] <= look_time:
            self.next_looks[guest_index] = look_time
            heappush(self.events, (look_time, _LOOK_EVENT, guest_index, 0))

    # -- schedulers --------------------------------------------------------------------------

    def _run_scheduler_look(self, guest_index: int) -> None:
        """Have a scheduler look: it names its first job, and starts what it can."""
        guest_jobs = self.lines[guest_index]
        old_places = self.pod.kept_places
        first_job = guest_jobs.first_waiting()
        if first_job != guest_jobs.first:
            guest_jobs.first, guest_jobs.since = first_job, self.now
        is_due = self.now - guest_jobs.since >= guest_jobs.guest.room_s > 0
        if first_job is not None and guest_jobs.guest.room_s > 0 and not is_due:
            self._schedule_look(guest_index, guest_jobs.since + guest_jobs.guest.room_s)
        if self.common_queue:
            job_name, device_count = (
                ("", 0)
                if first_job is None
                else (f"{guest_index}-{first_job}", 1 << guest_jobs.order(first_job))
            )
            self.pod.enqueue(guest_jobs.guest.name, job_name, device_count, due=is_due)
        else:
            self._close_soonest_block(guest_jobs, first_job if is_due else None)
        self.changed |= self.pod.kept_places != old_places
        self._start_jobs(guest_index)
        self.changed |= guest_jobs.first_waiting() != guest_jobs.first

    def _start_jobs(self, guest_index: int) -> None:
        """Start all jobs of a scheduler that fit, in its order."""
        guest_jobs, blocks = self.lines[guest_index], self.blocks
        blocks.free = self._countable_device_bits(guest_jobs)
        first_jobs = guest_jobs.heads()
        heapify(first_jobs)
        while first_jobs:
            _, job = heappop(first_jobs)
            block_order = guest_jobs.order(job)
            first_place = blocks.find(block_order)
            if first_place is None:
                continue
            devices = [
                divmod(slot, _DOMAIN_STRIDE_DEVICES)
                for slot in range(first_place, first_place + (1 << block_order))
            ]
            end_time = self.now + guest_jobs.limit(job)
            if not self.pod.start(guest_jobs.guest.name, f"{guest_index}-{job}", devices, end_time):
                continue
            blocks.take(first_place, block_order)
            guest_jobs.pop(block_order)
            self._note_job_began(guest_index, job, block(first_place, block_order))
            first_jobs = guest_jobs.heads()
            heapify(first_jobs)

    def _countable_device_bits(self, guest_jobs: GuestJobs) -> int:
        """Return the devices that a scheduler counts as free, as bits."""
        free_bits = self.free
        for kept_place in self.pod.places(guest_jobs.guest.name):
            if not (kept_place.own and kept_place.offered):
                free_bits &= ~_block_device_bits(kept_place.blocks)
        if not guest_jobs.closed & ~free_bits:
            guest_jobs.closed = 0  # all of it is free: it counts again
        return free_bits & ~guest_jobs.closed

    def _close_soonest_block(self, guest_jobs: GuestJobs, first_job: int | None) -> None:
        """Close the block whose jobs end soonest for a scheduler's first job, without the server.

        first_job: None if no room is to be made. The scheduler knows of its own jobs only.
        """
        usable_bits = self.free
        for kept_place in self.pod.places(guest_jobs.guest.name):
            usable_bits &= ~_block_device_bits(kept_place.blocks)
        for device_bits in guest_jobs.running.values():
            usable_bits |= device_bits
        if guest_jobs.closed and (
            guest_jobs.closed_for != first_job or guest_jobs.closed & ~usable_bits
        ):
            guest_jobs.closed = 0
        if first_job is None or guest_jobs.closed:
            return
        block_order = guest_jobs.order(first_job)
        self.blocks.free = self._countable_device_bits(guest_jobs)
        if fit(self.blocks, [block_order]):
            return
        capacity, start_times = self.blocks.capacity, guest_jobs.outcome.start_times
        occupied_blocks = []
        for job, device_bits in guest_jobs.running.items():
            started_at = start_times[job] + guest_jobs.guest.begin
            occupied_blocks.append(
                (
                    device_bits,
                    likely_end_time(started_at + guest_jobs.limit(job), started_at, self.now)[0],
                )
            )
        guest_jobs.closed = soonest(
            capacity, capacity & ~usable_bits, occupied_blocks, [block_order], first=-math.inf
        )
        guest_jobs.closed_for = first_job


def _block_device_bits(blocks: Iterable[Block]) -> int:
    """Return the devices of blocks, as bits."""
    device_bits = 0
    for domain_index, device_offset, block_size in blocks:
        device_bits |= (
            (1 << block_size) - 1
        ) << domain_index * _DOMAIN_STRIDE_DEVICES + device_offset
    return device_bits
