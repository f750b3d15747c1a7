"""Host mapping: a job gets the machines of its hosts, as an allocation of its own.

Slurm chooses hosts and knows nothing of machines (V-IPU guide, Table 6.1). When the job begins, the
machines of its hosts become the allocation `c<jobid>`, in which the job makes the partitions that
it needs. When the job ends, its partitions and the allocation are removed. Where that fails, Slurm
drains the hosts, with the reason, until it succeeds.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any, Final

from podwright.errors import InvalidRequest, NotFound, WrongState
from podwright.guests.slurm.service import HookJob, Mapped, comment
from podwright.guests.slurm.service._job_calls import Busy
from podwright.guests.slurm.service._queue import listed
from podwright.guests.slurm.ways._base import Way, is_over
from podwright.guests.slurm.ways._partition_leases import partitions
from podwright.hosts import HostsError, expand
from podwright.slurm.reader import (
    listing_format,
    node_listing_command,
    read_listing,
    read_node_listing,
)
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
_HOSTS: Final = {"node_list": 60000}
_DRAINED: Final = ("node", "reason")
#: The reasons with which the hook drains hosts whose machines did not come free.
_OUT: Final = re.compile(r"podwright: job (\d+)(?: refused|: no server)")


class HostMapping(Way):
    """Each job gets an allocation of its own, with the machines of its hosts."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._hosts = {host.name: host for host in self.site.hosts}
        self._restarts: dict[int, int] = {}  # job -> how often Slurm had restarted it
        self._clock = 0
        self._touched: dict[int, int] = {}
        self._machines: dict[int, list[str]] = {}

    async def give(self, job: HookJob) -> str:
        """Make the allocation of the job's hosts, unless it exists, and return its name, in a
        line.
        """
        number = job.job
        hosts = self.of_job(job.hosts)
        if not hosts:
            return ""
        cluster, machines = _together(hosts)
        name = f"c{number}"
        self._touch(number)
        allocations = {allocation.name: allocation for allocation in await self._allocations()}
        known = allocations.get(name)
        user = job.user
        if known is not None and (
            sorted(known.agents) != sorted(machines) or known.owner not in ("", user)
        ):
            # The job ran on other hosts before, or slurmctld forgot an earlier job of this number.
            await self._remove(known)
            known = None
        if known is None:
            await self._create(name, cluster, machines, user)
        self._restarts[number] = job.restart or 0
        self._machines[number] = list(machines)
        await comment(self.slurm, job, f"podwright: allocation={name}")
        return f"allocation={name}\n"

    async def take(self, job: HookJob) -> None:
        """Remove the job's partitions and its allocation.

        Raises InvalidRequest where that fails. This is final for the hook, which then drains the
        hosts.
        """
        number = job.job
        if self._restarts.get(number, 0) > (job.restart or 0):
            return
        self._touch(number)
        for allocation in await self._allocations():
            if allocation.name == f"c{number}":
                try:
                    await self._remove(allocation)
                except WrongState as error:
                    raise InvalidRequest(
                        f"the machines of {job.hosts} are not free: {error.problem}"
                    ) from None
        self._forget(number)

    async def unproven(self, job: HookJob) -> str:
        """Return why a step's job does not hold its hosts' machines for this start.

        Returns "" if it does, or if none of its hosts has machines.
        """
        number = job.job
        known = await self.listing.job(number)
        allocation = next(
            (entry for entry in await self._allocations() if entry.name == f"c{number}"), None
        )
        if allocation is None:
            self._machines.pop(number, None)
            of_it = ("-j", str(number), "-O", listing_format(**_HOSTS))
            reply = await self.slurm.run("squeue", "-h", "-a", *of_it)
            rows = [] if reply.code else read_listing(reply.out, **_HOSTS)
            hosts = rows[0]["node_list"] if rows else ""
            return f"job {number} holds no allocation" if reply.code or self.of_job(hosts) else ""
        self._machines[number] = allocation.agents
        restarts = self._restarts.get(number)
        if known is not None and restarts not in (None, known.restart):
            return f"job {number} holds nothing for this start, but for start {restarts}"
        return ""

    def step_lines(self, job: HookJob) -> str:
        """Return the job's allocation, in a line. Its AdminComment says it too, but may have been
        overwritten.
        """
        return f"allocation=c{job.job}\n" if job.job in self._machines else ""

    async def sweep(self) -> None:
        """Remove allocations of jobs that are over, and resume hosts that waited for that."""
        since = self._clock
        allocations = await self._allocations()
        jobs = await listed(self.slurm)
        self._machines = {}
        for allocation in allocations:
            match = _NAME.fullmatch(allocation.name)
            if match is None:
                continue
            job = int(match[1])
            self._machines[job] = allocation.agents
            if is_over(job, jobs):
                async with self.lock(job):
                    if self._touched.get(job, 0) <= since:
                        await self._settle(job, allocation)
        self._touched = {
            job: touched_at for job, touched_at in self._touched.items() if touched_at > since
        }
        await self._return_hosts()

    def state(self) -> dict[str, Any]:
        """Return the machines of each job."""
        return {
            "mode": self.site.mode,
            "hosts": {host.name: list(host.machines) for host in self.site.hosts},
            "held": {str(job): machines for job, machines in self._machines.items()},
            "swept": self.swept,
        }

    def of_job(self, hosts: str) -> list[Mapped]:
        """Return those of a job's hosts that have machines. Raises InvalidRequest."""
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
        self._restarts.pop(job, None)
        self._machines.pop(job, None)

    async def _allocations(self) -> list[AllocationInfo]:
        """Return the allocations that consist of machines of our hosts alone. Others must not be
        touched.
        """
        ours = {machine for host in self.site.hosts for machine in host.machines}
        request = ListRequest()
        reply = await self.server.call("ListAllocations", request, AllocationList)
        return [
            allocation
            for allocation in reply.allocations
            if allocation.agents and ours.issuperset(allocation.agents)
        ]

    async def _create(self, name: str, cluster: str, machines: Sequence[str], user: str) -> None:
        request = AllocationRequest(name=name, cluster=cluster, agents=list(machines), owner=user)
        try:
            await self.server.call("CreateAllocation", request, AllocationInfo)
        except WrongState as error:
            raise Busy(
                error.problem, would_work=error.would_work, operation=error.operation
            ) from None

    async def _remove(self, allocation: AllocationInfo) -> None:
        """Remove an allocation with all that is in it. Raises WrongState where devices stay
        behind.
        """
        await self._empty(allocation)
        try:
            await self.server.call("RemoveAllocation", Named(name=allocation.name), Empty)
        except NotFound:
            return

    async def _empty(self, allocation: AllocationInfo) -> None:
        """Remove all partitions in an allocation."""
        for info in await partitions(self.server, allocation.cluster, allocation.name):
            request = RemoveRequest(name=info.name, force=True)
            try:
                await self.server.call("RemovePartition", request, Empty)
            except NotFound:
                continue

    async def _settle(self, job: int, allocation: AllocationInfo) -> None:
        try:
            await self._remove(allocation)
        except WrongState as error:
            _log.warning("job %d is over, and its allocation stays: %s", job, error)
            return
        _log.warning("job %d is over and held %s", job, ", ".join(allocation.agents))
        self.swept += 1
        self._forget(job)
        await self.freed.notify()

    async def _return_hosts(self) -> None:
        """Resume hosts that were drained because of a job's machines, once those are free."""
        reply = await self.slurm.run(*node_listing_command(*_DRAINED), "-t", "drain")
        names = set()
        for row in read_node_listing(reply.out, *_DRAINED):
            match = _OUT.match(row["reason"])
            if match and int(match[1]) not in self._machines:
                names.add(row["node"])
        for name in sorted(names):
            _log.warning("host %s has its machines again", name)
            await self.slurm.run("scontrol", "update", f"nodename={name}", "state=resume")


def _together(hosts: Sequence[Mapped]) -> tuple[str, list[str]]:
    clusters = sorted({host.cluster for host in hosts})
    if len(clusters) > 1:
        raise InvalidRequest(
            f"its hosts' machines are in different clusters: {', '.join(clusters)}",
            would_work="name hosts of one cluster with -w",
        )
    return clusters[0], [machine for host in hosts for machine in host.machines]
