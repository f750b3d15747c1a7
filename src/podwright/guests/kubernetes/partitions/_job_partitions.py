"""The partitions that V-IPU controllers have for jobs, and how they are made and given back.

The controllers own every partition. The books here hold the controllers' last reply, and the
changes that are under way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from podwright.errors import InvalidRequest, PodwrightError, Unavailable
from podwright.guests.kubernetes.job._ipu_job import IpuJob, JobKey
from podwright.guests.kubernetes.job._observed_pods import Holds
from podwright.guests.kubernetes.partitions._claims import Claim, ClaimBook
from podwright.guests.kubernetes.partitions._job_queue import Granted, JobQueue, QueuedJob, never
from podwright.guests.kubernetes.partitions._vipu_controller_client import JobServer
from podwright.guests.kubernetes.partitions._vipu_controller_list import VipuSite
from podwright.guests.shared import Room
from podwright.wire import (
    JobInfo,
    OperationState,
    PartitionInfo,
    PartitionSpec,
    ReadyState,
)

#: Seconds until the reason why a job waits is asked for again. Each time they get longer.
_FIRST_ASK_S: Final = 5.0
_PAUSE_FACTOR: Final = 3
_MAX_PAUSE_S: Final = 120.0
_REPORT_AGAIN_S: Final = 60.0
#: The uid that owns partitions where a job's pods name none: that of nobody.
_NOBODY_UID: Final = 65534


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
class _FailedStarts:
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
        self.places: dict[str, DevicePlace] = {}
        self.books: dict[str, ClaimBook] = {}
        self.guest = f"kubernetes {kubernetes}"[:64]
        #: What is wrong with controllers now, by the names of their sites.
        self.problems: dict[str, str] = {}
        #: The names of the sites whose partitions were not read yet.
        self.unread: set[str] = set()
        self.add_places(places)
        self.line = JobQueue(kubernetes)
        self.room: Room[str] | None = None
        self._clock, self._retry_s = clock, retry_s
        self._infos: dict[str, PartitionInfo] = {}
        self._seen: dict[str, dict[int, Holds]] = {}
        self._explanations: dict[str, _Explanation] = {}
        self._failed: dict[str, _FailedStarts] = {}
        self._fresh: dict[str, set[int]] = {}
        self._jobs: dict[str, IpuJob] = {}
        self._reported: list[JobInfo] = []
        self._reported_at = clock()

    # -- what there is -----------------------------------------------------------------------

    def add_places(self, places: Iterable[DevicePlace]) -> None:
        """Add devices that jobs may get once they were read (`refresh`)."""
        for device_place in places:
            device_place.server.guest = self.guest
            self.unread.add(device_place.site.name)
            self.places[device_place.name] = device_place
            self.books[device_place.name] = ClaimBook(
                self.kubernetes, device_place.cluster, device_place.allocation
            )

    async def refresh(self, server: JobServer | None = None) -> set[str]:
        """Read the partitions of a controller; None: of all. Raises PodwrightError.

        Returns the uids of jobs whose holdings have changed, and of those whose reason to wait is
        due to be asked again.
        """
        places = {
            name: place
            for name, place in self.places.items()
            if server is None or place.server is server
        }
        last_error: PodwrightError | None = None
        partition_infos: dict[str, PartitionInfo] = {}
        for name, device_place in places.items():
            try:
                await self.books[name].refresh(device_place.server)
                listed_partitions = await device_place.server.partitions(
                    device_place.cluster, device_place.allocation
                )
            except PodwrightError as error:
                last_error = error
                continue
            job_partitions = {
                info.name: info for info in listed_partitions if self.books[name].job_of(info.name)
            }
            partition_infos |= job_partitions
        if last_error is not None:
            self._infos |= partition_infos
            raise last_error
        self.unread -= {place.site.name for place in places.values()}
        held_names = {name for book in self.books.values() for name in book.holdings}
        retained_infos = {name: info for name, info in self._infos.items() if name in held_names}
        self._infos = retained_infos | partition_infos
        current_holdings = {uid: self.holdings_of(uid) for uid in self.holders()}
        job_uids = current_holdings.keys() | self._seen.keys()
        changed_uids = {uid for uid in job_uids if current_holdings.get(uid) != self._seen.get(uid)}
        self._seen = current_holdings
        if self.room is not None:
            await self.room.exchange({name: place.server for name, place in places.items()})
        clock_seconds = self._clock()
        return changed_uids | {
            uid
            for uid in self.line.waiting
            if uid in self._explanations and self._explanations[uid].due <= clock_seconds
        }

    def holdings_of(self, job_uid: str) -> dict[int, Holds]:
        """Return what a job holds, by instance."""
        return {
            instance: self._instance_holding(book, claim)
            for book in self.books.values()
            for instance, claim in book.of_job(job_uid).items()
        }

    def _instance_holding(self, book: ClaimBook, claim: Claim) -> Holds:
        holding_state, problem_text = "MAKING", ""
        partition_info = self._infos.get(claim.name)
        if claim.created and partition_info is not None:
            holding_state, problem_text = _holding_state(partition_info)
        elif failed_starts := self._failed.get(claim.owner.job.uid):
            problem_text = failed_starts.text
        worn_reason = ""
        if claim.job in book.broken:
            worn_reason = f"a machine of partition {claim.name} is drained or down"
        return Holds(
            instance=claim.owner.instance,
            name=claim.name,
            state=holding_state,
            problem=problem_text,
            worn=worn_reason,
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
        job = self.line.waiting.get(uid)
        return job.key if job else self.holders().get(uid)

    def fresh(self, job_uid: str) -> Collection[int]:
        """Return the instances whose partitions nothing has used since they were made or reset."""
        return self._fresh.get(job_uid, ())

    def used(self, job_uid: str, instance: int) -> None:
        """Record that something is about to use an instance's partition."""
        self._fresh.get(job_uid, set()).discard(instance)

    def site_of(self, partition: str) -> tuple[VipuSite, bool]:
        """Return where a partition is, and whether its devices are simulated."""
        book_name = next(name for name, book in self.books.items() if partition in book.holdings)
        info = self._infos.get(partition)
        return self.places[book_name].site, bool(info and info.simulated)

    # -- what is wanted ----------------------------------------------------------------------

    def enqueue(self, job: IpuJob, instances: tuple[int, ...]) -> bool:
        """Put a job into the queue. Return False if it is in the queue already, unchanged."""
        job_uid = job.key.uid
        holding_books = [name for name, book in self.books.items() if book.of_job(job_uid)]
        node_selector = job.template["spec"].get("nodeSelector") or {}
        book_names = holding_books[:1] or [
            book_name for book_name, place in self.places.items() if place.site.fits(node_selector)
        ]
        previous_entry = self.line.waiting.get(job_uid)
        queue_entry = QueuedJob(
            key=job.key,
            created=job.created,
            instances=instances,
            order=job.order,
            pods=tuple(book_names),
            not_before=previous_entry.not_before if previous_entry else self._retry_at(job_uid),
            priority_class=job.priority_class,
        )
        self._jobs[job_uid] = job
        if previous_entry == queue_entry:
            return False
        self.line.waiting[job_uid] = queue_entry
        return True

    def leave(self, job_uid: str) -> None:
        """Take a job out of the queue."""
        self.line.waiting.pop(job_uid, None)
        self._explanations.pop(job_uid, None)

    def forget(self, uid: str) -> None:
        """Drop everything about a job that no longer exists."""
        self.leave(uid)
        self._failed.pop(uid, None)
        self._fresh.pop(uid, None)
        self._jobs.pop(uid, None)

    def _retry_at(self, job_uid: str) -> float:
        failed_starts = self._failed.get(job_uid)
        if failed_starts is None:
            return 0.0
        return self._clock() + min(self._retry_s * 2.0 ** (failed_starts.count - 1), _MAX_PAUSE_S)

    def grant(self) -> list[Granted]:
        """Grant blocks to the queued jobs that fit now."""
        jobs = self.line.grant(self.books, self._clock())
        if self.room is not None:
            times = dict.fromkeys({*self.line.waiting, *self.holders()}, "")
            self.room.update(self.line.waits(self.books), times)
        return jobs

    def explain_anew(self) -> None:
        """Ask again why jobs wait: a controller answers again, or no longer."""
        self._explanations.clear()

    def unexplained(self) -> list[JobKey]:
        """Return the queued jobs whose reason for waiting has not been asked for yet."""
        return [job.key for uid, job in self.line.waiting.items() if uid not in self._explanations]

    async def waiting_reason(self, job: IpuJob) -> str:
        """Return why a job waits, or "" if it does not.

        The controllers are asked again at growing intervals, because each answer may change the
        job's status.
        """
        job_uid = job.key.uid
        queued_job = self.line.waiting.get(job_uid)
        if queued_job is None:
            return ""
        old_explanation, now = self._explanations.get(job_uid), self._clock()
        if old_explanation is not None and now < old_explanation.due:
            return old_explanation.text
        pause_seconds = old_explanation.pause * _PAUSE_FACTOR if old_explanation else _FIRST_ASK_S
        reason_text = await self._explain_wait(job, queued_job)
        self._explanations[job_uid] = _Explanation(reason_text, now + pause_seconds, pause_seconds)
        return reason_text

    async def _explain_wait(self, job: IpuJob, queued_job: QueuedJob) -> str:
        failed_starts = self._failed.get(queued_job.key.uid)
        if failed_starts is not None and failed_starts.text:
            return f"try {failed_starts.count} failed: {failed_starts.text}"
        problems = [
            f"V-IPU controller {site_name}: {problem}"
            for site_name, problem in self.problems.items()
            if site_name in {self.places[name].site.name for name in queued_job.pods}
            or not queued_job.pods
        ]
        if problems and len(problems) >= len(queued_job.pods):
            return "; ".join(problems)
        if not queued_job.pods:
            return "no V-IPU controller's nodes are those that nodeSelector names"
        for book_name in queued_job.pods:
            book = self.books[book_name]
            if book.closed_for == queued_job.key.uid:
                free_ipus = (book.closed & book.unheld()).bit_count()
                return (
                    f"{book.closed.bit_count()} IPUs are kept for it until all of them are free: "
                    f"{free_ipus} are now"
                )
        reasons = [never(self.books[book_name], queued_job) for book_name in queued_job.pods]
        if all(reasons):
            return reasons[0]
        device_place = self.places[queued_job.pods[reasons.index("")]]
        try:
            explanation = await device_place.server.explain(
                self._partition_spec(job, device_place, "")
            )
        except InvalidRequest as error:
            return error.message
        except PodwrightError as error:
            return f"V-IPU controller {device_place.site.name}: {error.problem}"
        if explanation.starts_now:
            partition_count = len(queued_job.instances)
            partitions_text = (
                f" {partition_count} partitions at once are not free" if partition_count > 1 else ""
            )
            return partitions_text.strip() or "older jobs come first"
        return explanation.problem or " ".join(explanation.lines[:2]) or "its IPUs are not free"

    async def report(self) -> None:
        """Report the queue to the controllers if it has changed, and once a minute if it has not:
        a controller forgets the queue of a scheduler that has been silent for five minutes.
        """
        job_infos = [
            JobInfo(
                id=f"{job.key.namespace}/{job.key.name}",
                place=queue_place,
                owner=job.key.namespace,
                asked=f"{len(job.instances)} x {1 << job.order} IPUs",
                needs=self._explanations[job.key.uid].text
                if job.key.uid in self._explanations
                else "",
                since=job.created,
                priority=max(-(2**31), min(self.line.priority(job), 2**31 - 1)),
            )
            for queue_place, job in enumerate(self.line.ranked(), 1)
        ]
        clock_seconds = self._clock()
        if job_infos == self._reported and clock_seconds < self._reported_at + _REPORT_AGAIN_S:
            return
        for server in {
            id(device_place.server): device_place.server for device_place in self.places.values()
        }.values():
            await server.report(job_infos)
        self._reported, self._reported_at = job_infos, clock_seconds

    # -- what is done ------------------------------------------------------------------------

    async def make(self, granted_job: Granted) -> None:
        """Make a job's partitions, all or none.

        Raises PodwrightError. None of them is left then, or the next refresh finds those that are.
        """
        book, device_place = self.books[granted_job.pod], self.places[granted_job.pod]
        job_uid = granted_job.job.key.uid
        job = self._jobs.get(job_uid)
        claims = [
            granted_claim
            for granted_claim in granted_job.claims
            if book.holdings.get(granted_claim.job) is granted_claim
        ]
        if job is None or len(claims) < len(granted_job.claims):
            for claim in claims:
                book.release(claim.job)
            return
        creation_results = await asyncio.gather(
            *(self._create_partition(job, device_place, book, claim) for claim in claims),
            return_exceptions=True,
        )
        first_error = next(
            (
                creation_result
                for creation_result in creation_results
                if isinstance(creation_result, BaseException)
            ),
            None,
        )
        if first_error is None:
            self._failed.pop(job_uid, None)
            self._explanations.pop(job_uid, None)
            self._fresh.setdefault(job_uid, set()).update(
                granted_claim.owner.instance for granted_claim in claims
            )
            return
        failed_starts = self._failed.setdefault(job_uid, _FailedStarts())
        failed_starts.count += 1
        failed_starts.text = (
            first_error.message if isinstance(first_error, PodwrightError) else str(first_error)
        )
        self._explanations.pop(job_uid, None)
        for claim in claims:
            claim.created = True  # it may exist: if it cannot be removed, the next refresh finds it
            with contextlib.suppress(PodwrightError):
                await self.give_back(claim.name)
        raise first_error

    async def _create_partition(
        self, job: IpuJob, device_place: DevicePlace, book: ClaimBook, claim: Claim
    ) -> None:
        partition_spec = self._partition_spec(job, device_place, claim.name)
        devices = book.line.devices(claim.start, claim.order)
        partition_spec = msgspec.structs.replace(partition_spec, size=0, devices=devices)
        security_context = job.template["spec"].get("securityContext") or {}
        run_as_uid = security_context.get("runAsUser")
        partition_info = await device_place.server.create(
            partition_spec,
            _NOBODY_UID if run_as_uid is None else run_as_uid,
            job.key.namespace,
            claim.words,
        )
        claim.created, claim.changed = True, book.tick()
        self._infos[claim.name] = partition_info
        partition_state, state_reason = _holding_state(partition_info)
        if partition_state != "READY":
            raise Unavailable(
                state_reason
                or f"partition {partition_info.name} is {partition_info.ready_state.value}"
            )

    def _partition_spec(
        self, job: IpuJob, device_place: DevicePlace, partition_name: str
    ) -> PartitionSpec:
        count = job.workers if job.gcds_said else 0
        return PartitionSpec(
            name=partition_name,
            size=job.ipus,
            cluster=device_place.cluster,
            allocation=device_place.allocation,
            num_gcds=count,
            num_replicas=job.replicas * job.workers if job.replicas and job.gcds_said else 0,
            auto_reset=False,  # a pod may still use it, so an error stays until the job ends
        )

    async def reset(self, job: IpuJob, instances: Collection[int]) -> None:
        """Reset a job's partitions before they are used again. Raises PodwrightError."""
        for instance in instances:
            for book_name, book in self.books.items():
                claim = book.of_job(job.key.uid).get(instance)
                if claim is None:
                    continue
                info = await self.places[book_name].server.reset(claim.name)
                self._infos[claim.name] = info
                if _holding_state(info)[0] == "READY":
                    self._fresh.setdefault(job.key.uid, set()).add(instance)

    async def give_back(self, partition: str) -> None:
        """Remove a partition, and then free its block. Raises PodwrightError; the block then stays
        taken.
        """
        for book_name, book in self.books.items():
            claim = book.holdings.get(partition)
            if claim is not None:
                await self.places[book_name].server.remove(claim.name, claim.words)
                if book.holdings.get(partition) is claim:
                    if partition in book.broken:
                        book.unusable |= claim.bits  # until the next refresh reads their state
                    book.release(partition)
                self._infos.pop(partition, None)
                self.used(claim.owner.job.uid, claim.owner.instance)


def _holding_state(partition_info: PartitionInfo) -> tuple[str, str]:
    """Return READY, MAKING, ERROR or GONE, and why."""
    if (
        partition_info.ready_state is ReadyState.ERROR
        or partition_info.operation_state is OperationState.FAILED
    ):
        return "ERROR", "; ".join(partition_info.errors) or "it is in error"
    if partition_info.ready_state is ReadyState.REMOVED:
        return "GONE", "it was removed"
    if (
        partition_info.ready_state is ReadyState.ACTIVE
        and partition_info.operation_state is OperationState.IDLE
    ):
        return "READY", ""
    if partition_info.operation_state is OperationState.FENCING:
        return "MAKING", "it is being fenced"
    return "MAKING", ""
