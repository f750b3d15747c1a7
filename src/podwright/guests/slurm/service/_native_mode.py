"""Native mode as a whole: the service, and what goes on beside its answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar

from podwright.guests.shared import ThreadedServer
from podwright.guests.slurm.service._job_mover import JobMover
from podwright.guests.slurm.service._missed_hook_sweep import Sweep
from podwright.guests.slurm.service._native_service import Service
from podwright.guests.slurm.service._pods_and_licences import Site
from podwright.slurm.site.commands import Slurm


class NativeMode(Service):
    """The service with its sweep and its moves. moves: whether launches may be asked to move."""

    moves: ClassVar[bool] = True

    def __init__(
        self,
        site: Site,
        server: ThreadedServer,
        slurm: Slurm,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(site, server, slurm, clock=clock)
        self._mover = JobMover(self, server) if self.moves else None
        self._sweep = Sweep(self, self._mover)

    async def known(self) -> None:
        """Take back what ended jobs hold as well."""
        await self.refresh()
        await self._sweep.once(words=False)
        await super().known()

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the sweep and the moves as well."""
        mover = () if self._mover is None else (self._mover.run(),)
        return (*super().tasks(), self._sweep.run(), *mover)
