"""What the V-IPU controllers have for jobs, and how it is asked for.

The controllers own every partition. The books here are what they said last, with what is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from podwright.errors import InvalidRequest, PodwrightError, Unavailable
from podwright.guests import Room
from podwright.kubernetes._claims import Claim, ClaimBook
from podwright.kubernetes._controllers import JobServer
from podwright.kubernetes._ipu_job import IpuJob, JobKey
from podwright.kubernetes._job_queue import Granted, JobQueue, QueuedJob, never
from podwright.kubernetes._sightings import Holds
from podwright.kubernetes._sites import VipuSite
from podwright.wire import (
    JobInfo,
    OperationState,
    PartitionInfo,
    PartitionSpec,
    ReadyState,
)

#: Seconds after which the reason of a job that waits is asked for anew; each time longer.
_ASK_S: Final = 5.0
_LONGER: Final = 3
_SLOWEST_S: Final = 120.0
#: The uid that partitions are owned with where a job's pods name none: nobody's.
_NOBODY: Final = 65534


class DevicePlace(NamedTuple):
    """Devices that jobs may get: of one cluster of one controller's."""

    site: VipuSite
    server: JobServer
    cluster: str
    allocation: str = ""

    @property
    def name(self) -> str:
        """Of its book."""
        return f"{self.site.name}/{self.cluster}"


@dataclass(slots=True)
class _Why:
    """Why a job waits, as it was said last. due: when to ask anew, by the clock."""

    text: str
    due: float
    pause: float


@dataclass(slots=True)
class _Failed:
    """Starts of a job that failed."""

    count: int = 0
    text: str = ""


