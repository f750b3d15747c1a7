"""The partitions that V-IPU controllers have for jobs, and how they are made and given back.

The controllers own every partition. The books here hold the controllers' last reply, and the
changes that are under way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from podwright.errors import InvalidRequest, PodwrightError, Unavailable
from podwright.guests.kubernetes.job._ipu_job import IpuJob, JobKey
from podwright.guests.kubernetes.job._sightings import Holds
from podwright.guests.kubernetes.partitions._claims import Claim, ClaimBook
from podwright.guests.kubernetes.partitions._controllers import JobServer
from podwright.guests.kubernetes.partitions._job_queue import Granted, JobQueue, QueuedJob, never
from podwright.guests.kubernetes.partitions._sites import VipuSite
from podwright.guests.shared import Room
from podwright.wire import (
    JobInfo,
    OperationState,
    PartitionInfo,
    PartitionSpec,
    ReadyState,
)

#: Seconds until the reason why a job waits is asked for again. Each time they get longer.
_ASK_S: Final = 5.0
_LONGER: Final = 3
_SLOWEST_S: Final = 120.0
_REPORT_AGAIN_S: Final = 60.0
#: The uid that owns partitions where a job's pods name none: that of nobody.
_NOBODY: Final = 65534


class DevicePlace(NamedTuple):
    """Devices that jobs may get: those of one cluster of one controller."""

    site: VipuSite
    server: JobServer
    cluster: str
    allocation: str = ""

    @property
    def name(self) -> str:
        """The name of its book."""
        return f"{self.site.name}/{self.cluster}"


@dataclass(slots=True)
class _Explanation:
    """Why a job waits, as last reported. due: when to ask again, by the clock. pause: seconds until
    then.
    """

    text: str
    due: float
    pause: float


@dataclass(slots=True)
class _Failed:
    """The failed starts of a job: how many, and why the last one failed."""

    count: int = 0
    text: str = ""


class Partitions:
    """The partitions of all jobs of a Kubernetes cluster.

    kubernetes: the cluster's name. clock: returns seconds and never goes backwards. retry_s:
    seconds after a failed start until the next one; they double with each failure.
    """

    def __init__(
        self,
        kubernetes: str,
        places: Collection[DevicePlace],
        clock: Callable[[], float],
        *,
        retry_s: float = 5.0,
    ) -> None:
        self.kubernetes = kubernetes
        self.places = {place.name: place for place in places}
        self.guest = f"kubernetes {kubernetes}"[:64]
        for place in places:
            place.server.guest = self.guest
        self.books = {
            name: ClaimBook(kubernetes, place.cluster, place.allocation)
            for name, place in self.places.items()
        }
        self.line = JobQueue(kubernetes)
        self.room: Room[str] | None = None
        self._clock, self._retry_s = clock, retry_s
        self._infos: dict[str, PartitionInfo] = {}
        self._seen: dict[str, dict[int, Holds]] = {}
        self._explanations: dict[str, _Explanation] = {}
        self._failed: dict[str, _Failed] = {}
        self._fresh: dict[str, set[int]] = {}
        self._jobs: dict[str, IpuJob] = {}
        self._reported: list[JobInfo] = []
        self._reported_at = clock()

    # -- what there is -----------------------------------------------------------------------

    async def refresh(self) -> set[str]:
        """Read the controllers' partitions. Raises PodwrightError.

        Returns the uids of jobs whose holdings have changed, and of those whose reason to wait is
        due to be asked again.
        """
        problem: PodwrightError | None = None
        infos: dict[str, PartitionInfo] = {}
        for name, place in self.places.items():
            try:
                await self.books[name].refresh(place.server)
                listed = await place.server.partitions(place.cluster, place.allocation)
            except PodwrightError as error:
                problem = error
                continue
            own = {info.name: info for info in listed if self.books[name].job_of(info.name)}
            infos |= own
        if problem is not None:
            self._infos |= infos
            raise problem
        names = {name for book in self.books.values() for name in book.holdings}
        retained = {name: info for name, info in self._infos.items() if name in names}
        self._infos = retained | infos
        now = {uid: self.holdings_of(uid) for uid in self.holders()}
        uids = now.keys() | self._seen.keys()
        changed = {uid for uid in uids if now.get(uid) != self._seen.get(uid)}
        self._seen = now
        if self.room is not None:
            await self.room.exchange({name: place.server for name, place in self.places.items()})
        clock = self._clock()
        return changed | {
            uid
            for uid in self.line.waiting
            if uid in self._explanations and self._explanations[uid].due <= clock
        }

    def holdings_of(self, uid: str) -> dict[int, Holds]:
        """Return what a job holds, by instance."""
        return {
            instance: self._holding(book, claim)
            for book in self.books.values()
            for instance, claim in book.of_job(uid).items()
        }

    def _holding(self, book: ClaimBook, claim: Claim) -> Holds:
        state, problem = "MAKING", ""
        info = self._infos.get(claim.name)
        if claim.created and info is not None:
            state, problem = _state(info)
        elif failed := self._failed.get(claim.owner.job.uid):
            problem = failed.text
        worn = ""
        if claim.job in book.broken:
            worn = f"a machine of partition {claim.name} is drained or down"
        return Holds(
            instance=claim.owner.instance, name=claim.name, state=state, problem=problem, worn=worn
        )

    def holders(self) -> dict[str, JobKey]:
        """Return all jobs that hold something, by uid."""
        return {
            claim.owner.job.uid: claim.owner.job
            for book in self.books.values()
            for claim in book.holdings.values()
        }

    def key_of(self, uid: str) -> JobKey | None:
        """Return the job of that uid if it holds something or waits, else None."""
        waits = self.line.waiting.get(uid)
        return waits.key if waits else self.holders().get(uid)

    def fresh(self, uid: str) -> Collection[int]:
        """Return the instances whose partitions nothing has used since they were made or reset."""
        return self._fresh.get(uid, ())

    def used(self, uid: str, instance: int) -> None:
        """Record that something is about to use an instance's partition."""
        self._fresh.get(uid, set()).discard(instance)

    def site_of(self, partition: str) -> tuple[VipuSite, bool]:
        """Return where a partition is, and whether its devices are simulated."""
        name = next(name for name, book in self.books.items() if partition in book.holdings)
        info = self._infos.get(partition)
        return self.places[name].site, bool(info and info.simulated)

    # -- what is wanted ----------------------------------------------------------------------

    def enqueue(self, job: IpuJob, instances: tuple[int, ...]) -> bool:
        """Put a job into the queue. Return False if it is in the queue already, unchanged."""
        uid = job.key.uid
        holding = [name for name, book in self.books.items() if book.of_job(uid)]
        selector = job.template["spec"].get("nodeSelector") or {}
        pods = holding[:1] or [n for n, place in self.places.items() if place.site.fits(selector)]
        old = self.line.waiting.get(uid)
        queued = QueuedJob(
            key=job.key,
            created=job.created,
            instances=instances,
            order=job.order,
            pods=tuple(pods),
            not_before=old.not_before if old else self._pause(uid),
            priority_class=job.priority_class,
        )
        self._jobs[uid] = job
        if old == queued:
            return False
        self.line.waiting[uid] = queued
        return True

    def leave(self, uid: str) -> None:
        """Take a job out of the queue."""
        self.line.waiting.pop(uid, None)
        self._explanations.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Drop everything about a job that no longer exists."""
        self.leave(uid)
        self._failed.pop(uid, None)
        self._fresh.pop(uid, None)
        self._jobs.pop(uid, None)

    def _pause(self, uid: str) -> float:
        failed = self._failed.get(uid)
        if failed is None:
            return 0.0
        return self._clock() + min(self._retry_s * 2.0 ** (failed.count - 1), _SLOWEST_S)

    def grant(self) -> list[Granted]:
        """Grant blocks to the queued jobs that fit now."""
        out = self.line.grant(self.books, self._clock())
        if self.room is not None:
            end_times = dict.fromkeys({*self.line.waiting, *self.holders()}, "")
            self.room.update(self.line.waits(self.books), end_times)
        return out

    def unexplained(self) -> list[JobKey]:
        """Return the queued jobs whose reason for waiting has not been asked for yet."""
        return [
            queued.key for uid, queued in self.line.waiting.items() if uid not in self._explanations
        ]

    async def waiting_reason(self, job: IpuJob) -> str:
        """Return why a job waits, or "" if it does not.

        The controllers are asked again at growing intervals, because each answer may change the
        job's status.
        """
        uid = job.key.uid
        queued = self.line.waiting.get(uid)
        if queued is None:
            return ""
        old, now = self._explanations.get(uid), self._clock()
        if old is not None and now < old.due:
            return old.text
        pause = old.pause * _LONGER if old else _ASK_S
        text = await self._explained(job, queued)
        self._explanations[uid] = _Explanation(text, now + pause, pause)
        return text

    async def _explained(self, job: IpuJob, queued: QueuedJob) -> str:
        failed = self._failed.get(queued.key.uid)
        if failed is not None and failed.text:
            return f"try {failed.count} failed: {failed.text}"
        if not queued.pods:
            return "no V-IPU controller's nodes are those that nodeSelector names"
        for pod in queued.pods:
            book = self.books[pod]
            if book.closed_for == queued.key.uid:
                free = (book.closed & book.unheld()).bit_count()
                return (
                    f"{book.closed.bit_count()} IPUs are kept for it until all of them are free: "
                    f"{free} are now"
                )
        reasons = [never(self.books[pod], queued) for pod in queued.pods]
        if all(reasons):
            return reasons[0]
        place = self.places[queued.pods[reasons.index("")]]
        try:
            explanation = await place.server.explain(self._spec(job, place, ""))
        except InvalidRequest as error:
            return error.message
        except PodwrightError as error:
            return f"V-IPU controller {place.site.name}: {error.problem}"
        if explanation.starts_now:
            count = len(queued.instances)
            more = f" {count} partitions at once are not free" if count > 1 else ""
            return more.strip() or "older jobs come first"
        return explanation.problem or " ".join(explanation.lines[:2]) or "its IPUs are not free"

    async def report(self) -> None:
        """Report the queue to the controllers if it has changed, and once a minute if it has not:
        a controller forgets the queue of a scheduler that has been silent for five minutes.
        """
        now = [
            JobInfo(
                id=f"{queued.key.namespace}/{queued.key.name}",
                place=number,
                owner=queued.key.namespace,
                asked=f"{len(queued.instances)} x {1 << queued.order} IPUs",
                needs=self._explanations[queued.key.uid].text
                if queued.key.uid in self._explanations
                else "",
                since=queued.created,
                priority=max(-(2**31), min(self.line.priority(queued), 2**31 - 1)),
            )
            for number, queued in enumerate(self.line.ranked(), 1)
        ]
        clock = self._clock()
        if now == self._reported and clock < self._reported_at + _REPORT_AGAIN_S:
            return
        for server in {id(place.server): place.server for place in self.places.values()}.values():
            await server.report(now)
        self._reported, self._reported_at = now, clock

    # -- what is done ------------------------------------------------------------------------

    async def make(self, granted: Granted) -> None:
        """Make a job's partitions, all or none.

        Raises PodwrightError. None of them is left then, or the next refresh finds those that are.
        """
        book, place = self.books[granted.pod], self.places[granted.pod]
        uid = granted.job.key.uid
        job = self._jobs.get(uid)
        claims = [entry for entry in granted.claims if book.holdings.get(entry.job) is entry]
        if job is None or len(claims) < len(granted.claims):
            for claim in claims:
                book.release(claim.job)
            return
        results = await asyncio.gather(
            *(self._create(job, place, book, claim) for claim in claims), return_exceptions=True
        )
        problem = next((result for result in results if isinstance(result, BaseException)), None)
        if problem is None:
            self._failed.pop(uid, None)
            self._explanations.pop(uid, None)
            self._fresh.setdefault(uid, set()).update(entry.owner.instance for entry in claims)
            return
        failed = self._failed.setdefault(uid, _Failed())
        failed.count += 1
        failed.text = problem.message if isinstance(problem, PodwrightError) else str(problem)
        self._explanations.pop(uid, None)
        for claim in claims:
            claim.created = True  # it may exist: if it cannot be removed, the next refresh finds it
            with contextlib.suppress(PodwrightError):
                await self.give_back(claim.name)
        raise problem

    async def _create(self, job: IpuJob, place: DevicePlace, book: ClaimBook, claim: Claim) -> None:
        spec = self._spec(job, place, claim.name)
        devices = book.line.devices(claim.start, claim.order)
        spec = msgspec.structs.replace(spec, size=0, devices=devices)
        security = job.template["spec"].get("securityContext") or {}
        uid = security.get("runAsUser")
        info = await place.server.create(
            spec, _NOBODY if uid is None else uid, job.key.namespace, claim.words
        )
        claim.created, claim.changed = True, book.tick()
        self._infos[claim.name] = info
        state, words = _state(info)
        if state != "READY":
            raise Unavailable(words or f"partition {info.name} is {info.ready_state.value}")

    def _spec(self, job: IpuJob, place: DevicePlace, name: str) -> PartitionSpec:
        gcds = job.workers if job.gcds_said else 0
        return PartitionSpec(
            name=name,
            size=job.ipus,
            cluster=place.cluster,
            allocation=place.allocation,
            num_gcds=gcds,
            num_replicas=job.replicas * job.workers if job.replicas and job.gcds_said else 0,
            auto_reset=False,  # a pod may still use it, so an error stays until the job ends
        )

    async def reset(self, job: IpuJob, instances: Collection[int]) -> None:
        """Reset a job's partitions before they are used again. Raises PodwrightError."""
        for instance in instances:
            for name, book in self.books.items():
                claim = book.of_job(job.key.uid).get(instance)
                if claim is None:
                    continue
                info = await self.places[name].server.reset(claim.name)
                self._infos[claim.name] = info
                if _state(info)[0] == "READY":
                    self._fresh.setdefault(job.key.uid, set()).add(instance)

    async def give_back(self, partition: str) -> None:
        """Remove a partition, and then free its block. Raises PodwrightError; the block then stays
        taken.
        """
        for name, book in self.books.items():
            claim = book.holdings.get(partition)
            if claim is not None:
                await self.places[name].server.remove(claim.name, claim.words)
                if book.holdings.get(partition) is claim:
                    if partition in book.broken:
                        book.unusable |= claim.bits  # until the next refresh reads their state
                    book.release(partition)
                self._infos.pop(partition, None)
                self.used(claim.owner.job.uid, claim.owner.instance)


def _state(info: PartitionInfo) -> tuple[str, str]:
    """Return READY, MAKING, ERROR or GONE, and why."""
    if info.ready_state is ReadyState.ERROR or info.operation_state is OperationState.FAILED:
        return "ERROR", "; ".join(info.errors) or "it is in error"
    if info.ready_state is ReadyState.REMOVED:
        return "GONE", "it was removed"
    if info.ready_state is ReadyState.ACTIVE and info.operation_state is OperationState.IDLE:
        return "READY", ""
    if info.operation_state is OperationState.FENCING:
        return "MAKING", "it is being fenced"
    return "MAKING", ""
