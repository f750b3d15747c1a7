"""How leases go on and end: renewed, released by their holder, or run out."""

from __future__ import annotations

from podwright.controller import _steps as steps
from podwright.controller._caller import Caller, Role, check_change
from podwright.controller._core import Core
from podwright.controller._leases import Lease, descendants, to_info
from podwright.wire import Denied, Fenced, LeaseInfo, LeaseRequest


def renew(core: Core, caller: Caller, request: LeaseRequest) -> LeaseInfo:
    """Move a lease's end to a full ttl from now. Raises Fenced when it is over.

    Costs no commit: after a restart each lease has a full ttl again.
    """
    lease = _own(core, caller, request, "renew")
    lease.expires = core.now() + lease.record.ttl
    record = core.partitions[lease.record.partition].known
    return to_info(lease, record.size, core.now())


async def release(core: Core, caller: Caller, request: LeaseRequest) -> None:
    """End a lease and those in it. Raises Fenced when it is over."""
    lease = _own(core, caller, request, "release")
    entry = core.partitions[lease.record.partition]
    await entry.lock.acquire()
    try:
        _own(core, caller, request, "release")
        await steps.end_leases(core, entry, descendants(lease.record.id, entry.leases.values()))
    finally:
        entry.lock.release()


async def expire(core: Core, lease: Lease) -> None:
    """End a lease whose time has come, unless it was renewed at the last moment."""
    entry = core.partitions.get(lease.record.partition)
    if entry is None:
        return
    await entry.lock.acquire()
    try:
        if lease.ending:
            return
        if lease.expires > core.now():
            core.expiries.add(lease, core.leases)
            return
        core.tell("LeaseEnd", entry.name, lease.record.owner, f"{lease.record.id} was not renewed")
        await steps.end_leases(core, entry, descendants(lease.record.id, entry.leases.values()))
    finally:
        entry.lock.release()


def _own(core: Core, caller: Caller, request: LeaseRequest, verb: str) -> Lease:
    """A live lease of the caller's, by id and epoch. Raises Fenced or Denied."""
    asked = f"{verb} lease {request.id[:80]}"
    lease = core.leases.get(request.id)
    if lease is None or lease.ending or lease.record.epoch != request.epoch:
        raise over(request.id[:80], asked)
    check_change(caller, lease.record.owner, asked, lease.record.creator)
    if lease.record.creator and caller.role is Role.USER:
        raise Denied(
            f"{lease.record.creator} took it for {lease.record.holder}, and gives it back",
            asked=asked,
            would_work="end that job, or leave the lease as it is",
        )
    return lease


def over(lease: str, asked: str) -> Fenced:
    """The refusal for a lease that is not live."""
    return Fenced(
        "the lease is over: it was released, ran out, or was ended by force",
        asked=asked,
        would_work="acquire a new one",
        lease=lease,
    )
