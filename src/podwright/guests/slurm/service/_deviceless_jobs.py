"""Ends jobs that run without ever having held their devices.

No step of such a job asks the service, so nothing else stops it: salloc starts a job without a
step, for example. A job whose devices were taken away while it ran is left alone. A job that
already ran when the service started is left alone for OLD_S seconds: a slurmctld that was killed
shows jobs as running that have ended since it last saved its state, and it learns the truth when
their nodes answer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from podwright.guests.slurm.service._queue import Listed, listed

if TYPE_CHECKING:
    from podwright.guests.slurm.service._service import Service

_log = logging.getLogger("podwright.slurm")
#: Seconds in which slurmctld hears from its nodes which jobs have ended. A job that ran when the
#: service started is then requeued, as Slurm would requeue it, and not held.
OLD_S = 120.0
#: Slurm's errors for jobs that cannot be requeued: those of srun and salloc, and those that were
#: submitted with --no-requeue (ESLURM_BATCH_ONLY, ESLURM_DISABLED).
_NEVER = ("Only batch jobs are accepted", "operation is presently disabled")
Start = tuple[int, int]


class Bare:
    """Looks for such jobs with each sweep. A job is ended only if two sweeps in a row see it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._since: dict[Start, float] = {}
        self._old: set[Start] | None = None

    async def check(self, jobs: Mapping[int, Listed]) -> None:
        """End the jobs that run without their devices. Raises Unavailable."""
        service = self._service
        holders = {job for book in service.books.values() for job in book.holdings}
        service.had |= {(job, jobs[job].restart) for job in holders if job in jobs}
        service.had &= {(job, listed_job.restart) for job, listed_job in jobs.items()}
        runs = {
            (listed_job.job, listed_job.restart)
            for listed_job in jobs.values()
            if listed_job.state == "RUNNING"
        }
        if self._old is None:
            self._old = runs
        now = service.clock()
        before, self._since = self._since, {}
        due = []
        for start in sorted(runs - service.had):
            if start[0] in holders or not jobs[start[0]].request(service.site.pods):
                continue
            self._since[start] = before.get(start, now)
            patience = OLD_S if start in self._old else 0.0
            if start in before and now - before[start] >= patience:
                due.append(start)
        if due:  # a requeue must not bring back a job that was cancelled just now
            current = await listed(service.slurm)
            for start in due:
                if (listed_job := current.get(start[0])) and listed_job.state == "RUNNING":
                    await self._end(listed_job, hold=start not in self._old)

    async def _end(self, job: Listed, *, hold: bool) -> None:
        slurm = self._service.slurm
        words = f"{job.head}it ran without its devices: its PrologSlurmctld did not end"
        await slurm.run("scontrol", "update", f"jobid={job.alone}", f"admincomment={words}")
        target = str(job.het or job.job)
        reply = await slurm.run("scontrol", "requeuehold" if hold else "requeue", target)
        became = "held" if hold else "back in the queue"
        if reply.code and not any(words in reply.text for words in _NEVER):
            _log.warning("job %d is not requeued yet: %s", job.job, reply.text)
            return  # slurmctld may be away
        if reply.code:
            await slurm.run("scancel", target)
            became = "cancelled"
        start = f"job {job.job}" + (f", start {job.restart}" if job.restart else "")
        _log.warning("%s ran without its devices: it is %s", start, became)
        self._service.figures.bare += 1
