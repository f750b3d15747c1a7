"""Deals with a job whose machine failed: the action that the site chose happens to the job, once.

With `stay` nothing happens; the partition is repaired in place when its machine is back. With
`requeue` Slurm ends the job and starts it again. With `relocate` the server moves the partition to
healthy devices, under its own name, as soon as there are any. The book follows it there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from podwright.errors import PodwrightError

if TYPE_CHECKING:
    from podwright.guests.slurm.service._native_service import Service

_log = logging.getLogger("podwright.slurm")


class NodeFailures:
    """The jobs whose machine failed. Each is dealt with once while it is broken."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._done: set[int] = set()

    async def check(self) -> None:
        """Deal with jobs whose machine has failed since the last look. Raises PodwrightError."""
        service = self._service
        broken_jobs = {number for book in service.books.values() for number in book.broken}
        self._done &= broken_jobs
        for job_number in sorted(broken_jobs - self._done):
            self._done.add(job_number)
            try:
                if service.site.fallen == "requeue":
                    await self._requeue_job(job_number)
                elif service.site.fallen == "relocate":
                    _log.warning("job %d: a machine of its partition failed; it moves", job_number)
                    await service.server.relocate(f"slurm_{job_number}")
            except PodwrightError:
                self._done.discard(job_number)
                raise

    async def _requeue_job(self, job_number: int) -> None:
        reply = await self._service.slurm.run("scontrol", "requeue", str(job_number))
        if reply.code:  # jobs of srun and salloc cannot be requeued
            _log.warning(
                "job %d: a machine of its partition failed; %s", job_number, reply.text[:200]
            )
        else:
            _log.warning("job %d: a machine of its partition failed; requeued", job_number)
