"""The sweep: it compares Slurm's own list of jobs with the book, and settles what hooks missed.

It never touches a living job, and it touches nothing where slurmctld does not answer. It also
writes into each waiting job's AdminComment what the job waits for, because squeue has no words for
that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from podwright.errors import PodwrightError
from podwright.guests.slurm.service._end_deviceless_jobs import DevicelessJobs
from podwright.guests.slurm.service._job_mover import JobMover
from podwright.guests.slurm.service._node_failure import NodeFailures
from podwright.guests.slurm.service._pod_holdings import JobHolding, PodBook
from podwright.guests.slurm.service._preempt_for_devices import DevicePreemption
from podwright.guests.slurm.service._queue_large_job_room import QueueRoom
from podwright.guests.slurm.service._queue_report import QueueReport, WaitingJob
from podwright.guests.slurm.service._retry_limit import refused, tried
from podwright.guests.slurm.service._squeue_jobs import Listed, listed, lost_note_text

if TYPE_CHECKING:
    from podwright.guests.slurm.service._native_service import Service

_log = logging.getLogger("podwright.slurm")
#: The most comments that one sweep writes. Each is a call to slurmctld.
COMMENTS = 20
#: Seconds between looks at the server, so that a failed machine soon stops being counted.
SERVER_LOOK_INTERVAL_S = 2.0
_STARTED_JOB_STATES = ("CONFIGURING", "RUNNING", "SUSPENDED")
_DEVICE_WAIT_REASONS = ("Licenses", "Reservation", "Resources", "Priority", "None", "BeginTime")


class Sweep:
    """Sweeps every `site.sweep_s` seconds, and whenever the service asks for it."""

    def __init__(self, service: Service, mover: JobMover | None = None) -> None:
        self._service, self._mover = service, mover
        self._node_failures = NodeFailures(service)
        self._preemption = DevicePreemption(service)
        self._room = QueueRoom(service, preemption=self._preemption)
        self._written: dict[int, str] = {}
        self._without_devices = DevicelessJobs(service)
        self._report = QueueReport(service.server, service.clock)

    async def run(self) -> None:
        """Sweep until cancelled."""
        service = self._service
        last_sweep_at = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(service.sweep_wanted.wait(), SERVER_LOOK_INTERVAL_S)
            sweep_requested = service.sweep_wanted.is_set()
            service.sweep_wanted.clear()
            try:
                await service.refresh()
                if sweep_requested or service.clock() - last_sweep_at >= service.site.sweep_s:
                    last_sweep_at = service.clock()
                    await self.once()
                await self._room.exchange()
                await self._node_failures.check()
                await self._room.settle()
                await self._preemption.act()
            except PodwrightError as error:
                _log.warning("sweep: %s", error)
            await asyncio.sleep(0.2)

    async def once(self, *, words: bool = True) -> None:
        """Sweep once. words: also write what waiting jobs wait for.

        Each comment is a command, and takes seconds while a slurmctld's host is down. Raises
        PodwrightError; the next sweep then does the rest.
        """
        service = self._service
        listed_jobs = await self._end_holdings_of_ended_jobs()
        await self._without_devices.check(listed_jobs)
        await self._sweep_heterogeneous(listed_jobs)
        if self._mover is not None:
            await self._mover.update(listed_jobs, self._room.waiting(listed_jobs))
        await self._preemption.update(listed_jobs, self._room.waiting)
        self._room.update(listed_jobs)
        await self._room.raise_passed(listed_jobs)
        service.counts.poke()  # renews the reservation, and makes it if it is missing
        if words:
            waiting_jobs = list(self._waiting(listed_jobs))
            service.next_jobs = next_jobs(waiting_jobs)
            await self._report.send(waiting_jobs)
            await self._comments(listed_jobs)

    # -- jobs that are over ------------------------------------------------------------------

    async def _end_holdings_of_ended_jobs(self) -> Mapping[int, Listed]:
        """Give back what jobs hold that are over. Return the jobs that slurmctld remembers.

        A holding that changed after Slurm was asked is left to the next sweep. Raises
        PodwrightError; nothing is touched where slurmctld does not answer.
        """
        service = self._service
        ticks_by_book = [(pod_book, pod_book.tick()) for pod_book in service.books.values()]
        in_progress = service.het.busy()
        listed_jobs = await listed(service.slurm)
        for pod_book, tick in ticks_by_book:
            for holding in list(pod_book.holdings.values()):
                if holding.changed >= tick or not self._is_over(holding, listed_jobs, in_progress):
                    continue
                was_made = holding.created
                async with service.lock(holding.job):
                    is_same = pod_book.holdings.get(holding.job) is holding
                    if is_same and holding.created == was_made:
                        _log.warning(
                            "job %d is over and held %d devices", holding.job, holding.size
                        )
                        await service.give_back(pod_book, holding)
                        service.figures.swept += 1
            pod_book.count_as_listed(listed_jobs, tick)
        return listed_jobs

    def _is_over(
        self, holding: JobHolding, jobs: Mapping[int, Listed], in_progress: Collection[int]
    ) -> bool:
        """Return whether it is certain that no living start of the job has this holding."""
        if not holding.created and (holding.job in in_progress or not holding.leader):
            return False  # it is set aside or being made: its own task decides
        listed_job = jobs.get(holding.job)
        if listed_job is None or listed_job.over:
            return True
        if (
            holding.submitted
            and listed_job.restart == holding.restart
            and listed_job.state in _STARTED_JOB_STATES
        ):
            # Slurm may have lost its state and given the number out again.
            return listed_job.submitted not in (0, holding.submitted)
        return listed_job.waits and listed_job.het not in self._service.het.offered

    # -- the rest of a sweep -----------------------------------------------------------------

    async def _sweep_heterogeneous(self, listed_jobs: Mapping[int, Listed]) -> None:
        heterogeneous = self._service.het
        await self._hold_jobs_without_note(listed_jobs)
        for leader_number in heterogeneous.waiting(listed_jobs.values()):
            leader_job = listed_jobs.get(leader_number)
            if (
                leader_job
                and not heterogeneous.offered
                and any(f"{pod.licence}:" in leader_job.licences for pod in self._service.site.pods)
            ):
                await heterogeneous.wait_again(leader_number)

    async def _hold_jobs_without_note(self, listed_jobs: Mapping[int, Listed]) -> None:
        """Hold heterogeneous jobs with a part whose note is lost, because nothing can be set aside
        for such a part.
        """
        for part_job in listed_jobs.values():
            leader_job = listed_jobs.get(part_job.het)
            if not (
                part_job.lost and part_job.state == "PENDING" and leader_job and leader_job.priority
            ):
                continue
            if leader_job.counted(self._service.site.pods):
                comment_text = (
                    f"{leader_job.head}{lost_note_text(part_job.job)}. Held: cancel it, and submit "
                    "it anew"
                )
                run_slurm = self._service.slurm.run
                await run_slurm(
                    "scontrol",
                    "update",
                    f"jobid={leader_job.alone}",
                    f"admincomment={comment_text}",
                )
                hold_reply = await run_slurm("scontrol", "hold", str(part_job.het))
                outcome_text = (
                    hold_reply.text
                    if hold_reply.code
                    else comment_text.removeprefix(leader_job.head)
                )
                _log.warning("job %d: %s", part_job.het, outcome_text)

    # -- words -------------------------------------------------------------------------------

    def _waiting(self, listed_jobs: Mapping[int, Listed]) -> Iterator[WaitingJob]:
        for listed_job in listed_jobs.values():
            devices_request = listed_job.request(self._service.site.pods)
            if listed_job.waits and devices_request is not None:
                pod, device_count, _ = devices_request
                pod_book = self._service.books[pod.type]
                wait_text = sentence(
                    pod_book,
                    device_count,
                    listed_job.het or listed_job.job,
                    reason=listed_job.reason,
                )
                needs_text = (
                    wait_text
                    if listed_job.reason in _DEVICE_WAIT_REASONS
                    else f"Slurm says {listed_job.reason}"
                )
                devices_text = f"{device_count} devices of {pod.type}"
                yield WaitingJob(
                    listed_job, devices_text, needs_text, pod.cluster, pod.allocation, pod.type
                )

    async def _comments(self, listed_jobs: Mapping[int, Listed]) -> None:
        comments_left = COMMENTS
        pending_jobs = [
            listed_job for listed_job in listed_jobs.values() if listed_job.state == "PENDING"
        ]
        total_devices: Counter[tuple[int, str]] = Counter()
        for listed_job in pending_jobs:
            if listed_job.het and (devices_request := listed_job.request(self._service.site.pods)):
                total_devices[listed_job.het, devices_request[0].type] += devices_request[1]
        for listed_job in sorted(pending_jobs, key=lambda pending_job: -pending_job.priority):
            comment_text = self._job_wait_sentence(listed_job, total_devices)
            if (
                comment_text is None
                or comment_text == listed_job.comment
                or self._written.get(listed_job.job) == comment_text
            ):
                continue
            if not await self._service.comment_waiting(listed_job, comment_text, self._has_devices):
                continue
            self._written[listed_job.job] = comment_text
            comments_left -= 1
            if not comments_left:
                break
        self._written = {
            listed_job: text
            for listed_job, text in self._written.items()
            if listed_job in listed_jobs
        }

    def _has_devices(self, job_number: int) -> bool:
        return any(job_number in book.holdings for book in self._service.books.values())

    def _job_wait_sentence(
        self, listed_job: Listed, total_devices: Mapping[tuple[int, str], int]
    ) -> str | None:
        devices_request = listed_job.request(self._service.site.pods)
        if (
            devices_request is None
            or listed_job.reason not in _DEVICE_WAIT_REASONS
            or tried(listed_job)
            or refused(listed_job)
        ):
            return None
        comment_note = listed_job.head
        slurm_pod = devices_request[0]
        job_devices = (
            total_devices.get((listed_job.het, slurm_pod.type), 0) if listed_job.het else 0
        )
        if job_devices > slurm_pod.devices:
            # job_submit sees one part at a time, so it could not refuse the whole job.
            return (
                f"{comment_note}its parts ask for {job_devices} devices, {slurm_pod.type} has "
                f"{slurm_pod.devices}: cancel it"
            )
        pod_book = self._service.books[slurm_pod.type]
        if preemption_text := self._preemption.words(listed_job.job):
            device_count = devices_request[1]
            return (
                f"{comment_note}waits for {device_count} devices of {slurm_pod.type}: "
                f"{preemption_text}"
            )
        return comment_note + sentence(
            pod_book, devices_request[1], listed_job.het or listed_job.job, reason=listed_job.reason
        )


def next_jobs(waiting_jobs: Iterable[WaitingJob]) -> dict[str, str]:
    """Return, for each pod, the first job in Slurm's order that waits for its devices, with its
    needs.

    A job that is held, or that depends on others, does not wait for devices yet.
    """
    first_jobs: dict[str, str] = {}
    for waiting_job in sorted(
        waiting_jobs, key=lambda waiting_job: (-waiting_job.job.priority, waiting_job.job.job)
    ):
        if waiting_job.job.reason in _DEVICE_WAIT_REASONS:
            first_jobs.setdefault(
                waiting_job.pod, f"job {waiting_job.job.job}: {waiting_job.needs}"
            )
    return first_jobs


#: What a job waits for although its devices are free, by Slurm's reason.
_OTHER_WAIT_TEXTS: Final = {
    "Resources": "it waits for nodes",
    "Priority": "it waits for its turn, as jobs of higher priority wait before it",
    "BeginTime": "it waits for its time to begin",
}


def other_wait_text(slurm_reason: str) -> str:
    """Return what a job waits for although its devices are free.

    slurm_reason: Slurm's reason. Where the devices are free, the reasons Licenses and Reservation
    date from an earlier look of Slurm's.
    """
    return _OTHER_WAIT_TEXTS.get(slurm_reason, "Slurm starts it when it looks at the queue next")


def sentence(pod_book: PodBook, device_count: int, job_number: int = 0, *, reason: str = "") -> str:
    """Return what a job of `device_count` devices waits for, in words.

    job_number: its number, or that of its heterogeneous job's leader. reason: the reason that Slurm
    gives.

    Other jobs are not named: the job's comment and the server's queue show these words to the
    job's owner, who may not see others' jobs where Slurm's PrivateData or `--private-data` is set.
    """
    free_by_order = pod_book.blocks.whole_counts_by_order()
    free_devices = free_by_order[0] if free_by_order else 0
    block_order = device_count.bit_length() - 1
    pod_type = pod_book.pod.type
    if job_number and pod_book.closed_for == job_number:
        emptied_devices, room_devices = (
            (pod_book.closed & pod_book.unheld()).bit_count(),
            pod_book.closed.bit_count(),
        )
        subject = "a block is" if room_devices == device_count else f"{room_devices} devices are"
        wait_text = (
            f"waits for {device_count} devices of {pod_type}: {subject} emptied for it, "
            f"{emptied_devices} are free"
        )
        return f"{wait_text}{_movers_text(pod_book)}"
    if block_order < len(free_by_order) and free_by_order[block_order] >= device_count:
        return f"{device_count} devices of {pod_type} are free for it: {other_wait_text(reason)}"
    largest_free_block = max(
        (1 << free_order for free_order, kept_devices in enumerate(free_by_order) if kept_devices),
        default=0,
    )
    other_reasons = "; a block is emptied for another job" if pod_book.closed else ""
    if kept_devices := (pod_book.others_places & ~pod_book.held_devices()).bit_count():
        other_reasons += f"; {kept_devices} are kept for others who share the pod"
    if free_devices < device_count:
        return (
            f"waits for {device_count} devices of {pod_type}: {free_devices} are "
            f"free{other_reasons}"
        )
    free_text = f"{free_devices} are free, at most {largest_free_block} together{other_reasons}"
    return f"waits for {device_count} devices of {pod_type} that lie together: {free_text}"


def _movers_text(pod_book: PodBook) -> str:
    """Return how many jobs move to empty the block, and by when."""
    if not pod_book.moves:
        return ""
    movers_text = "a job moves" if len(pod_book.moves) == 1 else f"{len(pod_book.moves)} jobs move"
    deadline_text = f", by {pod_book.moves_end} at the latest" if pod_book.moves_end else " soon"
    return f"; {movers_text} to other devices{deadline_text}"
