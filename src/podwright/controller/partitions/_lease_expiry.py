"""Renews, releases and expires leases."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from podwright.controller.hardware import _fences as fences
from podwright.controller.hardware import _steps as steps
from podwright.controller.state._caller import Caller, Role, check_change
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._leases import HeldLease, descendants, lease_info_of
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._records import put_lease
from podwright.errors import Denied, Fenced, InvalidRequest
from podwright.wire import LeaseInfo, LeaseRequest

MAX_HOSTS = 4096  #: of one lease
MOST_LOST = 86400.0  #: seconds that a launch may say it loses by a move
MAX_NAME = 255  #: characters of a host's name, and of a launch's mark


def check_hosts(hosts: Sequence[str], action: str) -> None:
    """Raise InvalidRequest for malformed names of hosts."""
    if len(hosts) > MAX_HOSTS or any(
        not 0 < len(host) <= MAX_NAME or not host.isprintable() for host in hosts
    ):
        raise InvalidRequest(
            "these are not names of hosts",
            operation=action,
            would_work=f"use at most {MAX_HOSTS} names of at most {MAX_NAME} printable characters",
        )


async def renew(state: ControllerState, caller: Caller, request: LeaseRequest) -> LeaseInfo:
    """Move a lease's end to a full ttl from now. Raises Fenced when it is over.

    Costs no commit, unless it says something new: after a restart each lease has a full ttl again.
    """
    lease = own(state, caller, request.id, request.epoch, "renew")
    if not 0 <= request.move_seconds <= MOST_LOST:
        raise InvalidRequest(
            f"no move costs {request.move_seconds:g} s",
            operation=f"renew lease {request.id[:80]}",
            would_work=f"say what it costs, up to {MOST_LOST:g} s, or 0 where it cannot be moved",
        )
    lease.expires, lease.move_seconds = state.now() + lease.record.ttl, request.move_seconds
    if lease.late:
        lease.late = False
        state.leases.watch(lease)
    if request.hosts and tuple(request.hosts) != lease.record.hosts:
        check_hosts(request.hosts, f"renew lease {request.id[:80]}")
        changed = msgspec.structs.replace(lease.record, hosts=tuple(request.hosts))
        await state.journal.commit([put_lease(changed)])
        lease.record = changed
    record = state.partitions[lease.record.partition].known
    info = lease_info_of(lease, record.size, state.now())
    if state.journal.full is not None:  # whoever ended now could not move
        info = msgspec.structs.replace(info, move="", move_within=0.0)
    return info


async def release(state: ControllerState, caller: Caller, request: LeaseRequest) -> None:
    """End a lease and those in it; or say more about one that is over and FENCING.

    Raises Fenced when it is over for good, Denied.
    """
    action = f"release lease {request.id[:80]}"
    check_hosts(request.hosts, action)
    if request.force and caller.role is not Role.ADMINISTRATOR:
        raise Denied(
            f"you are {caller.name}, and only an administrator may say what nobody has seen",
            operation=action,
            would_work="leave out force: what is not confirmed is fenced, or waited for",
        )
    entry = state.find_fenced(caller, request.id)
    if entry is None:
        entry = state.partitions[
            own(state, caller, request.id, request.epoch, "release").record.partition
        ]
    await entry.lock.acquire()
    try:
        if request.id in entry.fences:
            await _say_more(state, caller, entry, request, action)
            return
        lease = own(state, caller, request.id, request.epoch, "release")
        leases = descendants(lease.record.id, entry.leases.values())
        if request.force or (request.confirmed and _all_gone(lease, request.hosts)):
            await steps.end_leases(state, entry, leases)
        else:
            released_hosts = request.hosts if request.confirmed else ()
            await fences.end(state, entry, leases, released_hosts=released_hosts)
    finally:
        entry.lock.release()


def _all_gone(lease: HeldLease, hosts: Sequence[str]) -> bool:
    """Whether these are all the hosts of a lease; if none is named, all are meant."""
    known = lease.record.hosts
    return not hosts or (bool(known) and set(known) <= set(hosts))


async def _say_more(
    state: ControllerState,
    caller: Caller,
    entry: PartitionEntry,
    request: LeaseRequest,
    action: str,
) -> None:
    fence = entry.fences[request.id]
    if fence.lease.epoch != request.epoch:
        raise over(request.id[:80], action)
    check_change(caller, fence.lease.owner, action, fence.lease.creator)
    if request.force:
        await fences.force(state, caller, entry, [fence])
        await fences.settle(state, entry)
    elif request.confirmed:
        await fences.confirm(state, entry, request.id, request.hosts)


async def expire(state: ControllerState, lease: HeldLease) -> None:
    """End a lease that has expired, unless it was renewed meanwhile."""
    entry = state.partitions.get(lease.record.partition)
    if entry is None:
        return
    await entry.lock.acquire()
    try:
        if lease.ending:
            return
        if lease.expires > state.now():
            state.leases.watch(lease)
            return
        if _goes_on(state, entry, lease):
            lease.late = True
            return
        state.record_event(
            "LeaseEnd", entry.name, lease.record.owner, f"{lease.record.id} was not renewed"
        )
        await fences.end(state, entry, descendants(lease.record.id, entry.leases.values()))
    finally:
        entry.lock.release()


def _goes_on(state: ControllerState, entry: PartitionEntry, lease: HeldLease) -> bool:
    """Whether a job's lease, or its partition, decides, which the job's scheduler keeps."""
    parent = state.leases.get(lease.record.parent)
    return bool(entry.known.job) or (parent is not None and not parent.ending)


def own(state: ControllerState, caller: Caller, name: str, epoch: int, verb: str) -> HeldLease:
    """A live lease of the caller's, by id and epoch. Raises Fenced or Denied."""
    action = f"{verb} lease {name[:80]}"
    lease = state.find_lease(caller, name)
    if lease is None or lease.ending or lease.record.epoch != epoch:
        raise over(name[:80], action)
    check_change(caller, lease.record.owner, action, lease.record.creator)
    if lease.record.creator and caller.role is Role.USER:
        raise Denied(
            f"{lease.record.creator} took it for {lease.record.holder}, and gives it back",
            operation=action,
            would_work="end that job, or leave the lease as it is",
        )
    return lease


def over(lease: str, action: str) -> Fenced:
    """The error for a lease that is not live."""
    return Fenced(
        "the lease is over: it was released, ran out, or was ended by force",
        operation=action,
        would_work="acquire a new one",
        lease=lease,
    )
