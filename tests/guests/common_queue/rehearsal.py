"""The queue of one pod without hardware, without a store and in a time that its caller sets.

All decisions are the server's own: the queue of
people (`_priority_queue`), the places that are kept for schedulers and whose turn it is
(`_guest_first_jobs`, `_fair_share`), and which devices a request may have. What a server does
beside that is left out here: partitions are neither written down nor configured, and nobody's
clients fall silent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from podwright.controller.partitions._partition_lifecycle import make_record
from podwright.controller.queue._fair_share import PEOPLE
from podwright.controller.queue._guest_first_jobs import REPLAN_S, FirstJob, JobNeed
from podwright.controller.queue._priority_queue import WaitingQueue
from podwright.controller.queue._waiter import Waiter, WaiterRecord
from podwright.controller.requests._device_claims import (
    MAX_DURATION_S,
    DeviceClaim,
    try_place,
)
from podwright.controller.requests._reserve_devices import guest_key, reservations_lent_to
from podwright.controller.requests._spec import CheckedSpec
from podwright.controller.state._caller import Caller, Role
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._records import DrainRecord
from podwright.controller.state._reservation import Reservation
from podwright.fabric import Cluster
from podwright.placement import Block
from podwright.store import MemoryStore
from podwright.wire import CreateRequest, PartitionSpec

_ACTION: Final = "rehearse"
#: The caller's 0, by the queue's clock: at its own 0, a place counts as never planned.
_TIME_ORIGIN: Final = 1_000_000.0
#: Seconds between two thoughts about a place: the server looks every half second whether it is
#: time for one.
_REPLAN_PERIOD_S: Final = REPLAN_S + 0.25


class PlaceInPod(NamedTuple):
    """Devices that are kept for somebody.

    own: for the job that the scheduler named. offered: all of them are free for it.
    """

    blocks: tuple[Block, ...]
    own: bool
    offered: bool


class _ManualClockStore(MemoryStore):
    """A store with nothing in it, whose time is set."""

    time = _TIME_ORIGIN

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time


class PodRehearsal:
    """The partitions of one pod, and who waits for devices of it.

    on_served: called with the name and the devices of a partition once a person's request gets
    them. machines: of the pod's only allocation.
    """

    def __init__(
        self,
        cluster: Cluster,
        weights: Mapping[str, float],
        on_served: Callable[[str, tuple[Block, ...]], None],
        *,
        machines: Sequence[str],
    ) -> None:
        self._clock = _ManualClockStore()
        self._pool = cluster.name, "pool"
        allocations = {cluster.name: {"pool": machines}}
        self._state = ControllerState(self._clock, [cluster], {}, allocations, driver_timeout=1.0)
        self._queue = WaitingQueue(self._state, self._serve_waiter)
        self._queue.guest_queue.configure(weights)
        self._served = on_served
        self._end_times: dict[str, dict[str, float]] = {}  # guest -> partition -> its end
        self._guest_of: dict[str, str] = {}  # by partition

    def advance(self, now: float) -> None:
        """Set the time: seconds from 0 on, never backwards.

        A server thinks an incomplete place over every few seconds. Between two events, that
        changes nothing but the time of the last thought. It decides whether devices that become
        free now are kept at once, or can go to whoever asks first.
        """
        self._clock.time = _TIME_ORIGIN + now
        for reservation in self._incomplete_reservations():
            count = math.ceil((self._clock.time - reservation.planned_at) / _REPLAN_PERIOD_S) - 1
            reservation.planned_at += max(0, count) * _REPLAN_PERIOD_S

    # -- people ------------------------------------------------------------------------------

    def request(self, name: str, user_name: str, size: int, duration_s: float) -> None:
        """Request a partition as a person does: it is served now, or its request waits.

        size: devices, as a partition may have. duration_s: how long it is announced to last; 0:
        unknown.
        """
        spec = PartitionSpec(name=name, size=size, cluster=self._pool[0])
        create_request = CreateRequest(spec=spec, duration=min(duration_s, MAX_DURATION_S))
        now = self._state.now()
        record = WaiterRecord(
            id=name, since=now, name=user_name, role=Role.USER, create=create_request
        )
        waiter = Waiter(record, _ACTION, now)
        claim = None
        if not self._queue.guest_queue.holds_back(spec):
            claim = try_place(self._state, waiter.checked, owner=user_name)
        if claim is not None:
            self._serve_waiter(waiter, claim)
        else:
            self._queue.add(waiter)
            self._queue.start_ready()

    def _serve_waiter(self, waiter: Waiter, claim: DeviceClaim | None) -> None:
        assert claim is not None  # nobody here waits for a partition by its name
        self._record_partition(claim, waiter.caller, "", waiter.duration)
        self._served(waiter.spec.name, claim.placement.blocks)

    # -- schedulers --------------------------------------------------------------------------

    def enqueue(self, guest: str, job: str, device_count: int, *, due: bool) -> None:
        """Name a scheduler's first job, as `Enqueue` does. job: empty: none waits. device_count:
        devices, a power of two. due: devices that are in use are kept for it, too.
        """
        scheduler_key, now = guest_key(guest, ""), self._state.now()
        needs = (JobNeed(*self._pool, (device_count,)),)
        jobs = [FirstJob(scheduler_key, job, guest, needs, due, now)] if job else []
        self._queue.guest_queue.enqueue(scheduler_key, jobs, self._end_times.setdefault(guest, {}))
        self._queue.start_ready()

    def places(self, guest: str) -> Iterator[PlaceInPod]:
        """Return what is kept in the pod, as this scheduler learns it."""
        for job_id, goal, is_offered in self._queue.guest_queue.places(
            guest_key(guest, ""), self._pool
        ):
            yield PlaceInPod(goal.blocks, bool(job_id), is_offered)

    def start(
        self, guest: str, name: str, devices: Sequence[tuple[int, int]], end_time: float
    ) -> bool:
        """Create a partition on these devices for a scheduler's job, unless somebody has them or
        they are kept for others.

        devices: (link domain, offset) of each. end_time: when the scheduler expects it to end;
        infinite: it does not know.
        """
        state, scheduler_key = self._state, guest_key(guest, "")
        spec = PartitionSpec(name=name, cluster=self._pool[0], devices=list(devices))
        checked_spec = CheckedSpec(spec, _ACTION)
        with reservations_lent_to(state, scheduler_key):
            claim = try_place(state, checked_spec, owner=guest)
        if claim is None:
            return False
        self._record_partition(claim, Caller(guest, None, Role.SCHEDULER), scheduler_key, 0.0)
        self._guest_of[name] = guest
        if end_time < math.inf:
            self._end_times.setdefault(guest, {})[name] = _TIME_ORIGIN + end_time
        return True

    # -- both --------------------------------------------------------------------------------

    def _record_partition(
        self,
        claim: DeviceClaim,
        caller: Caller,
        scheduler_key: str,
        duration_s: float,
    ) -> None:
        state, name = self._state, claim.checked.spec.name
        entry = PartitionEntry(name, claim.cluster)
        state.partitions.add(entry)
        state.set(
            entry,
            make_record(state, caller, claim, guest=scheduler_key, duration=duration_s),
        )
        state.admitted.discard(claim.admitted)

    def end(self, name: str) -> None:
        """End a partition: its devices are free at once, and the queue gets them."""
        self._end_times.get(self._guest_of.pop(name, ""), {}).pop(name, None)
        self._state.forget(self._state.partitions[name])

    def replan(self) -> None:
        """Serve who can be served, and think over what is kept."""
        self._queue.start_ready()

    def cancel(self, name: str) -> None:
        """Withdraw a person's request that waits."""
        waiter = next(waiter for waiter in self._queue if waiter.id == name)
        self._queue.remove(waiter)
        self._queue.start_ready()

    def sweep(self, present: Iterable[str]) -> None:
        """Forget schedulers that are silent. present: those that call, whether or not the caller
        has left out calls that change nothing."""
        for guest in present:
            if known := self._queue.guest_queue._guests.get(guest_key(guest, "")):
                known.seen = self._state.now()
        if self._queue.guest_queue:
            self._queue.guest_queue.sweep()
            self._queue.start_ready()

    def set_machine(self, machine: str, *, in_service: bool) -> None:
        """Take a machine out of service, or return it."""
        cluster = self._state.inventory.clusters[self._pool[0]]
        if in_service:
            cluster.drains.pop(machine, None)
            cluster.index.resume(machine)
        else:
            cluster.drains[machine] = DrainRecord()
            cluster.index.drain(machine)
        self._state.freed(None, (), "")

    def turns(self) -> dict[str, tuple[float, bool]]:
        """Each first job, by its name and its guest: its turn, and whether it has a tag. People's
        first waiter is there by its id and as PEOPLE."""
        guests, shares = self._queue.guest_queue, self._queue.guest_queue.shares
        jobs = {
            job.name: (shares.time(job.guest) if job.tag is None else job.tag, job.tag is not None)
            for job in guests._waiting_jobs()
        }
        jobs[PEOPLE] = shares.time(PEOPLE), False
        waiter = self._queue._first_waiter()
        if waiter is not None and waiter.tag is not None:
            jobs[waiter.id] = jobs[PEOPLE] = waiter.tag, True
        return jobs

    @property
    def thinks_at(self) -> float:
        """When the server will think over a place that is not complete; infinite: there is none."""
        times = [
            reservation.planned_at + _REPLAN_PERIOD_S
            for reservation in self._incomplete_reservations()
        ]
        return min(times, default=math.inf) - _TIME_ORIGIN

    def _incomplete_reservations(self) -> list[Reservation]:
        reservations = self._state.reservations.values()
        return [
            reservation
            for reservation in reservations
            if reservation.missing and reservation.planned_at
        ]

    @property
    def kept_places(self) -> tuple[tuple[str, tuple[Block, ...], bool], ...]:
        """What is kept now: for whom, which devices, and whether some of them are in use."""
        return tuple(
            (reservation.waiter, reservation.goal.blocks, bool(reservation.missing))
            for reservation in self._state.reservations.values()
        )
