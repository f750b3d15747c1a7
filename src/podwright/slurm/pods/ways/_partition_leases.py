"""Leases for jobs on partitions that were made beforehand: what both such ways stand on.

A job's lease is its user's, and names the job in words that everybody can read; so the server
knows by itself who holds what, and a new service finds it there. It is renewed while the job
lives. Its time to live is long: a service that is down for less than that costs no job anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from podwright.errors import Fenced
from podwright.slurm.pods.service import HookJob
from podwright.slurm.pods.service._job_start import JOB, Life, life
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
    """What the ways ask of the server; ThreadedServer is one. Raises wire.PodwrightError."""

    async def call(self, method: str, request: Value, reply: type[_V]) -> _V:
        """A call of podwright.v1."""
        ...


def holder(lease: LeaseInfo) -> Life | None:
    """The start of a job that a lease is for; None: it is none of ours."""
    if lease.parent or not lease.holder.startswith(JOB):
        return None
    return life(lease.holder.removeprefix(JOB))


async def partitions(
    server: ServerCaller, cluster: str = "", allocation: str = ""
) -> list[PartitionInfo]:
    """Partitions with their leases."""
    request = ListRequest(cluster=cluster, allocation=allocation)
    return (await server.call("ListPartitions", request, PartitionList)).partitions


async def acquire(
    server: ServerCaller, name: str, size: int, job: HookJob, who: Life
) -> tuple[LeaseInfo, PartitionInfo]:
    """A lease for a job. size: devices of a reconfigurable partition; 0: all of it."""
    request = AcquireRequest(
        spec=PartitionSpec(name=name, size=size),
        holder=JOB + who.words,
        ttl=TTL,
        owner=job.user,
        owner_uid=job.uid or 0,
    )
    reply = await server.call("Acquire", request, AcquireReply)
    return reply.lease, reply.partition


async def release(server: ServerCaller, lease: LeaseInfo) -> None:
    """A lease ends, if it has not yet."""
    try:
        await server.call("Release", LeaseRequest(id=lease.id, epoch=lease.epoch), Empty)
    except Fenced:
        return


async def renew(server: ServerCaller, lease: LeaseInfo) -> None:
    """A lease goes on. One that is over is the next look's matter."""
    try:
        await server.call("Renew", LeaseRequest(id=lease.id, epoch=lease.epoch), LeaseInfo)
    except Fenced:
        return


def handed(names: str, leases: Sequence[LeaseInfo], gcds: int = 1) -> str:
    """What a job's tasks are told, by its AdminComment; the SPANK plugin reads it."""
    ids = ",".join(lease.id for lease in leases)
    return f"podwright: partition={names} lease={ids} gcds={gcds}"
