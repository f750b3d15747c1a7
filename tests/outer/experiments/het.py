"""Heterogeneous jobs, one at a time: Slurm tests each component alone and then starts all.

So their devices are set aside first, all or none, and only then may Slurm start the job: its
leader waits for a licence that nobody ever gets, and is given the real count instead. A job that
Slurm did not start within the window (no nodes, say) loses what was set aside and waits again.
"""

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.outer.experiments.standin import StandIn

WAIT = "ipu_het_wait:1"
FORMAT = "HetJobID:12,HetJobOffset:8,JobID:12,PriorityLong:14,admin_comment:40"


class Heterogeneous:
    def __init__(self, server: "StandIn", *, window: float = 10.0) -> None:
        self._server = server
        self._window = window
        self.components: set[int] = set()  # those that hold devices without block licences
        self._reserving: tuple[int, dict[int, int]] | None = None  # set aside, not yet offered

    def give_way(self, job: int, devices: int) -> bool:
        """A job that Slurm had already started comes first: what is only reserved goes back."""
        if self._reserving is None:
            return False
        self._drop(self._reserving[1])
        self._reserving = None
        return self._server.pod.take(job, devices)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.3)
            waiting = await self._waiting()
            for leader in sorted(waiting, key=lambda one: -waiting[one][0]):
                parts = waiting[leader][1]
                if await self._reserve(leader, parts):
                    await self._offer(leader, parts)
                    break

    async def _waiting(self) -> dict[int, tuple[int, dict[int, int]]]:
        found: dict[int, tuple[int, dict[int, int]]] = {}
        for line in (
            await self._server.slurm("squeue", "-h", "-t", "PD", "-O", FORMAT)
        ).splitlines():
            words = line.split()
            if len(words) == 5 and words[0].isdigit() and words[4].startswith("ipus="):
                job = found.setdefault(int(words[0]), (int(words[3]), {}))
                job[1][int(words[2])] = int(words[4].removeprefix("ipus="))
        return found

    async def _reserve(self, leader: int, parts: dict[int, int]) -> bool:
        """Sets the devices aside, and makes sure that no job already started was promised them."""
        pod = self._server.pod
        for job, devices in sorted(parts.items(), key=lambda one: -one[1]):
            if not pod.take(job, devices):
                self._drop(parts)
                return False
        self.components |= set(parts)
        self._reserving = (leader, parts)
        await self._server.synced()
        while self._reserving:
            known = pod.used(but=self.components)
            show = await self._server.slurm("scontrol", "-o", "show", "lic", "ipu_x1")
            if int(show.partition("Used=")[2].split()[0]) <= known:
                self._reserving = None
                return True
            await asyncio.sleep(0.05)
        await self._server.synced()
        return False

    async def _offer(self, leader: int, parts: dict[int, int]) -> None:
        total = sum(parts.values())
        self._server.write("offered", leader, devices=total)
        await self._server.slurm("scontrol", "update", f"jobid={leader}+0", f"licenses=ipu:{total}")
        deadline = time.monotonic() + self._window
        while time.monotonic() < deadline:
            if leader not in await self._waiting():
                return
            await asyncio.sleep(0.2)
        await self._server.slurm("scontrol", "update", f"jobid={leader}+0", f"licenses={WAIT}")
        await asyncio.sleep(0.1)
        if leader in await self._waiting():
            self._drop(parts)
            self._server.write("offer ended", leader)
            await self._server.synced()

    def _drop(self, parts: dict[int, int]) -> None:
        for job in parts:
            self._server.pod.release(job)
            self.components.discard(job)
