"""The work that a way of scheduling does for hooks, and its implementation for native mode."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from podwright.guests.shared import ThreadedServer
from podwright.guests.slurm.service._hook_job_request import HookJob
from podwright.guests.slurm.service._job_mover import JobMover
from podwright.guests.slurm.service._missed_hook_sweep import Sweep
from podwright.guests.slurm.service._native_service import Service
from podwright.guests.slurm.service._pods_and_licences import Site
from podwright.slurm.site.commands import Slurm


class Work(Protocol):
    """What a way of scheduling does for hooks, and its tasks in the background."""

    async def begin_job(self, job: HookJob) -> str:
        """Give a job its devices, and return what it is told, in lines. Raises PodwrightError."""
        ...

    async def end_job(self, job: HookJob) -> str:
        """Take back what the job holds. Raises PodwrightError."""
        ...

    async def prove_step(self, job: HookJob) -> str:
        """Check that a step's job holds its devices for this start. Raises PodwrightError."""
        ...

    def state(self) -> dict[str, Any]:
        """Return what an administrator watches."""
        ...

    async def read_server(self) -> None:
        """Take over the server's state. From then on steps may ask. Raises PodwrightError."""
        ...

    async def known(self) -> None:
        """Take over Slurm's state as well. From then on hooks may ask. Raises PodwrightError."""
        ...

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the background tasks, which run until they are cancelled."""
        ...

    async def close(self) -> None:
        """Tell Slurm that nothing may start any more."""
        ...


class NativeWork:
    """The work of native mode."""

    def __init__(self, native_service: Service, job_mover: JobMover | None = None) -> None:
        self._service, self._mover = native_service, job_mover
        self._sweep = Sweep(native_service, self._mover)
        self.begin_job, self.end_job, self.close = (
            native_service.begin_job,
            native_service.end_job,
            native_service.close,
        )
        self.prove_step = native_service.prove_step

    def state(self) -> dict[str, Any]:
        """Return counts, figures, and what each pod's jobs hold."""
        return state(self._service)

    async def read_server(self) -> None:
        """Read the books from the server."""
        await self._service.refresh()

    async def known(self) -> None:
        """Read the books again, take back what ended jobs hold, and tell Slurm the counts."""
        await self._service.refresh()
        await self._sweep.once(words=False)
        await self._service.counts.update(self._service.hidden())

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the tasks for counts, the sweep, heterogeneous jobs and moves."""
        service, mover = self._service, self._mover
        coroutines = (service.counts.run(), self._sweep.run(), service.het.run())
        return coroutines if mover is None else (*coroutines, mover.run())


def native_work(slurm_site: Site, server: ThreadedServer, slurm: Slurm) -> Work:
    """Return the work of native mode."""
    service = Service(slurm_site, server, slurm)
    return NativeWork(service, JobMover(service, server))


Make = Callable[[Site, ThreadedServer, Slurm], Work]


def state(service: Service) -> dict[str, Any]:
    """Return what an administrator watches: counts, figures, and what each pod's jobs hold."""
    pods = {}
    for pod_type, pod_book in service.books.items():
        pods[pod_type] = {
            "devices": pod_book.pod.devices,
            "free_together": {
                str(1 << order): count
                for order, count in enumerate(pod_book.blocks.whole_counts_by_order())
            },
            "emptied_for_a_large_job": pod_book.closed.bit_count(),
            "held": {str(holding.job): holding.size for holding in pod_book.holdings.values()},
            "next": service.next_jobs.get(pod_type, ""),
        }
    figures = {
        pod_type: getattr(service.figures, pod_type)
        for pod_type in service.figures.__struct_fields__
    }
    return {
        "pods": pods,
        "figures": figures,
        "told": service.counts.last_hidden,
        "updates": service.counts.updates,
        "problem": service.counts.problem,
    }
