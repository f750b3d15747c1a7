"""The first jobs of the schedulers beside the controller, and the devices that are kept for them.

A scheduler starts its jobs by itself, and knows only its own. Two schedulers that fill a pod with
small jobs would each starve the other's large one, since neither leaves a block alone in which the
other has a partition. So each scheduler names its first job that waits for devices alone
(`Enqueue`), and the controller keeps a place for it, as it does for a waiter of its own queue
(`_priority_queue`). One request of a pool has a kept place at a time. Whose request comes next is
decided among guests (`_fair_share`), not among jobs: which job a scheduler names is its own
decision. A job that is due has a tag, by which it comes in turn from then on.

A job that has not waited long gets no more than its turn: of what becomes free, a place that is
free at once and that fits. So guests that both have more jobs than devices each get their share. A
job that is due also has devices kept for it that are still in use. Every job is while people wait.

Such a place stays where it is until its job has started. Nothing else starts on it meanwhile, so
the job waits at most until the last partition on it ends. A place that moved to wherever the
estimate is better today could move for ever, because the end of most partitions is only an
estimate. The place changes only if its machines go out of service, or if another place is free at
once. The time at which it is expected to be free is computed again at each change (`retime`).

Once all of its devices are free, the place is offered: the scheduler may create partitions there.
A scheduler that does not do so within OFFERED_S loses its place for a while, which doubles each
time. One that is silent for SILENT_S has no jobs here. Nothing of this is stored: schedulers call
every few seconds, and after a restart of the server the next call brings their jobs back.
"""

from __future__ import annotations

import math
from collections import ChainMap, Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from podwright.controller.queue._fair_share import PEOPLE, Shares, guest_name
from podwright.controller.queue._waiter import Waiter
from podwright.controller.requests._reserve_devices import (
    guest_goal,
    in_service,
    overlap,
    retimed,
)
from podwright.controller.requests._spec import CheckedSpec
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._reservation import Goal, Reservation
from podwright.errors import InvalidRequest
from podwright.placement import Block
from podwright.wire import PartitionSpec

OFFERED_S: Final = 60.0  #: seconds in which an offered place is to be used
SILENT_S: Final = 60.0  #: seconds without a call, after which a scheduler's jobs are forgotten
REPLAN_S: Final = 5.0  #: seconds between looks for a place that is free at once
MOST_GUESTS: Final = 16
_MAX_DOUBLINGS: Final = 6  #: times at most
_REPLAN_NOW: Final = 0.0  #: when a place was planned that is to be thought over at once

Pool = tuple[str, str]


class JobNeed(NamedTuple):
    """What a job needs of one cluster. allocation: empty: of any. sizes: of its blocks, the largest
    first."""

    cluster: str
    allocation: str
    sizes: tuple[int, ...]


@dataclass(slots=True, eq=False)
class FirstJob:
    """A scheduler's first job that waits for devices.

    guest: the scheduler (`guest_key`). due: devices in use are kept for it, too. since: when it was
    first named. offered_at: since when all of its devices are free; 0: they are not. untaken: how
    often it did not take its offer. not_before: until then nothing is kept for it. promised:
    devices in use have been kept for it, so it counts as due from then on. tag: the virtual time of
    its guest when it became due; None: it has not yet. used: its scheduler has started something on
    its offered place since it last called; only the next call says whether that was this job.
    """

    guest: str
    job: str
    owner: str
    needs: tuple[JobNeed, ...]
    due: bool
    since: float
    offered_at: float = 0.0
    untaken: int = 0
    not_before: float = 0.0
    promised: bool = False
    tag: float | None = None
    used: bool = False

    @property
    def name(self) -> str:
        """The job, as messages and lists name it."""
        return f"{self.job} of {guest_name(self.guest)}"


@dataclass(slots=True)
class _GuestState:
    seen: float
    heads: dict[str, FirstJob] = field(default_factory=dict)
    end_times: Mapping[str, float] = field(default_factory=dict)


