"""A machine failed under a running job: what the site chose happens to the job, once.

stay: nothing; the partition is repaired in place when its machine is back. requeue: Slurm ends the
job and starts it anew. relocate: the partition moves to healthy devices under its own name, by the
server's own means, as soon as there are any; the book follows it there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from podwright.errors import PodwrightError

if TYPE_CHECKING:
    from podwright.slurm.pods.service._service import Service

_log = logging.getLogger("podwright.slurm")


class NodeFailures:
    """Jobs whose machine failed, each dealt with once while it is broken."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._done: set[int] = set()

    async def look(self) -> None:
        """Deal with those that were found since the last look. Raises PodwrightError."""
        service = self._service
        broken = {job for book in service.books.values() for job in book.broken}
        self._done &= broken
        for job in sorted(broken - self._done):
            self._done.add(job)
            try:
                if service.site.fallen == "requeue":
                    await self._requeue(job)
                elif service.site.fallen == "relocate":
                    _log.warning("job %d: a machine of its partition failed; it moves", job)
                    await service.server.relocate(f"slurm_{job}")
            except PodwrightError:
                self._done.discard(job)
                raise

    async def _requeue(self, job: int) -> None:
        said = await self._service.slurm.run("scontrol", "requeue", str(job))
        if said.code:  # srun and salloc cannot start again by themselves
            _log.warning("job %d: a machine of its partition failed; %s", job, said.text[:200])
        else:
            _log.warning("job %d: a machine of its partition failed; requeued", job)
