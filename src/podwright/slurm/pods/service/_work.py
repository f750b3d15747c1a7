"""What a way of scheduling does for hooks, whoever serves it; and that of native mode."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from podwright.guests import ThreadedServer
from podwright.slurm.pods.service._job_mover import JobMover
from podwright.slurm.pods.service._job_request import HookJob
from podwright.slurm.pods.service._pods import Site
from podwright.slurm.pods.service._queue_sweep import Sweep, sentence
from podwright.slurm.pods.service._service import Service
from podwright.slurm.site.commands import Slurm


class Work(Protocol):
    """What a way of scheduling does for hooks, and beside that."""

    async def begins(self, job: HookJob) -> str:
        """What a job gets, in lines. Raises PodwrightError."""
        ...

    async def ended(self, job: HookJob) -> str:
        """Nothing is held for the job. Raises PodwrightError."""
        ...

    async def proves(self, job: HookJob) -> str:
        """The job of a step holds its devices, for this start. Raises PodwrightError."""
        ...

    def state(self) -> dict[str, Any]:
        """What an administrator watches."""
        ...

    async def held(self) -> None:
        """Take over what the server says; then steps may ask. Raises PodwrightError."""
        ...

    async def known(self) -> None:
        """Take over what Slurm says, too; then hooks may ask. Raises PodwrightError."""
        ...

    def beside(self) -> Sequence[Coroutine[Any, Any, None]]:
        """What goes on until it is cancelled."""
        ...

    async def close(self) -> None:
        """The last word to Slurm."""
        ...


class Native:
    """The work of native mode."""

    def __init__(self, service: Service, mover: JobMover | None = None) -> None:
        self._service, self._mover = service, mover
        self._sweep = Sweep(service, self._mover)
        self.begins, self.ended, self.close = service.begins, service.ended, service.close
        self.proves = service.proves

    def state(self) -> dict[str, Any]:
        """Counts, figures, and what each pod's jobs hold."""
        return state(self._service)

    async def held(self) -> None:
        """The book as the server has it."""
        await self._service.refresh()

    async def known(self) -> None:
        """The same, what is over ended, and Slurm told."""
        await self._service.refresh()
        await self._sweep.once(words=False)
        await self._service.counts.tell(self._service.hidden())

    def beside(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Counts, the sweep, heterogeneous jobs, moves."""
        service, mover = self._service, self._mover
        some = (service.counts.run(), self._sweep.run(), service.het.run())
        return some if mover is None else (*some, mover.run())


def native_work(site: Site, server: ThreadedServer, slurm: Slurm) -> Work:
    """Native mode."""
    service = Service(site, server, slurm)
    return Native(service, JobMover(service, server))


Make = Callable[[Site, ThreadedServer, Slurm], Work]


def state(service: Service) -> dict[str, Any]:
    """What an administrator watches: counts, figures, and what each pod's jobs hold."""
    pods = {}
    for name, book in service.books.items():
        pods[name] = {
            "devices": book.pod.devices,
            "free_together": {
                str(1 << order): whole for order, whole in enumerate(book.blocks.wholes())
            },
            "emptied_for_a_large_job": book.closed.bit_count(),
            "held": {str(h.job): h.size for h in book.holdings.values()},
            "next": sentence(book, book.pod.largest),
        }
    figures = {name: getattr(service.figures, name) for name in service.figures.__struct_fields__}
    return {
        "pods": pods,
        "figures": figures,
        "told": service.counts.told,
        "updates": service.counts.updates,
        "problem": service.counts.problem,
    }