class Partitions:
    """kubernetes: the cluster's name. clock: seconds, never backwards. retry_s: after a start that
    failed; longer after each."""

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
        self.books = {
            name: ClaimBook(kubernetes, place.cluster, place.allocation)
            for name, place in self.places.items()
        }
        self.line = JobQueue(kubernetes)
        self.room: Room[str] | None = None
        self._clock, self._retry_s = clock, retry_s
        self._infos: dict[str, PartitionInfo] = {}
        self._seen: dict[str, dict[int, Holds]] = {}
        self._why: dict[str, _Why] = {}
        self._failed: dict[str, _Failed] = {}
        self._fresh: dict[str, set[int]] = {}
        self._jobs: dict[str, IpuJob] = {}
        self._reported: list[JobInfo] = []

    # -- what there is -----------------------------------------------------------------------

    async def refresh(self) -> set[str]:
        """Ask what there is. Returns the uids of jobs for which that is news, and of those whose
        reason to wait is old. Raises PodwrightError."""
        problem: PodwrightError | None = None
        infos: dict[str, PartitionInfo] = {}
        for name, place in self.places.items():
            try:
                await self.books[name].refresh(place.server)
                found = await place.server.partitions(place.cluster, place.allocation)
            except PodwrightError as error:
                problem = error
                continue
            mine = {info.name: info for info in found if self.books[name].job_of(info.name)}
            infos |= mine
        if problem is not None:
            self._infos |= infos
            raise problem
        held = {name for book in self.books.values() for name in book.holdings}
        kept = {name: info for name, info in self._infos.items() if name in held}
        self._infos = kept | infos
        now = {uid: self.held(uid) for uid in self.holders()}
        uids = now.keys() | self._seen.keys()
        changed = {uid for uid in uids if now.get(uid) != self._seen.get(uid)}
        self._seen = now
        clock = self._clock()
        return changed | {
            uid for uid in self.line.waiting if uid in self._why and self._why[uid].due <= clock
        }

    def held(self, uid: str) -> dict[int, Holds]:
        """What a job holds, by instance."""
        return {
            instance: self._holds(book, claim)
            for book in self.books.values()
            for instance, claim in book.of_job(uid).items()
        }

    def _holds(self, book: ClaimBook, claim: Claim) -> Holds:
        state, problem = "MAKING", ""
        info = self._infos.get(claim.name)
        if claim.made and info is not None:
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
        """All jobs that hold something, by uid."""
        return {
            claim.owner.job.uid: claim.owner.job
            for book in self.books.values()
            for claim in book.holdings.values()
        }

    def key_of(self, uid: str) -> JobKey | None:
        """The job of that uid, where it holds something or waits."""
        waits = self.line.waiting.get(uid)
        return waits.key if waits else self.holders().get(uid)

    def fresh(self, uid: str) -> Collection[int]:
        """Instances whose partitions nothing has used since they were made or reset."""
        return self._fresh.get(uid, ())

    def used(self, uid: str, instance: int) -> None:
        """Something is about to use it."""
        self._fresh.get(uid, set()).discard(instance)

    def site_of(self, partition: str) -> tuple[VipuSite, bool]:
        """Where it is, and whether its devices are simulated."""
        name = next(name for name, book in self.books.items() if partition in book.holdings)
        info = self._infos.get(partition)
        return self.places[name].site, bool(info and info.simulated)

    # -- what is wanted ----------------------------------------------------------------------

    def want(self, job: IpuJob, instances: tuple[int, ...]) -> bool:
        """Put a job into the line. False: it stands there as it is."""
        uid = job.key.uid
        holding = [name for name, book in self.books.items() if book.of_job(uid)]
        selector = job.template["spec"].get("nodeSelector") or {}
        pods = holding[:1] or [n for n, place in self.places.items() if place.site.fits(selector)]
        old = self.line.waiting.get(uid)
        one = QueuedJob(
            key=job.key,
            created=job.created,
            instances=instances,
            order=job.order,
            pods=tuple(pods),
            not_before=old.not_before if old else self._pause(uid),
        )
        self._jobs[uid] = job
        if old == one:
            return False
        self.line.waiting[uid] = one
        return True

    def leave(self, uid: str) -> None:
        """A job waits no more."""
        self.line.waiting.pop(uid, None)
        self._why.pop(uid, None)

    def forget(self, uid: str) -> None:
        """There is no such job any more."""
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
        """Blocks for those who wait and fit now."""
        out = self.line.grant(self.books, self._clock())
        if self.room is not None:
            ends = dict.fromkeys({*self.line.waiting, *self.holders()}, "")
            self.room.look(self.line.waits(self.books), ends)
        return out

    def unexplained(self) -> list[JobKey]:
        """Jobs that wait, and nobody was told why."""
        return [one.key for uid, one in self.line.waiting.items() if uid not in self._why]

    async def why(self, job: IpuJob) -> str:
        """Why a job waits; empty where it does not. Asked for again ever more seldom: each answer
        may be a change of its status."""
        uid = job.key.uid
        one = self.line.waiting.get(uid)
        if one is None:
            return ""
        old, now = self._why.get(uid), self._clock()
        if old is not None and now < old.due:
            return old.text
        pause = old.pause * _LONGER if old else _ASK_S
        text = await self._explained(job, one)
        self._why[uid] = _Why(text, now + pause, pause)
        return text

    async def _explained(self, job: IpuJob, one: QueuedJob) -> str:
        failed = self._failed.get(one.key.uid)
        if failed is not None and failed.text:
            return f"try {failed.count} failed: {failed.text}"
        if not one.pods:
            return "no V-IPU controller's nodes are those that nodeSelector names"
        reasons = [never(self.books[pod], one) for pod in one.pods]
        if all(reasons):
            return reasons[0]
        place = self.places[one.pods[reasons.index("")]]
        try:
            said = await place.server.explain(self._spec(job, place, ""))
        except InvalidRequest as error:
            return error.message
        except PodwrightError as error:
            return f"V-IPU controller {place.site.name}: {error.problem}"
        if said.starts_now:
            count = len(one.instances)
            more = f" {count} partitions at once are not free" if count > 1 else ""
            return more.strip() or "older jobs come first"
        return said.problem or " ".join(said.lines[:2]) or "its IPUs are not free"

    async def report(self) -> None:
        """Tell the controllers who waits, where that is news."""
        now = [
            JobInfo(
                id=f"{one.key.namespace}/{one.key.name}",
                place=number,
                owner=one.key.namespace,
                asked=f"{len(one.instances)} x {1 << one.order} IPUs",
                needs=self._why[one.key.uid].text if one.key.uid in self._why else "",
                since=one.created,
            )
            for number, one in enumerate(self.line.ranked(), 1)
        ]
        if now == self._reported:
            return
        for server in {id(place.server): place.server for place in self.places.values()}.values():
            await server.report(now)
        self._reported = now

    # -- what is done ------------------------------------------------------------------------

    async def make(self, granted: Granted) -> None:
        """A job's partitions, all or none. Raises PodwrightError; then none of them is left, or
        the next refresh finds out."""
        book, place = self.books[granted.pod], self.places[granted.pod]
        uid = granted.job.key.uid
        job = self._jobs.get(uid)
        claims = [one for one in granted.claims if book.holdings.get(one.job) is one]
        if job is None or len(claims) < len(granted.claims):
            for claim in claims:
                book.release(claim.job)
            return
        done = await asyncio.gather(
            *(self._create(job, place, book, claim) for claim in claims), return_exceptions=True
        )
        problem = next((one for one in done if isinstance(one, BaseException)), None)
        if problem is None:
            self._failed.pop(uid, None)
            self._why.pop(uid, None)
            self._fresh.setdefault(uid, set()).update(one.owner.instance for one in claims)
            return
        failed = self._failed.setdefault(uid, _Failed())
        failed.count += 1
        failed.text = problem.message if isinstance(problem, PodwrightError) else str(problem)
        self._why.pop(uid, None)
        for claim in claims:
            claim.made = True  # perhaps: where it cannot be removed, the next refresh finds out
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
        claim.made, claim.changed = True, book.tick()
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
            auto_reset=False,  # a pod of its may run: an error stays until the job ends with it
        )

    async def reset(self, job: IpuJob, instances: Collection[int]) -> None:
        """A job's partitions, before they are used anew. Raises PodwrightError."""
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
        """It goes, then its block is free. Raises PodwrightError; then it is not."""
        for name, book in self.books.items():
            claim = book.holdings.get(partition)
            if claim is not None:
                await self.places[name].server.remove(claim.name, claim.words)
                if book.holdings.get(partition) is claim:
                    if partition in book.broken:
                        book.away |= claim.bits  # until the next refresh says how they are
                    book.release(partition)
                self._infos.pop(partition, None)
                self.used(claim.owner.job.uid, claim.owner.instance)


def _state(info: PartitionInfo) -> tuple[str, str]:
    """READY, MAKING or ERROR, and why."""
    if info.ready_state is ReadyState.ERROR or info.operation_state is OperationState.FAILED:
        return "ERROR", "; ".join(info.errors) or "it is in error"
    if info.ready_state is ReadyState.REMOVED:
        return "GONE", "it was removed"
    if info.ready_state is ReadyState.ACTIVE and info.operation_state is OperationState.IDLE:
        return "READY", ""
    if info.operation_state is OperationState.FENCING:
        return "MAKING", "it is being fenced"
    return "MAKING", ""
