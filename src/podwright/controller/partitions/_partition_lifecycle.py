"""Create, reset and remove partitions: who may, and the steps in order."""

from __future__ import annotations

import msgspec

from podwright.controller.hardware import _fences as fences
from podwright.controller.hardware import _partition_steps as steps
from podwright.controller.requests._device_claims import DeviceClaim, give_back
from podwright.controller.requests._refusals import failed, held_by_others_error
from podwright.controller.state._caller import Caller, check_change, check_job
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._partition_states import CREATING
from podwright.controller.state._records import LeaseRecord, PartitionRecord
from podwright.errors import NotFound
from podwright.wire import ResetRequest


def make_record(
    state: ControllerState,
    caller: Caller,
    claim: DeviceClaim,
    *,
    transient: bool = False,
    owner_record: PartitionRecord | None = None,
    creator: str = "",
    job: str = "",
    guest: str = "",
    duration: float = 0.0,
) -> PartitionRecord:
    """The record of a partition that is CREATING. owner_record: keep the owner of this one.

    creator: who asked in the caller's name, for which job and as which scheduler.
    """
    checked, cluster, placement = claim.checked, claim.cluster, claim.placement
    spec = checked.spec
    return PartitionRecord(
        name=spec.name,
        cluster=cluster.layout.name,
        allocation=placement.allocation,
        size=placement.size,
        num_gcds=len(placement.gcds),
        num_replicas=spec.num_replicas or len(placement.gcds),
        num_ilds=len({block.domain for block in placement.blocks}),
        routing=claim.routing,
        gw_routing=spec.gw_routing,
        sync_type=checked.sync_type,
        blocks=placement.blocks,
        gcds=placement.gcds,
        ready=CREATING[0],
        operation=CREATING[1],
        owner=owner_record.owner if owner_record else caller.name,
        owner_uid=owner_record.owner_uid
        if owner_record
        else -1
        if caller.uid is None
        else caller.uid,
        creator=creator or caller.name,
        job=job,
        epoch=state.epochs.next(),
        created_at=state.wall(),
        placed_at=state.now(),
        reconfigurable=spec.reconfigurable,
        open_gcds=not (spec.num_gcds or spec.reconfigurable),
        open_replicas=not (spec.num_replicas or spec.reconfigurable),
        auto_reset=spec.auto_reset,
        relocatable=spec.relocatable,
        movable=spec.movable,
        profile=spec.profile,
        transient=transient,
        until=state.now() + duration if duration else 0.0,
        hosts=claim.hosts,
        guest=guest,
    )


async def begin_create(
    state: ControllerState,
    caller: Caller,
    claim: DeviceClaim,
    *,
    lease_for: LeaseRecord | None = None,
    transient: bool = False,
    creator: str = "",
    job: str = "",
    guest: str = "",
    duration: float = 0.0,
) -> PartitionEntry:
    """Write down a new partition on claimed devices; its lock is held on return.

    lease_for: a lease on all of it that begins with it; partition, epoch and count are filled
    in here. creator, job, guest: who asks in the caller's name, for which job, and as which
    scheduler (`guest_key`). duration: seconds for which it is needed; 0: unknown.
    """
    name = claim.checked.spec.name
    partition_entry = PartitionEntry(name, claim.cluster, makers=(caller.name, creator))
    state.partitions.add(partition_entry)
    try:
        await partition_entry.lock.acquire()  # nobody else knows it yet: this does not wait
        partition_record = make_record(
            state,
            caller,
            claim,
            transient=transient,
            creator=creator,
            job=job,
            guest=guest,
            duration=duration,
        )
        lease = whole_lease(lease_for, partition_record) if lease_for else None
        await steps.begin_create(state, partition_entry, partition_record, lease)
    except BaseException:
        state.drop_entry(partition_entry)
        partition_entry.lock.release()
        give_back(state, claim)
        raise
    state.admitted.discard(claim.admitted)  # its record counts now
    return partition_entry


def whole_lease(lease_draft: LeaseRecord, partition_record: PartitionRecord) -> LeaseRecord:
    """The draft as a lease on all of a partition, with the partition's epoch."""
    return msgspec.structs.replace(
        lease_draft,
        id=f"l{partition_record.epoch:x}",
        partition=partition_record.name,
        epoch=partition_record.epoch,
        first=0,
        count=partition_record.size,
    )


async def finish_create(state: ControllerState, partition_entry: PartitionEntry) -> None:
    """Configure the hardware of a new partition and release its lock."""
    try:
        await steps.finish_create(state, partition_entry)
    finally:
        partition_entry.lock.release()


async def begin_reset(
    state: ControllerState, caller: Caller, request: ResetRequest
) -> PartitionEntry:
    """Check that a reset is allowed; the partition's lock is held on return."""
    action = f"reset partition {request.name}"
    entry = await state.lock(request.name, action, caller)
    try:
        _check_may_change(state, caller, entry, action, request.force)
    except BaseException:
        entry.lock.release()
        raise
    return entry


async def finish_reset(
    state: ControllerState, caller: Caller, partition_entry: PartitionEntry, *, relocatable: bool
) -> None:
    """Reset a partition, ending leases on it, and let go of its lock. Raises Held for fences.

    relocatable: from now on (V-IPU 1.18 protocol: false keeps what creation said).
    """
    try:
        partition = bool(partition_entry.leases)
        await fences.end_all_leases(
            state, caller, partition_entry, f"reset partition {partition_entry.name}"
        )
        await steps.reset(state, partition_entry, keep=partition, relocatable=relocatable)
    finally:
        partition_entry.lock.release()


async def begin_remove(
    state: ControllerState, caller: Caller, partition_name: str, *, force: bool, job: str = ""
) -> PartitionEntry:
    """Check that a removal may be; the partition's lock is held on return. job: see
    RemoveRequest. Raises NotFound where it is another's, Denied, Held."""
    action = f"remove partition {partition_name}"
    entry = await state.lock(partition_name, action, caller)
    try:
        if job and entry.known.job != job:
            raise NotFound(f"partition {partition_name} is not for job {job}", operation=action)
        _check_may_change(state, caller, entry, action, force)
        check_job(caller, entry.known.job, action)
    except BaseException:
        entry.lock.release()
        raise
    return entry


async def finish_remove(
    state: ControllerState, caller: Caller, partition_entry: PartitionEntry, *, force: bool
) -> None:
    """Remove a partition and let go of its lock. Raises WrongState when machines do not answer,
    Held while what a lease left on it is not gone."""
    partition_record = partition_entry.known
    try:
        await fences.end_all_leases(
            state, caller, partition_entry, f"remove partition {partition_entry.name}"
        )
        faults = await steps.remove(state, partition_entry, force=force)
    finally:
        partition_entry.lock.release()
    if faults and not force:
        raise failed(
            partition_record,
            [fault.reason for fault in faults],
            f"remove partition {partition_entry.name}",
            "remove it by force, or repair the machine and try again",
        )


def _check_may_change(
    state: ControllerState,
    caller: Caller,
    partition_entry: PartitionEntry,
    action: str,
    force: bool,
) -> None:
    """Who may reset or remove: owner and administrator; while it is held, only by force.

    A lease is held by a launch, not by a person: its own user, too, has to say `force`.
    """
    record = partition_entry.known
    check_change(caller, record.owner, action, record.creator)
    if partition_entry.leases and not force:
        raise held_by_others_error(
            record,
            list(partition_entry.leases.values()),
            action,
            "wait until it is released, or use force, which ends the lease",
        )
    if partition_entry.fences and not force:
        raise fences.refusal(state, partition_entry, action)
