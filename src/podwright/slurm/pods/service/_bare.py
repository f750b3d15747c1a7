"""What runs and never held its devices does not run on: what salloc started, say, as no step asks.

One whose devices were taken from it is let be. So is, for a while, what ran when we came: a
slurmctld that was killed shows jobs as running that have ended since it saved its state, and finds
that out when their nodes have answered.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from podwright.slurm.pods.service._queue import Listed, listed

if TYPE_CHECKING:
    from podwright.slurm.pods.service._service import Service

_log = logging.getLogger("podwright.slurm")
#: Seconds in which slurmctld hears from its nodes what has ended. After that the job is requeued,
#: as Slurm would requeue it, and not held.
OLD_S = 120.0
#: Why a job cannot be requeued: srun and salloc never are, nor what was submitted so
#: (ESLURM_BATCH_ONLY, ESLURM_DISABLED).
_NEVER = ("Only batch jobs are accepted", "operation is presently disabled")
Start = tuple[int, int]


class Bare:
    """Looks with each sweep. Two in a row must see it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._since: dict[Start, float] = {}
        self._old: set[Start] | None = None

    async def look(self, jobs: Mapping[int, Listed]) -> None:
        """End what is bare. Raises Unavailable."""
        service = self._service
        holds = {job for book in service.books.values() for job in book.holdings}
        service.had |= {(job, jobs[job].restart) for job in holds if job in jobs}
        service.had &= {(job, one.restart) for job, one in jobs.items()}
        runs = {(one.job, one.restart) for one in jobs.values() if one.state == "RUNNING"}
        if self._old is None:
            self._old = runs
        now = service.clock()
        before, self._since = self._since, {}
        due = []
        for start in sorted(runs - service.had):
            if start[0] in holds or not jobs[start[0]].wants(service.site.pods):
                continue
            self._since[start] = before.get(start, now)
            patience = OLD_S if start in self._old else 0.0
            if start in before and now - before[start] >= patience:
                due.append(start)
        if due:  # one that was cancelled just now must not come back by being requeued
            again = await listed(service.slurm)
            for start in due:
                if (one := again.get(start[0])) and one.state == "RUNNING":
                    await self._end(one, hold=start not in self._old)

    async def _end(self, job: Listed, *, hold: bool) -> None:
        slurm = self._service.slurm
        words = f"{job.head}it ran without its devices: its PrologSlurmctld did not end"
        await slurm.run("scontrol", "update", f"jobid={job.alone}", f"admincomment={words}")
        whole = str(job.het or job.job)
        said = await slurm.run("scontrol", "requeuehold" if hold else "requeue", whole)
        became = "held" if hold else "back in the queue"
        if said.code and not any(words in said.text for words in _NEVER):
            _log.warning("job %d is not requeued yet: %s", job.job, said.text)
            return  # slurmctld may be away
        if said.code:
            await slurm.run("scancel", whole)
            became = "cancelled"
        start = f"job {job.job}" + (f", start {job.restart}" if job.restart else "")
        _log.warning("%s ran without its devices: it is %s", start, became)
        self._service.figures.bare += 1
