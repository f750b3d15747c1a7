"""Host mapping: a job gets the machines of its hosts, as an allocation of its own.

Slurm chooses hosts and knows nothing of machines (V-IPU guide, Table 6.1). When the job begins,
the machines of its hosts become the allocation `c<jobid>`, in which it makes the partitions that
it needs; when it ends they all go. What cannot be given back takes its hosts out of Slurm, with
the reason, until it can.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any, Final

from podwright.errors import InvalidRequest, NotFound, WrongState
from podwright.hosts import HostsError, expand
from podwright.slurm.pods.service import HookJob, Mapped, comment
from podwright.slurm.pods.service._job_calls import Busy
from podwright.slurm.pods.service._queue import listed
from podwright.slurm.pods.ways._base import Way, is_over
from podwright.slurm.pods.ways._partition_leases import partitions
from podwright.wire import (
    AllocationInfo,
    AllocationList,
    AllocationRequest,
    Empty,
    ListRequest,
    Named,
    RemoveRequest,
)

_log = logging.getLogger("podwright.slurm")
_NAME: Final = re.compile(r"c(\d+)")
#: The reasons of hosts that the hook took out since their machines did not come free.
_OUT: Final = re.compile(r"podwright: job (\d+)(?: refused|: no server)")


class HostMapping(Way):
    """Allocations of jobs. begun: job -> how often Slurm had restarted it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._hosts = {host.name: host for host in self.site.hosts}
        self._begun: dict[int, int] = {}
        self._clock = 0
        self._touched: dict[int, int] = {}
        self._held: dict[int, list[str]] = {}

    async def give(self, job: HookJob) -> str:
        """The allocation of the job's hosts."""
        number = job.job
        hosts = self.of_job(job.hosts)
        if not hosts:
            return ""
        cluster, machines = _together(hosts)
        name = f"c{number}"
        self._touch(number)
        there = {one.name: one for one in await self._allocations()}
        known = there.get(name)
        user = job.user
        if known is not None and (
            sorted(known.agents) != sorted(machines) or known.owner not in ("", user)
        ):
            # The job ran on other hosts before; or slurmctld forgot one of this number.
            await self._remove(known)
            known = None
        if known is None:
            await self._create(name, cluster, machines, user)
        self._begun[number] = job.restart or 0
        self._held[number] = list(machines)
        await comment(self.slurm, job, f"podwright: allocation={name}")
        return f"allocation={name}\n"

    async def take(self, job: HookJob) -> None:
        """The job's partitions and its allocation go. What stands in the way is decided: the
        hook takes the hosts out."""
        number = job.job
        if self._begun.get(number, 0) > (job.restart or 0):
            return
        self._touch(number)
        for one in await self._allocations():
            if one.name == f"c{number}":
                try:
                    await self._remove(one)
                except WrongState as error:
                    raise InvalidRequest(
                        f"the machines of {job.hosts} are not free: {error.problem}"
                    ) from None
        self._forget(number)

    async def unproven(self, job: HookJob) -> str:
        """Why a step's job does not hold its hosts' machines for this start; empty: it does, or
        none of its hosts has any."""
        number = job.job
        known = await self.listing.job(number)
        there = next((one for one in await self._allocations() if one.name == f"c{number}"), None)
        if there is None:
            self._held.pop(number, None)
            said = await self.slurm.run("squeue", "-h", "-a", "-j", str(number), "-o", "%N")
            hosts = "" if said.code else said.out.strip()
            return f"job {number} holds no allocation" if said.code or self.of_job(hosts) else ""
        self._held[number] = there.agents
        begun = self._begun.get(number)
        if known is not None and begun not in (None, known.restart):
            return f"job {number} holds nothing for this start, but for start {begun}"
        return ""

    def proven(self, job: HookJob) -> str:
        """Its allocation: its AdminComment, where that was noted, may have been written over."""
        return f"allocation=c{job.job}\n" if job.job in self._held else ""

    async def sweep(self) -> None:
        """Allocations of jobs that are over go, and hosts that waited for that come back."""
        since = self._clock
        found = await self._allocations()
        jobs = await listed(self.slurm)
        self._held = {}
        for one in found:
            said = _NAME.fullmatch(one.name)
            if said is None:
                continue
            job = int(said[1])
            self._held[job] = one.agents
            if is_over(job, jobs):
                async with self.lock(job):
                    if self._touched.get(job, 0) <= since:
                        await self._settle(job, one)
        self._touched = {job: at for job, at in self._touched.items() if at > since}
        await self._return_hosts()

    def state(self) -> dict[str, Any]:
        """Machines by job."""
        return {
            "mode": self.site.mode,
            "hosts": {host.name: list(host.machines) for host in self.site.hosts},
            "held": {str(job): machines for job, machines in self._held.items()},
            "swept": self.swept,
        }

    def of_job(self, hosts: str) -> list[Mapped]:
        """Those of a job's hosts that have machines. Raises InvalidRequest."""
        try:
            names = expand(hosts) if hosts else ()
        except HostsError as error:
            raise InvalidRequest(f"its hosts are not understood: {error}") from None
        return [self._hosts[name] for name in names if name in self._hosts]

    # -- inside ------------------------------------------------------------------------------

    def _touch(self, job: int) -> None:
        self._clock += 1
        self._touched[job] = self._clock

    def _forget(self, job: int) -> None:
        self._begun.pop(job, None)
        self._held.pop(job, None)

    async def _allocations(self) -> list[AllocationInfo]:
        """Allocations that lie wholly in machines of our hosts: others are not ours to touch."""
        ours = {machine for host in self.site.hosts for machine in host.machines}
        request = ListRequest()
        found = await self.server.call("ListAllocations", request, AllocationList)
        return [one for one in found.allocations if one.agents and ours.issuperset(one.agents)]

    async def _create(self, name: str, cluster: str, machines: Sequence[str], user: str) -> None:
        request = AllocationRequest(name=name, cluster=cluster, agents=list(machines), owner=user)
        try:
            await self.server.call("CreateAllocation", request, AllocationInfo)
        except WrongState as error:
            raise Busy(error.problem, would_work=error.would_work, asked=error.asked) from None

    async def _remove(self, one: AllocationInfo) -> None:
        """An allocation with all that is in it. Raises WrongState where devices stay behind."""
        await self._empty(one)
        try:
            await self.server.call("RemoveAllocation", Named(name=one.name), Empty)
        except NotFound:
            return

    async def _empty(self, one: AllocationInfo) -> None:
        """All partitions in an allocation go."""
        for info in await partitions(self.server, one.cluster, one.name):
            request = RemoveRequest(name=info.name, force=True)
            try:
                await self.server.call("RemovePartition", request, Empty)
            except NotFound:
                continue

    async def _settle(self, job: int, one: AllocationInfo) -> None:
        try:
            await self._remove(one)
        except WrongState as error:
            _log.warning("job %d is over, and its allocation stays: %s", job, error)
            return
        _log.warning("job %d is over and held %s", job, ", ".join(one.agents))
        self.swept += 1
        self._forget(job)
        await self.freed.tell()

    async def _return_hosts(self) -> None:
        """Hosts that only waited for a job's machines come back once those are free."""
        said = await self.slurm.run("sinfo", "-h", "-N", "-t", "drain", "-o", "%N|%E")
        names = set()
        for line in said.out.splitlines():
            name, _, reason = line.strip().partition("|")
            found = _OUT.match(reason)
            if found and int(found[1]) not in self._held:
                names.add(name)
        for name in sorted(names):
            _log.warning("host %s has its machines again", name)
            await self.slurm.run("scontrol", "update", f"nodename={name}", "state=resume")


def _together(hosts: Sequence[Mapped]) -> tuple[str, list[str]]:
    clusters = sorted({host.cluster for host in hosts})
    if len(clusters) > 1:
        raise InvalidRequest(
            f"its hosts' machines are in different clusters: {', '.join(clusters)}",
            would_work="hosts of one cluster, named with -w",
        )
    return clusters[0], [machine for host in hosts for machine in host.machines]