class GuestQueue:
    """The first jobs of all schedulers.

    first_waiter: returns the first waiter of the server's own queue that waits for devices; None:
    there is none. shares: decides whose turn it is. stored_weights, option_weights: by the name of
    a scheduler, or `people`; a stored one comes first.
    """

    def __init__(self, state: ControllerState, first_waiter: Callable[[], Waiter | None]) -> None:
        self._state, self._first_waiter = state, first_waiter
        self._guests: dict[str, _GuestState] = {}
        #: The first waiter at the last charge.
        self._waiter: Waiter | None = None
        self._guests_compete = False  # do two guests wait
        #: The devices of the largest due job, by cluster.
        self._due_sizes: dict[str, int] = {}
        self.stored_weights: dict[str, float] = {}
        self.configure({})

    def configure(self, weights: Mapping[str, float]) -> None:
        """Share by these weights where none is stored. Called before anybody waits."""
        self.option_weights = dict(weights)
        self.shares = Shares(ChainMap(self.stored_weights, self.option_weights))

    def __bool__(self) -> bool:
        return any(guest.heads for guest in self._guests.values())

    def set_weight(self, name: str, weight: float | None) -> None:
        """Change the stored weight of a guest; None: it has none any more. Time that has passed
        counts with the old weight."""
        self._charge_use()
        if weight is None:
            self.stored_weights.pop(name, None)
        else:
            self.stored_weights[name] = weight

    @property
    def names(self) -> set[str]:
        """The names of the schedulers that call, and `people`."""
        return {guest_name(key) for key in (PEOPLE, *self._guests)}

    # -- what schedulers say -----------------------------------------------------------------

    def enqueue(
        self, guest_key: str, jobs: Iterable[FirstJob], end_times: Mapping[str, float]
    ) -> None:
        """Take over a scheduler's first jobs. A job that it named before keeps its place.

        end_times: of its partitions, in seconds of `ControllerState.now`.
        """
        now = self._state.now()
        guest = self._guests.setdefault(guest_key, _GuestState(now))
        guest.seen, guest.end_times = now, end_times
        while len(self._guests) > MOST_GUESTS:
            self._forget_guest(
                min(self._guests, key=lambda known_key: self._guests[known_key].seen)
            )
        jobs_by_id = {first_job.job: first_job for first_job in jobs}
        for job_id, first_job in list(guest.heads.items()):
            new_job = jobs_by_id.get(job_id)
            if new_job is None or (new_job.owner, new_job.needs) != (
                first_job.owner,
                first_job.needs,
            ):
                self._drop_reservations(guest.heads.pop(job_id))
            else:
                first_job.due, first_job.used = new_job.due, False
        guest.heads = jobs_by_id | guest.heads
        for first_job in guest.heads.values():
            for reservation in self._reservations_of(first_job):
                self._retime(reservation)

    def places(self, guest_key: str, pool: Pool) -> Iterator[tuple[str, Goal, bool]]:
        """What is kept in a pool: the scheduler's own job or empty, the place, and whether it is
        offered. An empty allocation stands for all of the cluster's."""
        cluster, allocation = pool
        for (cluster_name, allocation_name), reservation in self._state.reservations.items():
            if cluster_name == cluster and allocation in ("", allocation_name):
                job = (
                    self._job_of_reservation(reservation)
                    if reservation.guest == guest_key
                    else None
                )
                is_offered = job is not None and bool(job.offered_at)
                yield job.job if job else "", reservation.goal, is_offered

    def places_of_job(self, scheduler: str, job_id: str) -> list[Reservation]:
        """What is kept for a job. scheduler: its `guest_key`."""
        guest = self._guests.get(scheduler)
        first_job = guest.heads.get(job_id) if guest is not None else None
        return self._reservations_of(first_job) if first_job is not None else []

    def sweep(self) -> None:
        """Forget silent schedulers, and take back offers that were not used."""
        now = self._state.now()
        for key, guest in list(self._guests.items()):
            if now - guest.seen > SILENT_S:
                self._forget_guest(key)
        for job in self._first_jobs():
            if job.offered_at and now - job.offered_at > OFFERED_S:
                job.untaken += 1
                job.not_before = now + OFFERED_S * 2 ** min(job.untaken, _MAX_DOUBLINGS)
                self._drop_reservations(job)
        self._charge_use()

    # -- whose turn it is --------------------------------------------------------------------

    def plan(self, *, before_people: bool = False) -> None:
        """Keep a place for each job whose turn it is. before_people: only for those whose turn is
        before that of the server's own queue.

        A job of several pools gets all its places at once, so that no two jobs can each keep what
        the other lacks. While it waits for that, no job behind it gets a place in its pools.
        """
        if not self:
            return
        self._charge_use()
        rank_limit = (math.inf, math.inf)
        if before_people and self._waiter is not None:
            rank_limit = (self._waiter.tag or 0.0, self._waiter.record.since)
        claimed_pools: set[Pool] = set()
        for first_job in sorted(self._waiting_jobs(), key=self._job_rank):
            if self._job_rank(first_job)[:2] >= rank_limit:
                break
            reservations = self._planned(first_job, claimed_pools)
            claimed_pools.update(reservation.goal.pool for reservation in reservations)
            is_complete = bool(reservations) and not any(
                reservation.missing for reservation in reservations
            )
            first_job.offered_at = (
                (first_job.offered_at or self._state.now()) if is_complete else 0.0
            )

    def _planned(self, first_job: FirstJob, claimed_pools: set[Pool]) -> list[Reservation]:
        """The places of a job, which are planned where it has none yet."""
        if reservations := self._reservations_of(first_job):
            self._revise_places(first_job, reservations)
        if reservations := self._reservations_of(first_job):
            return reservations
        goals = self._find_goals(first_job, claimed_pools | self._state.reservations.keys())
        if not self._is_due(first_job):
            # It is kept only from others who wait: without them its scheduler decides alone.
            return self._reserve_if_free(first_job, goals or ()) if self._guests_compete else []
        if goals is not None:
            first_job.promised = True
            return [self._reserve_goal(first_job, goal) for goal in goals]
        if len(first_job.needs) > 1 and self._find_goals(first_job, ()):
            # One of its pools has a kept place already. The others are not given to jobs behind it.
            claimed_pools.update(
                pool for need in first_job.needs for pool in self._pools_of_need(need)
            )
        return []

    def _is_due(self, first_job: FirstJob) -> bool:
        """Whether devices in use are kept for a job, too.

        While people wait they are, because the server's own queue keeps them for its waiters from
        the start. They also are while a due job waits that is no smaller: a place of that size is
        kept in any case, and the guests' use decides for whom.
        """
        return (
            first_job.due
            or first_job.promised
            or self._waiter is not None
            or all(
                sum(need.sizes) <= self._due_sizes.get(need.cluster, 0) for need in first_job.needs
            )
        )

    def _waiting_jobs(self) -> Iterator[FirstJob]:
        now = self._state.now()
        return (job for job in self._first_jobs() if job.not_before <= now)

    def _job_rank(self, first_job: FirstJob) -> tuple[float, float, str]:
        turn = self.shares.time(first_job.guest) if first_job.tag is None else first_job.tag
        return turn, first_job.since, first_job.name

    def _charge_use(self) -> None:
        """Charge for the time that has passed, and give those a tag who are due now."""
        first_jobs = list(self._waiting_jobs())
        self._due_sizes = {}
        for need in (need for job in first_jobs if job.due for need in job.needs):
            largest_size = self._due_sizes.get(need.cluster, 0)
            self._due_sizes[need.cluster] = max(largest_size, sum(need.sizes))
        self._waiter = self._first_waiter()
        waiting: dict[str, float | None] = {}
        for first_job in first_jobs:
            tags = (first_job.tag, waiting.get(first_job.guest))
            waiting[first_job.guest] = min((tag for tag in tags if tag is not None), default=None)
        if self._waiter is not None:
            waiting[PEOPLE] = self._waiter.tag
        device_counts: Counter[str] = Counter()
        if waiting:
            device_counts.update(self._state.partitions.guest_devices)
            for reservation in self._state.reservations.values():
                device_counts[reservation.guest] += reservation.reserved
        self._guests_compete = len(waiting) > 1
        self.shares.update(waiting, device_counts, self._state.now())
        for first_job in first_jobs:
            if first_job.tag is None and (first_job.due or first_job.promised):
                first_job.tag = self.shares.time(first_job.guest)
        if self._waiter is not None and self._waiter.tag is None:
            self._waiter.tag = self.shares.time(PEOPLE)

    def holds_back(self, spec: PartitionSpec) -> bool:
        """Whether a request of people waits although its devices may be free: a scheduler whose
        turn is earlier has an offer there that it has not answered, and answers within two seconds.

        People's requests are answered at once. Without this they would take all that becomes free
        between two calls of a scheduler.
        """
        turn = self.shares.time(PEOPLE)
        if self._waiter is not None and self._waiter.tag is not None:
            turn = self._waiter.tag
        return any(
            (job.offered_at or job.used)
            and self._job_rank(job)[0] < turn
            and spec.cluster in ("", need.cluster)
            and (not need.allocation or spec.allocation in ("", need.allocation))
            for job in self._waiting_jobs()
            for need in job.needs
        )

    # -- places ------------------------------------------------------------------------------

    def _end_times(self) -> dict[str, float]:
        return {
            name: end_time
            for guest in self._guests.values()
            for name, end_time in guest.end_times.items()
        }

    def freed(self, cluster: IndexedCluster, blocks: Sequence[Block]) -> None:
        """Keep devices that became free for whose place they are, and compute its time again."""
        for reservation in self._state.reservations.values():
            if reservation.goal.cluster is cluster and overlap(reservation.goal.blocks, blocks):
                reservation.reserve_free_blocks()
                self._retime(reservation)

    def _retime(self, reservation: Reservation) -> None:
        times = self._end_times() if reservation.guest else {}
        reservation.goal = retimed(self._state, reservation.goal, reservation.owner, times)

    def _find_goals(self, first_job: FirstJob, barred_pools: Collection[Pool]) -> list[Goal] | None:
        """A place for each need, in pools that are not barred; None unless there are all."""
        end_times = self._end_times()
        goals: list[Goal] = []
        for need in first_job.needs:
            best_goal: Goal | None = None
            for cluster_name, allocation_name in self._pools_of_need(need):
                if (cluster_name, allocation_name) in barred_pools or any(
                    goal.pool == (cluster_name, allocation_name) for goal in goals
                ):
                    continue
                cluster = self._state.inventory.clusters[cluster_name]
                goal = guest_goal(
                    self._state, cluster, first_job.owner, need.sizes, allocation_name, end_times
                )
                if goal and (best_goal is None or goal.starts_at < best_goal.starts_at):
                    best_goal = goal
            if best_goal is None:
                return None
            goals.append(best_goal)
        return goals

    def _reserve_goal(self, first_job: FirstJob, goal: Goal) -> Reservation:
        """Reserve a place for a job.

        The goal counts the partitions that are written down. Devices may also belong to a start
        that is not written down yet. Then the place is thought over at the next look.
        """
        reservation = self._new_reservation(first_job, goal)
        if sum(block.size for block in reservation.missing) > goal.busy:
            reservation.planned_at = _REPLAN_NOW
        self._state.reservations[goal.pool] = reservation
        return reservation

    def _new_reservation(self, first_job: FirstJob, goal: Goal) -> Reservation:
        order = (0, first_job.since, first_job.name)
        return Reservation(
            first_job.name, order, goal, self._state.now(), first_job.owner, first_job.guest
        )

    def _reserve_if_free(self, first_job: FirstJob, goals: Sequence[Goal]) -> list[Reservation]:
        """Reserve places if all of them are free at once; else none, and nothing has changed."""
        reservations = [self._new_reservation(first_job, goal) for goal in goals if not goal.busy]
        if (
            reservations
            and len(reservations) == len(goals)
            and not any(reservation.missing for reservation in reservations)
        ):
            self._state.reservations.update(
                (reservation.goal.pool, reservation) for reservation in reservations
            )
            return reservations
        for reservation in reservations:  # somebody else is about to start there
            reservation.lift()
        return []

    def _revise_places(self, first_job: FirstJob, reservations: Sequence[Reservation]) -> None:
        """Drop places that can no longer be had, and change to places that are free at once."""
        state, now = self._state, self._state.now()
        is_stale = any(reservation.planned_at == _REPLAN_NOW for reservation in reservations)
        if is_stale or not all(in_service(state, reservation.goal) for reservation in reservations):
            self._drop_reservations(first_job)
            return
        if not any(reservation.missing for reservation in reservations):
            return
        first_job.used = first_job.used or bool(first_job.offered_at)
        if first_job.used:
            return
        if not self._is_due(first_job):
            self._drop_reservations(first_job)  # its scheduler has started something there
            return
        if any(
            now - reservation.planned_at < REPLAN_S for reservation in reservations
        ) and not self._fits_now(first_job):
            return
        pools = {reservation.goal.pool for reservation in reservations}
        for reservation in reservations:
            reservation.planned_at = now
            reservation.lift()
        goals = self._find_goals(first_job, state.reservations.keys() - pools) or ()
        if free_reservations := self._reserve_if_free(first_job, goals):
            for pool in pools - {reservation.goal.pool for reservation in free_reservations}:
                del state.reservations[pool]
            return
        for reservation in reservations:
            reservation.reserve_free_blocks()
            self._retime(reservation)

    def _fits_now(self, first_job: FirstJob) -> bool:
        """Whether devices for each need are free that are kept for nobody. It costs far less than
        `_find_goals`."""
        for need in first_job.needs:
            cluster = self._state.inventory.clusters.get(need.cluster)
            if cluster is None:
                return False
            spec = PartitionSpec(name="", size=need.sizes[0], allocation=need.allocation)
            try:
                request, _ = CheckedSpec(spec, "keep a place").at(cluster.layout)
            except InvalidRequest:
                return False  # the cluster has no such block
            if cluster.index.find(request) is None:
                return False
        return True

    def _pools_of_need(self, need: JobNeed) -> list[Pool]:
        cluster = self._state.inventory.clusters.get(need.cluster)
        if cluster is None:
            return []
        return [
            (need.cluster, name) for name in cluster.allocations if need.allocation in ("", name)
        ]

    def _reservations_of(self, first_job: FirstJob) -> list[Reservation]:
        return [
            reservation
            for reservation in self._state.reservations.values()
            if reservation.guest == first_job.guest and reservation.waiter == first_job.name
        ]

    def _job_of_reservation(self, reservation: Reservation) -> FirstJob | None:
        guest = self._guests.get(reservation.guest)
        first_jobs = guest.heads.values() if guest else ()
        return next((job for job in first_jobs if job.name == reservation.waiter), None)

    def _first_jobs(self) -> Iterator[FirstJob]:
        return (job for guest in self._guests.values() for job in guest.heads.values())

    def _drop_reservations(self, first_job: FirstJob) -> None:
        """Keep nothing for a job any more. The caller has the freed devices looked at."""
        first_job.offered_at = 0.0
        for pool, reservation in list(self._state.reservations.items()):
            if reservation.guest == first_job.guest and reservation.waiter == first_job.name:
                reservation.lift()
                del self._state.reservations[pool]

    def _forget_guest(self, guest_key: str) -> None:
        for job in self._guests.pop(guest_key).heads.values():
            self._drop_reservations(job)
