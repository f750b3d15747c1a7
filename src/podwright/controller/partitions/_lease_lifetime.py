"""Renews, releases and expires leases."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from podwright.controller.hardware import _fences as fences
from podwright.controller.hardware import _partition_steps as steps
from podwright.controller.state._caller import Caller, Role, check_change
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._leases import HeldLease, descendants, lease_info_of
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._records import put_lease
from podwright.errors import Denied, Fenced, InvalidRequest
from podwright.wire import LeaseInfo, LeaseRequest

MAX_HOSTS = 4096  #: of one lease
MAX_MOVE_SECONDS = 86400.0  #: seconds that a launch may say it loses by a move
MAX_NAME_LENGTH = 255  #: characters of a host's name, and of a launch's mark


def check_hosts(hosts: Sequence[str], action: str) -> None:
    """Raise InvalidRequest for malformed names of hosts."""
    if len(hosts) > MAX_HOSTS or any(
        not 0 < len(host) <= MAX_NAME_LENGTH or not host.isprintable() for host in hosts
    ):
        raise InvalidRequest(
            "these are not names of hosts",
            operation=action,
            would_work=f"use at most {MAX_HOSTS} names of at most {MAX_NAME_LENGTH} printable "
            "characters",
        )


async def renew(state: ControllerState, caller: Caller, request: LeaseRequest) -> LeaseInfo:
    """Move a lease's end to a full ttl from now. Raises Fenced when it is over.

    Costs no commit, unless it says something new: after a restart each lease has a full ttl again.
    """
    lease = own(state, caller, request.id, request.epoch, "renew")
    if not 0 <= request.move_seconds <= MAX_MOVE_SECONDS:
        raise InvalidRequest(
            f"no move costs {request.move_seconds:g} s",
            operation=f"renew lease {request.id[:80]}",
            would_work=f"say what it costs, up to {MAX_MOVE_SECONDS:g} s, or 0 where it cannot be "
            "moved",
        )
    lease.expires, lease.move_seconds = state.now() + lease.record.ttl, request.move_seconds
    if lease.late:
        lease.late = False
        state.leases.watch(lease)
    if request.hosts and tuple(request.hosts) != lease.record.hosts:
        check_hosts(request.hosts, f"renew lease {request.id[:80]}")
        changed_record = msgspec.structs.replace(lease.record, hosts=tuple(request.hosts))
        await state.journal.commit([put_lease(changed_record)])
        lease.record = changed_record
    partition_record = state.partitions[lease.record.partition].known
    lease_info = lease_info_of(lease, partition_record.size, state.now())
    if partition_record.errors:
        lease_info = msgspec.structs.replace(lease_info, errors=list(partition_record.errors))
    if state.journal.full is not None:  # whoever ended now could not move
        lease_info = msgspec.structs.replace(lease_info, move="", move_within=0.0)
    return lease_info


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
    partition_entry = state.find_fenced(caller, request.id)
    if partition_entry is None:
        partition_entry = state.partitions[
            own(state, caller, request.id, request.epoch, "release").record.partition
        ]
    await partition_entry.lock.acquire()
    try:
        if request.id in partition_entry.fences:
            await _update_fence(state, caller, partition_entry, request, action)
            return
        lease = own(state, caller, request.id, request.epoch, "release")
        leases = descendants(lease.record.id, partition_entry.leases.values())
        if request.force or (request.confirmed and _all_hosts_ended(lease, request.hosts)):
            await steps.end_leases(state, partition_entry, leases)
        else:
            released_hosts = request.hosts if request.confirmed else ()
            await fences.end(state, partition_entry, leases, released_hosts=released_hosts)
    finally:
        partition_entry.lock.release()


def _all_hosts_ended(lease: HeldLease, ended_hosts: Sequence[str]) -> bool:
    """Whether these are all the hosts of a lease; if none is named, all are meant."""
    lease_hosts = lease.record.hosts
    return not ended_hosts or (bool(lease_hosts) and set(lease_hosts) <= set(ended_hosts))


async def _update_fence(
    state: ControllerState,
    caller: Caller,
    partition_entry: PartitionEntry,
    request: LeaseRequest,
    action: str,
) -> None:
    fence = partition_entry.fences[request.id]
    if fence.lease.epoch != request.epoch:
        raise over(request.id[:80], action)
    check_change(caller, fence.lease.owner, action, fence.lease.creator)
    if request.force:
        await fences.force(state, caller, partition_entry, [fence])
        await fences.settle(state, partition_entry)
    elif request.confirmed:
        await fences.confirm_clean_hosts(state, partition_entry, request.id, request.hosts)


async def expire(state: ControllerState, lease: HeldLease) -> None:
    """End a lease that has expired, unless it was renewed meanwhile."""
    partition_entry = state.partitions.get(lease.record.partition)
    if partition_entry is None:
        return
    await partition_entry.lock.acquire()
    try:
        if lease.ending:
            return
        if lease.expires > state.now():
            state.leases.watch(lease)
            return
        if _scheduler_decides(state, partition_entry, lease):
            lease.late = True
            return
        state.record_event(
            "LeaseEnd",
            partition_entry.name,
            lease.record.owner,
            f"{lease.record.id} was not renewed",
        )
        await fences.end(
            state, partition_entry, descendants(lease.record.id, partition_entry.leases.values())
        )
    finally:
        partition_entry.lock.release()


def _scheduler_decides(
    state: ControllerState, partition_entry: PartitionEntry, lease: HeldLease
) -> bool:
    """Whether a job's lease, or its partition, decides, which the job's scheduler keeps."""
    parent_lease = state.leases.get(lease.record.parent)
    return bool(partition_entry.known.job) or (parent_lease is not None and not parent_lease.ending)


def own(state: ControllerState, caller: Caller, lease_id: str, epoch: int, verb: str) -> HeldLease:
    """A live lease of the caller's, by id and epoch. Raises Fenced or Denied."""
    action = f"{verb} lease {lease_id[:80]}"
    lease = state.find_lease(caller, lease_id)
    if lease is None or lease.ending or lease.record.epoch != epoch:
        raise over(lease_id[:80], action)
    check_change(caller, lease.record.owner, action, lease.record.creator)
    if lease.record.creator and caller.role is Role.USER:
        raise Denied(
            f"{lease.record.creator} took it for {lease.record.holder}, and gives it back",
            operation=action,
            would_work="end that job, or leave the lease as it is",
        )
    return lease


def over(lease_id: str, action: str) -> Fenced:
    """The error for a lease that is not live."""
    return Fenced(
        "the lease is over: it was released, ran out, or was ended by force",
        operation=action,
        would_work="acquire a new one",
        lease=lease_id,
    )
