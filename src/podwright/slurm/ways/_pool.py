"""Leases for jobs on partitions that were made beforehand: what both such ways stand on.

A job's lease is its user's, and names the job in words that everybody can read; so the server
knows by itself who holds what, and a new service finds it there. It is renewed while the job
lives. Its time to live is long: a service that is down for less than that costs no job anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from podwright.slurm.service import Asked
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    Empty,
    Fenced,
    LeaseInfo,
    LeaseRequest,
    ListRequest,
    PartitionInfo,
    PartitionList,
    PartitionSpec,
    Value,
)

TTL: Final = 3600.0
_HOLDER: Final = re.compile(r"Slurm job (\d+)(?:/(\d+))?(?: of (\d+))?")

_V = TypeVar("_V", bound=Value)


class Caller(Protocol):
    """What the ways ask of the server; ThreadedServer is one. Raises wire.PodwrightError."""

    async def call(self, method: str, request: Value, reply: type[_V]) -> _V:
        """A call of podwright.v1."""
        ...


class Holder(NamedTuple):
    """Whom a lease is for. leader: of the heterogeneous job that it is a component of, or 0."""

    job: int
    restart: int
    leader: int = 0

    @property
    def words(self) -> str:
        """As the lease carries it."""
        again = f"/{self.restart}" if self.restart else ""
        return f"Slurm job {self.job}{again}" + (f" of {self.leader}" if self.leader else "")


def holder(lease: LeaseInfo) -> Holder | None:
    """The job that a lease is for; None: it is none of ours."""
    said = _HOLDER.fullmatch(lease.holder)
    if said is None or lease.parent:
        return None
    return Holder(int(said[1]), int(said[2] or 0), int(said[3] or 0))


async def partitions(
    server: Caller, cluster: str = "", allocation: str = ""
) -> list[PartitionInfo]:
    """Partitions with their leases."""
    request = ListRequest(cluster=cluster, allocation=allocation)
    return (await server.call("ListPartitions", request, PartitionList)).partitions


async def acquire(
    server: Caller, name: str, size: int, asked: Asked, who: Holder
) -> tuple[LeaseInfo, PartitionInfo]:
    """A lease for a job. size: devices of a reconfigurable partition; 0: all of it."""
    request = AcquireRequest(
        spec=PartitionSpec(name=name, size=size),
        holder=who.words,
        ttl=TTL,
        owner=asked.user or asked.uid,
        owner_uid=asked.number("uid"),
    )
    reply = await server.call("Acquire", request, AcquireReply)
    return reply.lease, reply.partition


async def release(server: Caller, lease: LeaseInfo) -> None:
    """A lease ends, if it has not yet."""
    try:
        await server.call("Release", LeaseRequest(id=lease.id, epoch=lease.epoch), Empty)
    except Fenced:
        return


async def renew(server: Caller, lease: LeaseInfo) -> None:
    """A lease goes on. One that is over is the next look's matter."""
    try:
        await server.call("Renew", LeaseRequest(id=lease.id, epoch=lease.epoch), LeaseInfo)
    except Fenced:
        return


def handed(names: str, leases: Sequence[LeaseInfo], gcds: int = 1) -> str:
    """What a job's tasks are told, by its AdminComment; the SPANK plugin reads it."""
    ids = ",".join(lease.id for lease in leases)
    return f"podwright: partition={names} lease={ids} gcds={gcds}"
