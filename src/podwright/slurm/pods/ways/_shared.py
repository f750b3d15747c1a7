"""One reconfigurable partition for all: native mode's machinery, with leases on subsets.

The partition is the pod: its devices in routing order are the line, and a job's block is a lease
on that subset. So a job waits in the queue until its subset is free, where Graphcore's way let it
fail. The partition itself stays one: whoever does not ask the server is kept from nothing, and it
has one GCD, so a job stays on one host (V-IPU guide, Table 6.1).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import Any

from podwright.errors import Held, NotFound, PodwrightError, Unavailable, WrongState
from podwright.guests import GuestServer, ThreadedServer
from podwright.placement.buddy_blocks import Blocks, bits
from podwright.slurm.pods.service import HookJob, Service, Site, comment
from podwright.slurm.pods.service._job_start import Life
from podwright.slurm.pods.service._pod_book import JobHolding, PodBook
from podwright.slurm.pods.service._work import Native
from podwright.slurm.pods.ways._partition_leases import (
    ServerCaller,
    acquire,
    handed,
    holder,
    partitions,
    release,
    renew,
)
from podwright.slurm.site.commands import Slurm
from podwright.wire import LeaseInfo, ReadyState


class SharedBook(PodBook):
    """Who holds which part of the partition. leases: by job."""

    def __init__(self, pod: Any, partition: str, server: ServerCaller) -> None:
        super().__init__(pod)
        self._partition, self._server = partition, server
        self.blocks = Blocks((1 << pod.devices) - 1)
        self.leases: dict[int, LeaseInfo] = {}

    async def refresh(self, server: GuestServer) -> None:
        """Take over what the server has, but for what changed while it was asked."""
        began = self.tick()
        found = await partitions(self._server, self.pod.cluster, self.pod.allocation)
        info = next((one for one in found if one.name == self._partition), None)
        whole = info is not None and info.ready_state is ReadyState.ACTIVE
        away = 0 if whole else self.blocks.capacity
        seen = set()
        for lease in info.leases if info else ():
            who = holder(lease)
            if lease.parent:
                continue
            places = lease.devices or range(self.pod.devices)
            if who is None:
                away |= bits(places)
                continue
            seen.add(who.job)
            if who.job in self.holdings or self._released.get(who.job, 0) > began:
                continue
            order = len(places).bit_length() - 1
            self.leases[who.job] = lease
            holding = JobHolding(
                job=who.job,
                start=places[0],
                order=order,
                made=True,
                restart=who.restart,
                leader=who.leader,
                cluster=who.cluster,
                submitted=who.submitted,
            )
            self.add(holding)
        for one in list(self.holdings.values()):
            if one.made and one.changed < began and one.job not in seen:
                del self.holdings[one.job]
                self.leases.pop(one.job, None)
        self._released = {job: at for job, at in self._released.items() if at > began}
        self.broken = set() if whole else set(self.holdings)
        self.away = away
        self.count()

    def moved(self, holding: JobHolding, lease: LeaseInfo) -> None:
        """A lease lies where the server put it."""
        self.leases[holding.job] = lease
        holding.start = lease.devices[0] if lease.devices else 0
        holding.made = True
        holding.changed = self.tick()
        self.count()


class SharedService(Service):
    """Native mode's service, whose holdings are leases."""

    def __init__(self, site: Site, server: ThreadedServer, slurm: Slurm) -> None:
        super().__init__(site, server, slurm)
        self._caller = server
        self.shared = {pod.type: SharedBook(pod, site.shared, server) for pod in site.pods}
        self.books.update(self.shared)  # in place: heterogeneous jobs have these books as well
        self._taking = asyncio.Lock()

    async def give(self, job: HookJob) -> str:
        """The job's lease stands, and its AdminComment says which."""
        number = job.job
        for book in self.shared.values():
            lease, holding = book.leases.get(number), book.holdings.get(number)
            if lease and holding and lease.owner != job.user:
                await self.give_back(book, holding)  # of one that slurmctld has forgotten
        said = await super().give(job)
        for book in self.shared.values():
            if number in book.leases:
                head = f"ipus={book.holdings[number].size}; " if job.het_job else ""
                words = handed(self.site.shared, [book.leases[number]])
                await comment(self.slurm, job, head + words)
        return said

    async def give_back(self, book: PodBook, holding: JobHolding) -> None:
        """The lease ends, then the block is free."""
        leases = self.shared[book.pod.type].leases
        if lease := leases.get(holding.job):
            await release(self._caller, lease)
            leases.pop(holding.job, None)
        book.release(holding.job)
        await self.freed.tell()

    async def renew(self) -> None:
        """All leases go on, for as long as their jobs' blocks are in the book."""
        for book in self.shared.values():
            for lease in list(book.leases.values()):
                await renew(self._caller, lease)

    async def _make(self, book: PodBook, holding: JobHolding, job: HookJob, gcds: int) -> None:
        mine = self.shared[book.pod.type]
        who = Life(holding.job, holding.restart, holding.leader, holding.cluster, holding.submitted)
        try:
            async with self._taking:
                lease, _ = await acquire(self._caller, self.site.shared, holding.size, job, who)
                mine.moved(holding, lease)
        except (Held, NotFound, WrongState) as error:
            book.release(holding.job)
            await self.refresh()
            raise Unavailable(f"job {holding.job}: {error}") from None
        except PodwrightError:
            book.release(holding.job)
            raise


class Shared(Native):
    """The work of a shared partition."""

    def __init__(self, service: SharedService) -> None:
        super().__init__(service)
        self._shared = service

    def beside(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Leases are renewed as well."""
        return (*super().beside(), self._renewing())

    async def _renewing(self) -> None:
        while True:
            await asyncio.sleep(self._shared.site.sweep_s)
            with contextlib.suppress(PodwrightError):
                await self._shared.renew()
