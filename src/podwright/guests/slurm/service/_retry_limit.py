"""Limits how often a job is started whose prolog fails, ours or the site's own: then the job is
held.

Slurm itself puts a batch job whose prolog failed back into the queue for ever. The number of failed
attempts is in the job's AdminComment. So it survives every restart, and everybody can read why a
job is held.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Final

from podwright.errors import InvalidRequest, PodwrightError, Unavailable
from podwright.guests.slurm.service._hook_job_request import HookJob
from podwright.guests.slurm.service._squeue_jobs import Listed, listed
from podwright.slurm.site.commands import Slurm

_log = logging.getLogger("podwright.slurm")
#: How often to look whether the job is back in the queue, and the seconds between two looks.
_LOOKS, _PAUSE = 300, 0.2
_HELD: Final = "Held: when that is mended"
_TRIED_PATTERN: Final = re.compile(r"try (\d+) of \d+ failed")


class RetryLimit:
    """Counts failed starts. most: the number of failed attempts with which a job is held."""

    def __init__(self, slurm: Slurm, most: int) -> None:
        self._slurm = slurm
        self._limit = most
        self._holding: set[asyncio.Task[None]] = set()

    async def refusal(
        self, job: HookJob, error: PodwrightError, *, final: bool = False
    ) -> PodwrightError:
        """Record a failed start in the job's AdminComment, and return the error for the hook.

        final: another attempt cannot help, so the job is held at once.
        """
        try:
            listed_job = (await listed(self._slurm, job.job)).get(job.job)
            # A slurmctld that was killed may have forgotten the job. The failure is not recorded
            # then, because the comment would belong to the next job with this number.
            if listed_job is None:
                return InvalidRequest(str(error))
            count = tried(listed_job) + 1
            is_held = final or count >= self._limit
            words = str(error) if final else f"try {count} of {self._limit} failed: {error}"
            if is_held:
                words += f" {_HELD}, scontrol release {job.het_job or job.job}"
            await comment(self._slurm, job, listed_job.head + words)
        except Unavailable as slurm_unavailable:
            _log.warning(
                "job %d: %s, and Slurm cannot be told: %s", job.job, error, slurm_unavailable
            )
            return InvalidRequest(str(error))
        _log.warning("job %d: %s", job.job, words)
        if is_held:
            hold_task = asyncio.create_task(self._hold_in_slurm(job, listed_job))
            self._holding.add(hold_task)
            hold_task.add_done_callback(self._holding.discard)
        return InvalidRequest(words)

    async def _hold_in_slurm(self, hook_job: HookJob, job_before: Listed) -> None:
        """Hold a job once it is back in the queue, because Slurm cannot hold a job that still runs.

        job_before: the job when that was decided. A job of another user, or with fewer restarts,
        only has the same number, and is left alone.
        """
        for _ in range(_LOOKS):
            await asyncio.sleep(_PAUSE)
            try:
                listed_job = (await listed(self._slurm, hook_job.job)).get(hook_job.job)
                if listed_job is None or listed_job.over or listed_job.uid != job_before.uid:
                    return
                if listed_job.restart < job_before.restart:
                    return
                if listed_job.state == "PENDING":
                    # A heterogeneous job starts as a whole, so it is held as a whole.
                    job_target = str(hook_job.het_job or hook_job.reference)
                    hold_reply = await self._slurm.run("scontrol", "hold", job_target)
                    if not hold_reply.code:
                        return
                    _log.warning("job %d is not held: %s", hook_job.job, hold_reply.text)
            except Unavailable as slurm_unavailable:
                _log.warning("job %d is not held yet: %s", hook_job.job, slurm_unavailable)


def tried(listed_job: Listed) -> int:
    """Return how often the job's prolog has failed."""
    match = _TRIED_PATTERN.match(listed_job.comment.removeprefix(listed_job.head))
    return int(match[1]) if match else 0


def refused(listed_job: Listed) -> bool:
    """Return whether the job is on its way back into the queue, where it will be held, with a
    comment that says why.
    """
    return _HELD in listed_job.comment and listed_job.reason in ("BeginTime", "None")


async def comment(slurm: Slurm, hook_job: HookJob, comment_text: str) -> None:
    """Write a job's AdminComment, which its user reads and cannot change. Raises Unavailable."""
    reply = await slurm.run(
        "scontrol", "update", f"jobid={hook_job.reference}", f"admincomment={comment_text}"
    )
    if reply.code:
        raise Unavailable(f"job {hook_job.job}: Slurm was not told: {reply.text[:200]}")
