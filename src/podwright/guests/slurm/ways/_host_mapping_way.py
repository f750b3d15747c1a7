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
from podwright.guests.slurm.service._hook_calls import Busy
from podwright.guests.slurm.service._squeue_jobs import listed
from podwright.guests.slurm.ways._base_way import SchedulingWay, is_over
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
_ALLOCATION_NAME: Final = re.compile(r"c(\d+)")
_NODE_LIST_WIDTHS: Final = {"node_list": 60000}
_DRAINED: Final = ("node", "reason")
#: The reasons with which the hook drains hosts whose machines did not come free.
_HOOK_DRAIN_REASON: Final = re.compile(r"podwright: job (\d+)(?: refused|: no server)")


class HostMapping(SchedulingWay):
    """Each job gets an allocation of its own, with the machines of its hosts."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._hosts = {host.name: host for host in self.site.hosts}
        self._restarts: dict[int, int] = {}  # job -> how often Slurm had restarted it
        self._clock = 0
        self._touch_times: dict[int, int] = {}
        self._machines: dict[int, list[str]] = {}

    async def give(self, job: HookJob) -> str:
        """Make the allocation of the job's hosts, unless it exists, and return its name, in a
        line.
        """
        job_number = job.job
        mapped_hosts = self.of_job(job.hosts)
        if not mapped_hosts:
            return ""
        cluster, machines = _cluster_and_machines(mapped_hosts)
        allocation_name = f"c{job_number}"
        self._note_job_change(job_number)
        allocations_by_name = {
            allocation.name: allocation for allocation in await self._mapped_host_allocations()
        }
        existing_allocation = allocations_by_name.get(allocation_name)
        user = job.user
        if existing_allocation is not None and (
            sorted(existing_allocation.agents) != sorted(machines)
            or existing_allocation.owner not in ("", user)
        ):
            # The job ran on other hosts before, or slurmctld forgot an earlier job of this number.
            await self._remove_allocation(existing_allocation)
            existing_allocation = None
        if existing_allocation is None:
            await self._create_allocation(allocation_name, cluster, machines, user)
        self._restarts[job_number] = job.restart or 0
        self._machines[job_number] = list(machines)
        await comment(self.slurm, job, f"podwright: allocation={allocation_name}")
        return f"allocation={allocation_name}\n"

    async def take(self, job: HookJob) -> None:
        """Remove the job's partitions and its allocation.

        Raises InvalidRequest where that fails. This is final for the hook, which then drains the
        hosts.
        """
        job_number = job.job
        if self._restarts.get(job_number, 0) > (job.restart or 0):
            return
        self._note_job_change(job_number)
        for allocation in await self._mapped_host_allocations():
            if allocation.name == f"c{job_number}":
                try:
                    await self._remove_allocation(allocation)
                except WrongState as error:
                    raise InvalidRequest(
                        f"the machines of {job.hosts} are not free: {error.problem}"
                    ) from None
        self._forget_job(job_number)

    async def unproven(self, job: HookJob) -> str:
        """Return why a step's job does not hold its hosts' machines for this start.

        Returns "" if it does, or if none of its hosts has machines.
        """
        job_number = job.job
        listed_job = await self.listing.job(job_number)
        allocation = next(
            (
                candidate
                for candidate in await self._mapped_host_allocations()
                if candidate.name == f"c{job_number}"
            ),
            None,
        )
        if allocation is None:
            self._machines.pop(job_number, None)
            squeue_arguments = ("-j", str(job_number), "-O", listing_format(**_NODE_LIST_WIDTHS))
            squeue_reply = await self.slurm.run("squeue", "-h", "-a", *squeue_arguments)
            listing_rows = (
                [] if squeue_reply.code else read_listing(squeue_reply.out, **_NODE_LIST_WIDTHS)
            )
            host_list = listing_rows[0]["node_list"] if listing_rows else ""
            return (
                f"job {job_number} holds no allocation"
                if squeue_reply.code or self.of_job(host_list)
                else ""
            )
        self._machines[job_number] = allocation.agents
        restart_count = self._restarts.get(job_number)
        if listed_job is not None and restart_count not in (None, listed_job.restart):
            return f"job {job_number} holds nothing for this start, but for start {restart_count}"
        return ""

    def step_lines(self, job: HookJob) -> str:
        """Return the job's allocation, in a line. Its AdminComment says it too, but may have been
        overwritten.
        """
        return f"allocation=c{job.job}\n" if job.job in self._machines else ""

    async def sweep(self) -> None:
        """Remove allocations of jobs that are over, and resume hosts that waited for that."""
        sweep_start = self._clock
        allocations = await self._mapped_host_allocations()
        jobs = await listed(self.slurm)
        self._machines = {}
        for allocation in allocations:
            name_match = _ALLOCATION_NAME.fullmatch(allocation.name)
            if name_match is None:
                continue
            job_number = int(name_match[1])
            self._machines[job_number] = allocation.agents
            if is_over(job_number, jobs):
                async with self.lock(job_number):
                    if self._touch_times.get(job_number, 0) <= sweep_start:
                        await self._remove_ended_allocation(job_number, allocation)
        self._touch_times = {
            number: touched_at
            for number, touched_at in self._touch_times.items()
            if touched_at > sweep_start
        }
        await self._resume_hosts()

    def state(self) -> dict[str, Any]:
        """Return the machines of each job."""
        return {
            "mode": self.site.mode,
            "hosts": {host.name: list(host.machines) for host in self.site.hosts},
            "held": {str(number): machines for number, machines in self._machines.items()},
            "swept": self.swept,
        }

    def of_job(self, host_list: str) -> list[Mapped]:
        """Return those of a job's hosts that have machines. Raises InvalidRequest."""
        try:
            host_names = expand(host_list) if host_list else ()
        except HostsError as error:
            raise InvalidRequest(f"its hosts are not understood: {error}") from None
        return [self._hosts[name] for name in host_names if name in self._hosts]

    # -- inside ------------------------------------------------------------------------------

    def _note_job_change(self, job_number: int) -> None:
        self._clock += 1
        self._touch_times[job_number] = self._clock

    def _forget_job(self, job_number: int) -> None:
        self._restarts.pop(job_number, None)
        self._machines.pop(job_number, None)

    async def _mapped_host_allocations(self) -> list[AllocationInfo]:
        """Return the allocations that consist of machines of our hosts alone. Others must not be
        touched.
        """
        mapped_machines = {machine for host in self.site.hosts for machine in host.machines}
        request = ListRequest()
        reply = await self.server.call("ListAllocations", request, AllocationList)
        return [
            allocation
            for allocation in reply.allocations
            if allocation.agents and mapped_machines.issuperset(allocation.agents)
        ]

    async def _create_allocation(
        self, allocation_name: str, cluster: str, machines: Sequence[str], user: str
    ) -> None:
        request = AllocationRequest(
            name=allocation_name, cluster=cluster, agents=list(machines), owner=user
        )
        try:
            await self.server.call("CreateAllocation", request, AllocationInfo)
        except WrongState as error:
            raise Busy(
                error.problem, would_work=error.would_work, operation=error.operation
            ) from None

    async def _remove_allocation(self, allocation: AllocationInfo) -> None:
        """Remove an allocation with all that is in it. Raises WrongState where devices stay
        behind.
        """
        await self._remove_partitions_in(allocation)
        try:
            await self.server.call("RemoveAllocation", Named(name=allocation.name), Empty)
        except NotFound:
            return

    async def _remove_partitions_in(self, allocation: AllocationInfo) -> None:
        for partition in await partitions(self.server, allocation.cluster, allocation.name):
            request = RemoveRequest(name=partition.name, force=True)
            try:
                await self.server.call("RemovePartition", request, Empty)
            except NotFound:
                continue

    async def _remove_ended_allocation(self, job_number: int, allocation: AllocationInfo) -> None:
        try:
            await self._remove_allocation(allocation)
        except WrongState as error:
            _log.warning("job %d is over, and its allocation stays: %s", job_number, error)
            return
        _log.warning("job %d is over and held %s", job_number, ", ".join(allocation.agents))
        self.swept += 1
        self._forget_job(job_number)
        await self.freed.notify()

    async def _resume_hosts(self) -> None:
        """Resume hosts that were drained because of a job's machines, once those are free."""
        reply = await self.slurm.run(*node_listing_command(*_DRAINED), "-t", "drain")
        freed_hosts = set()
        for row in read_node_listing(reply.out, *_DRAINED):
            reason_match = _HOOK_DRAIN_REASON.match(row["reason"])
            if reason_match and int(reason_match[1]) not in self._machines:
                freed_hosts.add(row["node"])
        for name in sorted(freed_hosts):
            _log.warning("host %s has its machines again", name)
            await self.slurm.run("scontrol", "update", f"nodename={name}", "state=resume")


def _cluster_and_machines(mapped_hosts: Sequence[Mapped]) -> tuple[str, list[str]]:
    clusters = sorted({host.cluster for host in mapped_hosts})
    if len(clusters) > 1:
        raise InvalidRequest(
            f"its hosts' machines are in different clusters: {', '.join(clusters)}",
            would_work="name hosts of one cluster with -w",
        )
    return clusters[0], [machine for host in mapped_hosts for machine in host.machines]
