"""Leases for jobs on partitions that were made beforehand, for both ways that use such partitions.

A job's lease belongs to its user and names the job as text. So the server itself records who holds
what, and a new service reads it there. The lease is renewed while the job lives. Its time to live
is long: a service that is down for less than that costs no job its lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from podwright.errors import Fenced
from podwright.guests.slurm.service import HookJob
from podwright.guests.slurm.service._job_start_text import JOB, Life, life
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    Empty,
    LeaseInfo,
    LeaseRequest,
    ListRequest,
    PartitionInfo,
    PartitionList,
    PartitionSpec,
    Value,
)

TTL: Final = 3600.0

_V = TypeVar("_V", bound=Value)


class ServerCaller(Protocol):
    """What the ways of scheduling ask of the server; ThreadedServer is one. Raises
    wire.PodwrightError.
    """

    async def call(self, method: str, request: Value, reply: type[_V]) -> _V:
        """Call a method of podwright.v1."""
        ...


def holder(lease: LeaseInfo) -> Life | None:
    """Return the start of a job that a lease is for, or None if it is none of ours."""
    if lease.parent or not lease.holder.startswith(JOB):
        return None
    return life(lease.holder.removeprefix(JOB))


async def partitions(
    server: ServerCaller, cluster: str = "", allocation: str = ""
) -> list[PartitionInfo]:
    """Return the partitions with their leases."""
    request = ListRequest(cluster=cluster, allocation=allocation)
    return (await server.call("ListPartitions", request, PartitionList)).partitions


async def acquire(
    server: ServerCaller, partition_name: str, size: int, job: HookJob, job_start: Life
) -> tuple[LeaseInfo, PartitionInfo]:
    """Acquire a lease for a job. size: devices of a reconfigurable partition; 0: the whole
    partition.
    """
    request = AcquireRequest(
        spec=PartitionSpec(name=partition_name, size=size),
        holder=JOB + job_start.words,
        ttl=TTL,
        owner=job.user,
        owner_uid=job.uid or 0,
    )
    reply = await server.call("Acquire", request, AcquireReply)
    return reply.lease, reply.partition


async def release(server: ServerCaller, lease: LeaseInfo) -> None:
    """End a lease, if it has not ended yet."""
    try:
        await server.call("Release", LeaseRequest(id=lease.id, epoch=lease.epoch), Empty)
    except Fenced:
        return


async def renew(server: ServerCaller, lease: LeaseInfo) -> None:
    """Renew a lease. One that has ended is ignored here; the next look at the server's list finds
    out.
    """
    try:
        await server.call("Renew", LeaseRequest(id=lease.id, epoch=lease.epoch), LeaseInfo)
    except Fenced:
        return


def lease_comment(partition_names: str, leases: Sequence[LeaseInfo], gcd_count: int = 1) -> str:
    """Return the text for a job's AdminComment, from which the SPANK plugin tells the job's tasks
    what they hold.
    """
    lease_ids = ",".join(lease.id for lease in leases)
    return f"podwright: partition={partition_names} lease={lease_ids} gcds={gcd_count}"
