"""Ends jobs that run without ever having held their devices.

No step of such a job asks the service, so nothing else stops it: salloc starts a job without a
step, for example. A job whose devices were taken away while it ran is left alone. A job that
already ran when the service started is left alone for OLD_JOB_GRACE_S seconds: a slurmctld that was
killed shows jobs as running that have ended since it last saved its state, and it learns the truth
when their nodes answer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from podwright.guests.slurm.service._squeue_jobs import Listed, listed

if TYPE_CHECKING:
    from podwright.guests.slurm.service._native_service import Service

_log = logging.getLogger("podwright.slurm")
#: Seconds in which slurmctld hears from its nodes which jobs have ended. A job that ran when the
#: service started is then requeued, as Slurm would requeue it, and not held.
OLD_JOB_GRACE_S = 120.0
#: Slurm's errors for jobs that cannot be requeued: those of srun and salloc, and those that were
#: submitted with --no-requeue (ESLURM_BATCH_ONLY, ESLURM_DISABLED).
REQUEUE_REFUSALS = ("Only batch jobs are accepted", "operation is presently disabled")
Start = tuple[int, int]


class DevicelessJobs:
    """Looks for such jobs with each sweep. A job is ended only if two sweeps in a row see it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._since: dict[Start, float] = {}
        self._starts_before_service: set[Start] | None = None

    async def check(self, listed_jobs: Mapping[int, Listed]) -> None:
        """End the jobs that run without their devices. Raises Unavailable."""
        service = self._service
        holding_jobs = {number for book in service.books.values() for number in book.holdings}
        service.had |= {
            (number, listed_jobs[number].restart)
            for number in holding_jobs
            if number in listed_jobs
        }
        service.had &= {(number, job.restart) for number, job in listed_jobs.items()}
        running_starts = {
            (job.job, job.restart) for job in listed_jobs.values() if job.state == "RUNNING"
        }
        if self._starts_before_service is None:
            self._starts_before_service = running_starts
        now = service.clock()
        since_before, self._since = self._since, {}
        starts_to_end = []
        for job_start in sorted(running_starts - service.had):
            if job_start[0] in holding_jobs or not listed_jobs[job_start[0]].request(
                service.site.pods
            ):
                continue
            self._since[job_start] = since_before.get(job_start, now)
            grace_s = OLD_JOB_GRACE_S if job_start in self._starts_before_service else 0.0
            if job_start in since_before and now - since_before[job_start] >= grace_s:
                starts_to_end.append(job_start)
        if starts_to_end:  # a requeue must not bring back a job that was cancelled just now
            jobs_now = await listed(service.slurm)
            for job_start in starts_to_end:
                if (listed_job := jobs_now.get(job_start[0])) and listed_job.state == "RUNNING":
                    await self._end_job(
                        listed_job, hold=job_start not in self._starts_before_service
                    )

    async def _end_job(self, listed_job: Listed, *, hold: bool) -> None:
        slurm = self._service.slurm
        comment_text = (
            f"{listed_job.head}it ran without its devices: its PrologSlurmctld did not end"
        )
        await slurm.run(
            "scontrol", "update", f"jobid={listed_job.alone}", f"admincomment={comment_text}"
        )
        job_target = str(listed_job.het or listed_job.job)
        slurm_reply = await slurm.run("scontrol", "requeuehold" if hold else "requeue", job_target)
        outcome = "held" if hold else "back in the queue"
        if slurm_reply.code and not any(
            comment_text in slurm_reply.text for comment_text in REQUEUE_REFUSALS
        ):
            _log.warning("job %d is not requeued yet: %s", listed_job.job, slurm_reply.text)
            return  # slurmctld may be away
        if slurm_reply.code:
            await slurm.run("scancel", job_target)
            outcome = "cancelled"
        start_text = f"job {listed_job.job}" + (
            f", start {listed_job.restart}" if listed_job.restart else ""
        )
        _log.warning("%s ran without its devices: it is %s", start_text, outcome)
        self._service.figures.bare += 1
