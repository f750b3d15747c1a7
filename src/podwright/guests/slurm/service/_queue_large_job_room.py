"""Finds the jobs in Slurm's queue that wait for devices, for the room that is made for a large job
(`guests`).

Slurm starts whatever fits, in the order of its priorities, also on a place that was offered for
another job. Where that has happened to a job, its priority is raised above those of all jobs that
wait for devices. For a heterogeneous job Slurm gives
nodes as the reason even where devices are missing. So a heterogeneous job that was offered its
devices and did not take them waits longer for its next room. This is our own choice, because Slurm
has no means for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from podwright.guests.shared import Room, Waits
from podwright.guests.slurm.service._pod_holdings import DEVICES_DEADLINE_S, settled
from podwright.guests.slurm.service._preempt_for_devices import DevicePreemption
from podwright.guests.slurm.service._queue_report import user_name
from podwright.guests.slurm.service._squeue_jobs import Listed
from podwright.placement.move_plans import likely_end_time

if TYPE_CHECKING:
    from podwright.guests.slurm.service._native_service import Service

_log = logging.getLogger("podwright.slurm")

#: Slurm shows the reason None while it looks at a job again.
_DEVICE_WAIT_REASONS = ("Licenses", "None")
#: Above all priorities of Slurm, which has 32 bits for them.
_URGENT_JOB_PRIORITY = 1 << 32
_STARTED_JOB_PRIORITY = 1 << 33
_HIGHEST_PRIORITY = (1 << 32) - 3  #: slurm.h: the highest values mean "not set" and "infinite"
_HET_WAIT_REASONS = ("Resources", "Priority", "Reservation")


class QueueRoom:
    """Makes room with each sweep. wall: returns seconds since 1970."""

    def __init__(
        self,
        service: Service,
        wall: Callable[[], float] = time.time,
        preemption: DevicePreemption | None = None,
    ) -> None:
        self._service, self._wall = service, wall
        self._wall_ahead_s = wall() - service.clock()
        self._preemption = preemption or DevicePreemption(service, wall)
        self._room: Room[int] = Room(
            service.books, service.site.room_s, service.clock, service.counts.poke
        )
        self._unsettled_since: dict[str, float] = {}  # pod -> since when

    def update(self, jobs: Mapping[int, Listed]) -> None:
        """Close and open blocks as the present queue needs."""
        jobs_in_prolog = self._service.in_prolog
        for number in [
            prolog_job
            for prolog_job in jobs_in_prolog
            if prolog_job not in jobs or not _may_be_in_prolog(jobs[prolog_job])
        ]:
            del jobs_in_prolog[number]  # its start is over; its next try brings it back
        heterogeneous = self._service.het
        leaders, heterogeneous.declined = heterogeneous.declined, set()
        times = {prolog_job: listed_job.end for prolog_job, listed_job in jobs.items()}
        times = self._preemption.end_times(times | self._likely_ends(jobs))
        self._room.update(self.waiting(jobs), times, leaders)

    async def exchange(self) -> None:
        """Name the first jobs to the server, and close what it keeps. Raises PodwrightError."""
        await self._room.exchange(dict.fromkeys(self._service.books, self._service.server))

    def _likely_ends(self, listed_jobs: Mapping[int, Listed]) -> dict[int, str]:
        """Return the likely ends of jobs without a time limit, whose ends Slurm does not know."""
        wall_time, end_by_job = self._wall(), {}
        for pod_book in self._service.books.values():
            for number, holding in pod_book.holdings.items():
                if number in listed_jobs and not listed_jobs[number].end[:1].isdigit():
                    likely_end_at = likely_end_time(0.0, holding.began, wall_time)[0]
                    end_by_job[number] = datetime.fromtimestamp(likely_end_at).isoformat(
                        timespec="seconds"
                    )
        return end_by_job

    async def settle(self) -> None:
        """Mark closed blocks as settled: from then on no started job opens them again. Raises
        PodwrightError.

        A block is settled once Slurm knows that it is closed, and all jobs that Slurm had started
        before have their devices, or DEVICES_DEADLINE_S seconds are over.
        """
        service = self._service
        for pod_type, pod_book in service.books.items():
            # JobMover deals with blocks that moves empty.
            if not pod_book.unsettled or pod_book.emptied:
                self._unsettled_since.pop(pod_type, None)
                continue
            unsettled_since = self._unsettled_since.setdefault(pod_type, service.clock())
            await service.counts.wait_until_synced()
            if (
                await settled(service.slurm, pod_book)
                or service.clock() - unsettled_since > DEVICES_DEADLINE_S
            ):
                pod_book.unsettled = False

    def waiting(self, jobs: Mapping[int, Listed]) -> list[Waits]:
        """Return the jobs that wait for devices.

        A job that waits in its prolog comes first: Slurm has started it for devices that somebody
        else got in the meantime. Only the server can keep others for it.
        """
        service = self._service
        waiting_jobs = []
        for job_number, (pod_type, block_order) in service.in_prolog.items():
            if job_number in jobs and _may_be_in_prolog(jobs[job_number]):
                waiting_jobs.append(
                    self._waits(
                        jobs[job_number],
                        {pod_type: [block_order]},
                        priority=_STARTED_JOB_PRIORITY,
                        started=True,
                    )
                )
        for listed_job in jobs.values():
            devices_request = None if listed_job.het else listed_job.request(service.site.pods)
            waits_for_devices = (
                listed_job.state == "PENDING"
                and listed_job.priority > 0
                and listed_job.reason in _DEVICE_WAIT_REASONS
                and listed_job.job not in self._preemption.withheld
            )
            if devices_request and waits_for_devices:
                orders_by_pod = {devices_request[0].type: [devices_request[1].bit_length() - 1]}
                is_urgent = listed_job.job in self._preemption.urgent_jobs
                waiting_jobs.append(
                    self._waits(
                        listed_job,
                        orders_by_pod,
                        priority=_URGENT_JOB_PRIORITY if is_urgent else None,
                        started=is_urgent,
                    )
                )
        for leader_number, (priority, job_parts) in service.het.waiting(jobs.values()).items():
            leader_job = jobs.get(leader_number)
            if leader_job is None or leader_job.reason not in (
                *_DEVICE_WAIT_REASONS,
                *_HET_WAIT_REASONS,
            ):
                continue
            orders_by_pod = {}
            for pod, count in sorted(job_parts.values(), key=lambda pod_and_size: -pod_and_size[1]):
                orders_by_pod.setdefault(pod.type, []).append(count.bit_length() - 1)
            waiting_jobs.append(
                self._waits(leader_job, orders_by_pod, priority=priority, alone=True)
            )
        return waiting_jobs

    def _waits(
        self,
        listed_job: Listed,
        orders_by_pod: dict[str, list[int]],
        *,
        priority: int | None = None,
        alone: bool = False,
        started: bool = False,
    ) -> Waits:
        """Return a job for `guests.Room`, by whose clock it has waited since it was eligible."""
        since = listed_job.eligible - self._wall_ahead_s if listed_job.eligible else None
        return Waits(
            listed_job.priority if priority is None else priority,
            listed_job.job,
            orders_by_pod,
            alone=alone,
            started=started,
            name=f"job {listed_job.name}",
            owner=user_name(listed_job.uid),
            since=since,
        )

    async def raise_passed(self, jobs: Mapping[int, Listed]) -> None:
        """Raise the priority of jobs on whose place Slurm has started others.

        Slurm counts devices, and cannot count them for one job alone. Without this, small jobs of
        high priority could use the place of a large one again and again.
        """
        waiting_priorities = [
            listed_job.priority for listed_job in jobs.values() if listed_job.waits
        ]
        for passed_job in self._room.passed():
            listed_job = jobs.get(passed_job.job)
            highest = max(waiting_priorities, default=0)
            if (
                listed_job is None
                or passed_job.alone
                or passed_job.started
                or not 0 < listed_job.priority < highest < _HIGHEST_PRIORITY
            ):
                continue
            reply = await self._service.slurm.run(
                "scontrol", "update", f"jobid={listed_job.name}", f"priority={highest + 1}"
            )
            _log.info(
                "job %s: others have started on its place; its priority is %s",
                listed_job.name,
                reply.text if reply.code else highest + 1,
            )


def _may_be_in_prolog(listed_job: Listed) -> bool:
    """Return whether a job may still be in its prolog: Slurm has started it, and it is not over."""
    return not listed_job.over and listed_job.state != "PENDING"
