"""One reconfigurable partition for all jobs: native mode's machinery, with leases on subsets.

The partition takes the place of the pod. Its devices, in routing order, form the line, and a job's
block is a lease on a subset of them. So a job waits in the queue until its subset is free, whereas
Graphcore's way let it fail. The partition stays one, so a program that does not ask the server can
reach all of it. It has one GCD, so a job stays on one host (V-IPU guide, Table 6.1).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import Any

from podwright.errors import Held, NotFound, PodwrightError, Unavailable, WrongState
from podwright.guests.shared import GuestServer, ThreadedServer
from podwright.guests.slurm.service import HookJob, NativeMode, Site, comment
from podwright.guests.slurm.service._job_start_text import Life
from podwright.guests.slurm.service._pod_holdings import JobHolding, PodBook
from podwright.guests.slurm.ways._partition_leases import (
    ServerCaller,
    acquire,
    holder,
    lease_comment,
    partitions,
    release,
    renew,
)
from podwright.placement.buddy_blocks import BuddyBlocks, bits
from podwright.slurm.site.commands import Slurm
from podwright.wire import LeaseInfo, ReadyState


class SharedBook(PodBook):
    """The holdings of each part of the partition. leases: the lease of each job, by its number."""

    def __init__(self, pod: Any, partition: str, server: ServerCaller) -> None:
        super().__init__(pod)
        self._partition, self._server = partition, server
        self.blocks = BuddyBlocks((1 << pod.devices) - 1)
        self.leases: dict[int, LeaseInfo] = {}

    async def refresh(self, server: GuestServer) -> None:
        """Take over the server's state, except for holdings that changed while it was asked.

        `start_tick` is read before the server is asked. A holding that changed or was released
        since then is newer than the reply, so the reply does not overwrite it.
        """
        start_tick = self.tick()
        partition_infos = await partitions(self._server, self.pod.cluster, self.pod.allocation)
        partition_info = next(
            (candidate for candidate in partition_infos if candidate.name == self._partition), None
        )
        is_usable = partition_info is not None and partition_info.ready_state is ReadyState.ACTIVE
        unusable_bits = 0 if is_usable else self.blocks.capacity
        seen_jobs = set()
        for lease in partition_info.leases if partition_info else ():
            job_start = holder(lease)
            if lease.parent:
                continue
            device_indices = lease.devices or range(self.pod.devices)
            if job_start is None:
                unusable_bits |= bits(device_indices)
                continue
            seen_jobs.add(job_start.job)
            if job_start.job in self.holdings or self._released.get(job_start.job, 0) > start_tick:
                continue
            block_order = len(device_indices).bit_length() - 1
            self.leases[job_start.job] = lease
            holding = JobHolding(
                job=job_start.job,
                start=device_indices[0],
                order=block_order,
                created=True,
                restart=job_start.restart,
                leader=job_start.leader,
                cluster=job_start.cluster,
                submitted=job_start.submitted,
            )
            self.add(holding)
        for candidate in list(self.holdings.values()):
            if (
                candidate.created
                and candidate.changed < start_tick
                and candidate.job not in seen_jobs
            ):
                del self.holdings[candidate.job]
                self.leases.pop(candidate.job, None)
        self._released = {
            number: released_at
            for number, released_at in self._released.items()
            if released_at > start_tick
        }
        self.broken = set() if is_usable else set(self.holdings)
        self.unusable = unusable_bits
        self.count()

    def moved(self, holding: JobHolding, lease: LeaseInfo) -> None:
        """Record the place where the server put a lease."""
        self.leases[holding.job] = lease
        holding.start = lease.devices[0] if lease.devices else 0
        holding.created = True
        holding.changed = self.tick()
        self.count()


class SharedService(NativeMode):
    """Native mode's service with leases as holdings, which it renews."""

    moves = False

    def __init__(self, site: Site, server: ThreadedServer, slurm: Slurm) -> None:
        super().__init__(site, server, slurm)
        self._caller = server
        self.shared = {pod.type: SharedBook(pod, site.shared, server) for pod in site.pods}
        self.books.update(self.shared)  # in place, because `Heterogeneous` has the same dict
        self._taking = asyncio.Lock()

    async def give(self, job: HookJob) -> str:
        """Acquire the job's lease, unless it has one, and write it into the job's AdminComment."""
        number = job.job
        for book in self.shared.values():
            lease, holding = book.leases.get(number), book.holdings.get(number)
            if lease and holding and lease.owner != job.user:
                # The lease belongs to an earlier job of this number, which slurmctld has forgotten.
                await self.give_back(book, holding)
        environment = await super().give(job)
        for book in self.shared.values():
            if number in book.leases:
                head = f"ipus={book.holdings[number].size}; " if job.het_job else ""
                text = lease_comment(self.site.shared, [book.leases[number]])
                await comment(self.slurm, job, head + text)
        return environment

    async def give_back(self, book: PodBook, holding: JobHolding) -> None:
        """End the lease, and then free its block."""
        leases = self.shared[book.pod.type].leases
        if lease := leases.get(holding.job):
            await release(self._caller, lease)
            leases.pop(holding.job, None)
        book.release(holding.job)
        await self.freed.notify()

    async def renew(self) -> None:
        """Renew all leases whose jobs' blocks are in the book."""
        for book in self.shared.values():
            for lease in list(book.leases.values()):
                await renew(self._caller, lease)

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return native mode's tasks, and one that renews leases."""
        return (*super().tasks(), self._renew_leases_forever())

    async def _renew_leases_forever(self) -> None:
        while True:
            await asyncio.sleep(self.site.sweep_s)
            with contextlib.suppress(PodwrightError):
                await self.renew()

    async def _make(self, book: PodBook, holding: JobHolding, job: HookJob, gcds: int) -> None:
        shared_book = self.shared[book.pod.type]
        job_start = Life(
            holding.job, holding.restart, holding.leader, holding.cluster, holding.submitted
        )
        try:
            async with self._taking:
                lease, _ = await acquire(
                    self._caller, self.site.shared, holding.size, job, job_start
                )
                shared_book.moved(holding, lease)
        except (Held, NotFound, WrongState) as error:
            book.release(holding.job)
            await self.refresh()
            raise Unavailable(f"job {holding.job}: {error}") from None
        except PodwrightError:
            book.release(holding.job)
            raise
