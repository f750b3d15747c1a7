"""Acquire: find or create a partition and take a lease on it, in one atomic step.

The rules are those of the PopRun guide, 2.8.3, with our answers where it has none. Devices that
a lease leaves behind are reset when the next one begins, not when it ends: the end is quick,
and a partition that nobody takes again costs no reset.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from podwright.controller.hardware import _fences as fences
from podwright.controller.hardware import _partition_steps as steps
from podwright.controller.hardware._gcd_division import Division, divide
from podwright.controller.partitions import _partition_lifecycle as partitions
from podwright.controller.partitions._lease_lifetime import MAX_NAME_LENGTH, check_hosts, over
from podwright.controller.partitions._replace_partition import Successor, replace
from podwright.controller.requests._allocation_access import may_lend, open_spec
from podwright.controller.requests._device_claims import (
    DeviceClaim,
    check_duration,
    claim_new,
    give_back,
)
from podwright.controller.requests._partition_fit import differences
from podwright.controller.requests._refusals import failed, held_by_others_error, misfit_error
from podwright.controller.requests._spec import CheckedSpec, check_name, described, renamed
from podwright.controller.state._caller import (
    Caller,
    Role,
    check_change,
    check_creator,
    check_job,
    in_name_of,
    may_change,
)
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._leases import HeldLease, ancestors, free_subset, mask_of
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._records import LeaseRecord, PartitionRecord
from podwright.errors import Held, InvalidRequest, WrongState
from podwright.wire import AcquireRequest, OperationState, PartitionSpec, ReadyState

MAX_TTL = 3600.0  #: seconds
MAX_HOLDER_LENGTH = 200  #: characters


@dataclass(frozen=True, kw_only=True)
class Acquisition:
    """One request for a lease, checked, as the functions below hand it on.

    name: of the partition, if it is known. spec: what that should be. draft: the lease to come.
    action: what was requested, in words.
    """

    state: ControllerState
    caller: Caller
    request: AcquireRequest
    name: str
    spec: PartitionSpec
    draft: LeaseRecord
    action: str

    @property
    def may_create(self) -> bool:
        """Whether a partition may be created for it."""
        return (self.request.create or self.request.update) and not self.request.parent


class Acquired(NamedTuple):
    """A granted lease. record: the partition after the lease was taken. created: the
    partition is new."""

    entry: PartitionEntry
    record: PartitionRecord
    lease: HeldLease
    created: bool


class LeaseShare(NamedTuple):
    """The devices of a partition that a lease gets, in routing order, and how they are divided."""

    division: Division
    first: int
    size: int


class WouldAcquire(NamedTuple):
    """What a request would do now. create: the partition that it would create, if any. action:
    what was requested. outcome: what would happen, in words."""

    create: PartitionSpec | None
    action: str
    outcome: str


async def acquire(
    state: ControllerState,
    caller: Caller,
    request: AcquireRequest,
    claim: DeviceClaim | None = None,
) -> Acquired:
    """Find or create a partition and take a lease on it.

    claim: devices for a new partition, if they are claimed already.
    """
    try:
        acquisition = _prepare_acquisition(state, caller, request)
        partition_name = acquisition.name
        if not partition_name or state.find(caller, partition_name) is None:
            if not acquisition.may_create:
                raise _missing_error(acquisition)
            own_claim, claim = claim, None
            return await _create_and_lease(
                acquisition, partition_name or _new_partition_name(state), own_claim
            )
    finally:
        give_back(state, claim)  # a partition was there all the same
    while (partition_entry := state.find(caller, partition_name)) is not None:
        await partition_entry.lock.acquire()
        try:
            if (
                not partition_entry.removed
                and state.find(caller, partition_name) is partition_entry
            ):
                return await _lease_existing(acquisition, partition_entry)
        finally:
            partition_entry.lock.release()
    if not acquisition.may_create:
        raise _missing_error(acquisition)
    return await _create_and_lease(acquisition, partition_name)


def _prepare_acquisition(
    state: ControllerState, caller: Caller, request: AcquireRequest
) -> Acquisition:
    """The request, checked. Raises as `acquire` does."""
    spec = request.spec
    action = "acquire " + described(spec, state.inventory.noun)
    parent_lease = _check_request(state, caller, request, action)
    if spec.name:
        check_name(spec.name)
    if parent_lease is not None:
        spec = _spec_within_parent(parent_lease, spec, action)
    lease_owner = in_name_of(caller, request.owner, request.owner_uid, "", action)
    if lease_owner is not caller and (request.create or request.update):
        raise InvalidRequest(
            "a lease in somebody's name is on a partition that is there",
            operation=action,
            would_work="create the partition in his name, or leave out create and update",
        )
    lease_draft = LeaseRecord(
        id="",
        partition="",
        epoch=0,
        owner=lease_owner.name,
        first=0,
        count=0,
        ttl=request.ttl,
        holder=request.holder,
        parent=request.parent,
        creator="" if lease_owner is caller else caller.name,
        owner_uid=-1 if lease_owner.uid is None else lease_owner.uid,
        hosts=tuple(request.hosts),
        run=request.run,
    )
    return Acquisition(
        state=state,
        caller=caller,
        request=request,
        name=spec.name or _only_partition(state, caller, spec, action),
        spec=spec,
        draft=lease_draft,
        action=action,
    )


async def _create_and_lease(
    acquisition: Acquisition, partition_name: str, claim: DeviceClaim | None = None
) -> Acquired:
    state, request = acquisition.state, acquisition.request
    spec = renamed(acquisition.spec, partition_name)
    if claim is None:
        spec = open_spec(state, acquisition.caller, spec)
    partition_entry = await partitions.begin_create(
        state,
        acquisition.caller,
        claim_new(
            state,
            acquisition.caller,
            CheckedSpec(spec, acquisition.action, launch_hosts=request.hosts),
            duration=request.duration,
            claim=claim,
        ),
        lease_for=acquisition.draft,
        transient=not request.keep,
        duration=request.duration,
    )
    try:
        (lease,) = partition_entry.leases.values()
        faults = await steps.finish_create(state, partition_entry)
        if faults:
            partition_record = partition_entry.known
            await steps.remove(state, partition_entry, force=True)
            raise failed(
                partition_record,
                partition_record.errors,
                acquisition.action,
                "try again; the machine is left out until it answers",
            )
        return Acquired(partition_entry, partition_entry.known, lease, created=True)
    finally:
        partition_entry.lock.release()


async def _lease_existing(acquisition: Acquisition, partition_entry: PartitionEntry) -> Acquired:
    """Take a lease on an existing partition whose lock is held."""
    state, request, action = acquisition.state, acquisition.request, acquisition.action
    partition_record = partition_entry.known
    _parent_lease(
        state, acquisition.caller, request, action
    )  # it may have ended while others had the lock
    if _must_replace(acquisition, partition_entry):
        checked_spec = CheckedSpec(
            open_spec(state, acquisition.caller, renamed(acquisition.spec, partition_entry.name)),
            action,
            launch_hosts=request.hosts,
        )
        successor = Successor(
            acquisition.caller, checked_spec, acquisition.draft, transient=not request.keep
        )
        lease = await replace(state, partition_entry, successor)
        return Acquired(partition_entry, partition_entry.known, lease, created=True)
    if partition_record.operation not in (OperationState.IDLE, OperationState.FAILED):
        raise WrongState(  # only a fault of ours leaves a step unfinished with its lock free
            f"partition {partition_record.name} is {partition_record.operation.value}",
            operation=action,
        )
    try:
        lease_share = _lease_share(acquisition, partition_entry)
    except Held:
        late_leases = [
            held_lease
            for held_lease in partition_entry.leases.values()
            if held_lease.late and held_lease.record.parent == request.parent
        ]
        if not late_leases:
            raise
        for lease in late_leases:
            reason = f"{lease.record.id} was not renewed, and its job wants the devices"
            state.record_event("LeaseEnd", partition_entry.name, lease.record.owner, reason)
        await fences.end(state, partition_entry, late_leases, keep=True)
        partition_record = partition_entry.known
        lease_share = _lease_share(acquisition, partition_entry)
    epoch = state.epochs.next()
    lease_record = msgspec.structs.replace(
        acquisition.draft,
        id=f"l{epoch:x}",
        partition=partition_record.name,
        epoch=epoch,
        first=lease_share.first,
        count=lease_share.size,
    )
    device_mask = mask_of(lease_share.first, lease_share.size)
    reset_needed = request.reset
    if reset_needed is None:
        reset_needed = not partition_record.reconfigurable or bool(
            partition_record.dirty_mask & device_mask
        )
    if reset_needed or partition_record.ready is ReadyState.ERROR:
        faults = await steps.reset(
            state,
            partition_entry,
            mask=device_mask,
            lease=lease_record,
            division=lease_share.division,
        )
    else:
        faults = await steps.take_without_reset(
            state, partition_entry, lease_record, lease_share.division
        )
    lease = partition_entry.leases[lease_record.id]
    if faults:
        await steps.end_leases(state, partition_entry, [lease])
        raise failed(
            partition_record,
            [fault.reason for fault in faults],
            action,
            f"reset partition {partition_record.name} once its machines answer, or use another",
        )
    return Acquired(partition_entry, partition_entry.known, lease, created=False)


def _must_replace(acquisition: Acquisition, partition_entry: PartitionEntry) -> bool:
    """Whether a partition does not fit and may be replaced. Raises if it may not."""
    request, action, partition_record = (
        acquisition.request,
        acquisition.action,
        partition_entry.known,
    )
    # Who holds a lease may use what it covers: `_check_request` saw whose it is.
    if not request.parent and not (
        acquisition.draft.creator and may_lend(acquisition.caller, partition_entry)
    ):
        check_change(acquisition.caller, partition_record.owner, action)
    mismatches = differences(partition_record, acquisition.spec, request.hosts)
    if mismatches and (request.parent or not request.update):
        is_inside = bool(request.parent or partition_record.job or partition_entry.leases)
        raise misfit_error(partition_record, mismatches, action, inside_job=is_inside)
    if mismatches:
        check_job(acquisition.caller, partition_record.job, action)
        if partition_entry.leases:
            raise held_by_others_error(
                partition_record, list(partition_entry.leases.values()), action, _RETRY_HINT
            )
        if partition_entry.fences:
            raise fences.refusal(acquisition.state, partition_entry, action)
    return bool(mismatches)


def _lease_share(acquisition: Acquisition, partition_entry: PartitionEntry) -> LeaseShare:
    """Which devices of a fitting partition the lease gets. Raises Held or InvalidRequest."""
    state, partition_record, parent = (
        acquisition.state,
        partition_entry.known,
        acquisition.request.parent,
    )
    ancestor_ids = ancestors(parent, state.leases)
    other_leases = [
        lease for lease in partition_entry.leases.values() if lease.record.id not in ancestor_ids
    ]
    if partition_record.ready is ReadyState.ERROR and partition_entry.leases:
        raise held_by_others_error(
            partition_record, list(partition_entry.leases.values()), acquisition.action, _RETRY_HINT
        )
    if partition_record.ready is ReadyState.ERROR and partition_entry.fences:
        raise fences.refusal(state, partition_entry, acquisition.action)
    division = Division()
    if partition_entry.cluster is not None:
        division = divide(
            partition_record,
            acquisition.spec,
            partition_entry.cluster.layout.family,
            acquisition.action,
        )
    first_device, device_count = _choose(
        acquisition, partition_entry, state.leases.get(parent), other_leases
    )
    return LeaseShare(division, first_device, device_count)


def would_acquire(state: ControllerState, caller: Caller, request: AcquireRequest) -> WouldAcquire:
    """What `acquire` would do now. Changes nothing.

    Raises what `acquire` would raise, but for devices that are not free.
    """
    acquisition = _prepare_acquisition(state, caller, request)
    partition_name, action = acquisition.name, acquisition.action
    partition_entry = state.find(caller, partition_name) if partition_name else None
    if partition_entry is None or partition_entry.record is None:
        if not acquisition.may_create:
            raise _missing_error(acquisition)
        outcome = f"a partition would be created{partition_name and f', {partition_name}'}"
        return WouldAcquire(acquisition.spec, action, outcome)
    if _must_replace(acquisition, partition_entry):
        outcome = f"partition {partition_name} does not fit, and would be replaced if devices allow"
        return WouldAcquire(None, action, outcome)
    lease_share = _lease_share(acquisition, partition_entry)
    device_range = (
        ""
        if lease_share.size == partition_entry.known.size
        else (f" {lease_share.first} to {lease_share.first + lease_share.size - 1}")
    )
    return WouldAcquire(
        None,
        action,
        f"partition {partition_name} fits, and its devices{device_range} are free to be used",
    )


_RETRY_HINT = "try again when it is released, or name another partition"


def _choose(
    acquisition: Acquisition,
    partition_entry: PartitionEntry,
    parent_lease: HeldLease | None,
    other_leases: list[HeldLease],
) -> tuple[int, int]:
    """The first device that a lease gets, and how many. Raises Held or InvalidRequest."""
    state, spec, action, partition_record = (
        acquisition.state,
        acquisition.spec,
        acquisition.action,
        partition_entry.known,
    )
    range_start, range_size = (
        (parent_lease.record.first, parent_lease.record.count)
        if parent_lease
        else (0, partition_record.size)
    )
    leased_mask = fenced_mask = 0
    for other_lease in other_leases:
        leased_mask |= other_lease.record.mask
    for fence in partition_entry.fences.values():
        fenced_mask |= fence.lease.mask
    wanted_size = spec.size or len(spec.devices) or range_size
    if not partition_record.reconfigurable:
        wanted_size = range_size
    if wanted_size > range_size:
        raise InvalidRequest(
            f"the parent lease holds {range_size} devices, not {wanted_size}",
            operation=action,
            would_work=f"ask for {range_size} or fewer",
        )
    subset_start = free_subset(range_start, range_size, wanted_size, leased_mask | fenced_mask)
    if (
        subset_start is None
        and free_subset(range_start, range_size, wanted_size, leased_mask) is not None
    ):
        raise fences.refusal(state, partition_entry, action)
    if subset_start is None:
        raise held_by_others_error(partition_record, other_leases, action, _RETRY_HINT)
    return subset_start, wanted_size


def _check_request(
    state: ControllerState, caller: Caller, request: AcquireRequest, action: str
) -> HeldLease | None:
    """Raises InvalidRequest for bad numbers and words, and as `_parent_lease` does, which it
    returns.
    """
    if not request.owner:
        check_creator(caller, action)
    check_duration(request.duration, action)
    check_hosts(request.hosts, action)
    if len(request.run) > MAX_NAME_LENGTH or not request.run.isprintable():
        raise InvalidRequest("the launch's mark is too long or not printable", operation=action)
    if not (math.isfinite(request.ttl) and 0 < request.ttl <= MAX_TTL):
        raise InvalidRequest(
            f"a lease cannot last {request.ttl:g} s",
            operation=action,
            would_work=f"use a ttl above 0 and at most {MAX_TTL:g} s",
        )
    if len(request.holder) > MAX_HOLDER_LENGTH or not request.holder.isprintable():
        raise InvalidRequest(
            "the holder's name is too long or not printable",
            operation=action,
            would_work=f"use at most {MAX_HOLDER_LENGTH} printable characters",
        )
    return _parent_lease(state, caller, request, action)


def _parent_lease(
    state: ControllerState, caller: Caller, request: AcquireRequest, action: str
) -> HeldLease | None:
    """The lease in which one is asked for, if any. Raises Fenced, Denied."""
    if not request.parent:
        return None
    parent = state.find_lease(caller, request.parent)
    if parent is None or parent.ending:
        raise over(request.parent, action)
    check_change(caller, parent.record.owner, action)
    return parent


def _spec_within_parent(parent_lease: HeldLease, spec: PartitionSpec, action: str) -> PartitionSpec:
    name = parent_lease.record.partition
    if spec.name not in ("", name):
        raise InvalidRequest(
            f"the parent lease {parent_lease.record.id} is on partition {name}",
            operation=action,
            would_work=f"name partition {name}, or none",
        )
    return renamed(spec, name)


def _only_partition(
    state: ControllerState, caller: Caller, spec: PartitionSpec, action: str
) -> str:
    """The one partition that the caller may use, or nothing where there is none.

    Those that came with somebody's lease go with it, and are nobody else's to find.
    """
    partition_names = sorted(
        record.name
        for record in _own_records(state, caller)
        if may_change(caller, record.owner)
        and not record.transient
        and record.operation is not OperationState.REMOVING
        and (not spec.cluster or record.cluster == spec.cluster)
        and (not spec.allocation or record.allocation == spec.allocation)
    )
    if len(partition_names) > 1:
        raise InvalidRequest(
            f"there are several partitions: {', '.join(partition_names[:10])}"
            + (f" and {len(partition_names) - 10} more" if partition_names[10:] else ""),
            operation=action,
            would_work="name the one to use",
            partitions=partition_names,
        )
    return partition_names[0] if partition_names else ""


def _own_records(state: ControllerState, caller: Caller) -> Iterable[PartitionRecord]:
    """The partitions that may be a caller's to change: all of them, for an administrator."""
    if caller.role is Role.ADMINISTRATOR:
        return state.partitions.records()
    entries = map(state.partitions.get, state.partitions.of_person(caller.name))
    return (entry.known for entry in entries if entry is not None and entry.record is not None)


def _new_partition_name(state: ControllerState) -> str:
    suffix = 1
    while f"run-{suffix}" in state.partitions:
        suffix += 1
    return f"run-{suffix}"


def _missing_error(acquisition: Acquisition) -> Exception:
    state, partition_name = acquisition.state, acquisition.name
    suggestion = "let it be created with --update-partition=yes"
    usable_names = sorted(
        record.name
        for record in _own_records(state, acquisition.caller)
        if may_change(acquisition.caller, record.owner)
    )
    if usable_names:
        suggestion = f"use {' or '.join(usable_names[:5])}, or {suggestion}"
    return state.missing(
        partition_name or "to use", acquisition.action, acquisition.caller, would_work=suggestion
    )
