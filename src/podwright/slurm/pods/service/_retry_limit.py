"""What becomes of a job whose prolog fails, ours or the site's own: tried anew, and then held.

Slurm itself puts a batch job whose prolog failed back into the queue for ever. How often it was
tried stands in the job's AdminComment, so no restart of anything forgets it, and everybody can
read why.
"""

from __future__ import annotations

import asyncio
import logging

from podwright.errors import InvalidRequest, PodwrightError, Unavailable
from podwright.guests import HELD, attempts, failed
from podwright.slurm.pods.service._job_request import HookJob
from podwright.slurm.pods.service._queue import Listed, listed
from podwright.slurm.site.commands import Slurm

_log = logging.getLogger("podwright.slurm")
#: Looks for the job to be back in the queue, and seconds between them.
_LOOKS, _PAUSE = 300, 0.2


class RetryLimit:
    """Counts what failed. most: with which attempt a job is held."""

    def __init__(self, slurm: Slurm, most: int) -> None:
        self._slurm = slurm
        self._most = most
        self._holding: set[asyncio.Task[None]] = set()

    async def refusal(
        self, job: HookJob, error: PodwrightError, *, final: bool = False
    ) -> PodwrightError:
        """What the hook is told: the reason, which by now stands in the job's AdminComment.
        final: trying anew cannot help, so it is held at once."""
        try:
            known = (await listed(self._slurm, job.job)).get(job.job)
            if known is None:  # killed, slurmctld has forgotten it: the next one with its number
                return InvalidRequest(str(error))  # is not to suffer for it
            before = tried(known)
            release = f"scontrol release {job.het_job or job.job}"
            attempt = failed(before, self._most, str(error), release, final=final)
            await comment(self._slurm, job, known.head + attempt.words)
        except Unavailable as silent:
            _log.warning("job %d: %s, and Slurm cannot be told: %s", job.job, error, silent)
            return InvalidRequest(str(error))
        _log.warning("job %d: %s", job.job, attempt.words)
        if attempt.held:
            task = asyncio.create_task(self._hold_in_slurm(job, known))
            self._holding.add(task)
            task.add_done_callback(self._holding.discard)
        return InvalidRequest(attempt.words)

    async def _hold_in_slurm(self, job: HookJob, before: Listed) -> None:
        """Hold it once it is back in the queue: one that still runs cannot be held. before: as it
        was when that was decided; one of another user, or of fewer starts, has but its number."""
        for _ in range(_LOOKS):
            await asyncio.sleep(_PAUSE)
            try:
                known = (await listed(self._slurm, job.job)).get(job.job)
                if known is None or known.over or known.uid != before.uid:
                    return
                if known.restart < before.restart:
                    return
                if known.state == "PENDING":
                    # A heterogeneous job starts as a whole, and so is held as one.
                    whole = str(job.het_job or job.reference)
                    said = await self._slurm.run("scontrol", "hold", whole)
                    if not said.code:
                        return
                    _log.warning("job %d is not held: %s", job.job, said.text)
            except Unavailable as silent:
                _log.warning("job %d is not held yet: %s", job.job, silent)


def tried(job: Listed) -> int:
    """How often the job's prolog has failed."""
    return attempts(job.comment.removeprefix(job.head))


def refused(job: Listed) -> bool:
    """Is it on its way back into the queue, where it will be held, and its comment says why?"""
    return HELD in job.comment and job.reason in ("BeginTime", "None")


async def comment(slurm: Slurm, job: HookJob, words: str) -> None:
    """Write a job's AdminComment, which its user reads and cannot change. Raises Unavailable."""
    said = await slurm.run("scontrol", "update", f"jobid={job.reference}", f"admincomment={words}")
    if said.code:
        raise Unavailable(f"job {job.job}: Slurm was not told: {said.text[:200]}")
