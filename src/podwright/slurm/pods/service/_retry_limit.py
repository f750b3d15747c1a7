"""What becomes of a job whose prolog fails, ours or the site's own: tried anew, and then held.

Slurm itself puts a batch job whose prolog failed back into the queue for ever. How often it was
tried stands in the job's AdminComment, so no restart of anything forgets it, and everybody can
read why.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Final

from podwright.errors import InvalidRequest, PodwrightError, Unavailable
from podwright.slurm.pods.service._job_request import Asked
from podwright.slurm.pods.service._queue import Listed, listed
from podwright.slurm.site.commands import Slurm

_log = logging.getLogger("podwright.slurm")
_TRIED: Final = re.compile(r"(?:ipus=[^;]*; )?try (\d+) of \d+ failed")
_HELD: Final = "Held: when that is mended"
#: Looks for the job to be back in the queue, and seconds between them.
_LOOKS, _PAUSE = 300, 0.2


class Tries:
    """Counts what failed. most: with which try a job is held."""

    def __init__(self, slurm: Slurm, most: int) -> None:
        self._slurm = slurm
        self._most = most
        self._holding: set[asyncio.Task[None]] = set()

    async def refusal(
        self, asked: Asked, error: PodwrightError, *, final: bool = False
    ) -> PodwrightError:
        """What the hook is told: the reason, which by now stands in the job's AdminComment.
        final: trying anew cannot help, so it is held at once."""
        job = asked.number("job")
        try:
            known = (await listed(self._slurm, job)).get(job)
            count = tried(known) + 1 if known else 1
            last = final or count >= self._most
            words = "" if final else f"try {count} of {self._most} failed: "
            words += str(error)
            if last:
                words += f" {_HELD}, scontrol release {asked.het_job or job}"
            await comment(self._slurm, asked, (known.head if known else "") + words)
        except Unavailable as silent:
            _log.warning("job %d: %s, and Slurm cannot be told: %s", job, error, silent)
            return InvalidRequest(str(error))
        _log.warning("job %d: %s", job, words)
        if last:
            task = asyncio.create_task(self._hold(asked, job))
            self._holding.add(task)
            task.add_done_callback(self._holding.discard)
        return InvalidRequest(words)

    async def _hold(self, asked: Asked, job: int) -> None:
        """Hold it once it is back in the queue: one that still runs cannot be held."""
        for _ in range(_LOOKS):
            await asyncio.sleep(_PAUSE)
            try:
                known = (await listed(self._slurm, job)).get(job)
                if known is None or known.over:
                    return
                if known.state == "PENDING":
                    # A heterogeneous job starts as a whole, and so is held as one.
                    whole = asked.het_job or reference(asked)
                    said = await self._slurm.run("scontrol", "hold", whole)
                    if not said.code:
                        return
                    _log.warning("job %d is not held: %s", job, said.text)
            except Unavailable as silent:
                _log.warning("job %d is not held yet: %s", job, silent)


def tried(job: Listed) -> int:
    """How often the job's prolog has failed."""
    found = _TRIED.match(job.comment)
    return int(found[1]) if found else 0


def refused(job: Listed) -> bool:
    """Is it on its way back into the queue, where it will be held, and its comment says why?"""
    return _HELD in job.comment and job.reason in ("BeginTime", "None")


def reference(asked: Asked) -> str:
    """The job as scontrol must be told it: an array's or a heterogeneous job's own number would
    mean all of it."""
    if asked.array_job and asked.array_task:
        return f"{asked.array_job}_{asked.array_task}"
    if asked.het_job:
        return f"{asked.het_job}+{asked.het_offset or 0}"
    return asked.job


async def comment(slurm: Slurm, asked: Asked, words: str) -> None:
    """Write a job's AdminComment, which its user reads and cannot change. Raises Unavailable."""
    said = await slurm.run(
        "scontrol", "update", f"jobid={reference(asked)}", f"admincomment={words}"
    )
    if said.code:
        raise Unavailable(f"job {asked.job}: Slurm was not told: {said.text[:200]}")
