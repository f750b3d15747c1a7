"""Acquire: find or create a partition and take a lease on it, in one atomic step.

The rules are those of the PopRun guide, 2.8.3, with our answers where it has none. Devices that
a lease leaves behind are reset when the next one begins, not when it ends: the end is quick,
and a partition that nobody takes again costs no reset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from podwright.controller.hardware import _fences as fences
from podwright.controller.hardware import _steps as steps
from podwright.controller.hardware._gcd_division import Division, divide
from podwright.controller.partitions import _partitions as partitions
from podwright.controller.partitions._lease_expiry import MAX_NAME, check_hosts, over
from podwright.controller.partitions._replace import Successor, replace
from podwright.controller.requests._exclusive_allocations import may_lend, open_spec
from podwright.controller.requests._partition_fit import differences
from podwright.controller.requests._refusals import does_not_fit, failed, held_by_others
from podwright.controller.requests._spec import CheckedSpec, check_name, described, renamed
from podwright.controller.state._caller import (
    Caller,
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
from podwright.controller.state._reservation import DeviceClaim
from podwright.errors import Held, InvalidRequest, WrongState
from podwright.wire import AcquireRequest, OperationState, PartitionSpec, ReadyState

MAX_TTL = 3600.0  #: seconds
MAX_HOLDER = 200  #: characters


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

    def check_parent(self) -> None:
        """Raises Fenced, Denied where the lease in which it lies has ended, or is another's."""
        _parent(self.state, self.caller, self.request, self.action)


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
        wanted = _prepare(state, caller, request)
        name = wanted.name
        if not name or state.find(caller, name) is None:
            if not wanted.may_create:
                raise _missing(wanted)
            ours, claim = claim, None
            return await _create(wanted, name or _new_name(state), ours)
    finally:
        partitions.give_back(state, claim)  # a partition was there all the same
    while (entry := state.find(caller, name)) is not None:
        await entry.lock.acquire()
        try:
            if not entry.removed and state.find(caller, name) is entry:
                return await _hold(wanted, entry)
        finally:
            entry.lock.release()
    if not wanted.may_create:
        raise _missing(wanted)
    return await _create(wanted, name)


def _prepare(state: ControllerState, caller: Caller, request: AcquireRequest) -> Acquisition:
    """The request, checked. Raises as `acquire` does."""
    spec = request.spec
    action = "acquire " + described(spec, state.inventory.noun)
    parent = _check(state, caller, request, action)
    if spec.name:
        check_name(spec.name)
    if parent is not None:
        spec = _within(parent, spec, action)
    named = in_name_of(caller, request.owner, request.owner_uid, "", action)
    if named is not caller and (request.create or request.update):
        raise InvalidRequest(
            "a lease in somebody's name is on a partition that is there",
            operation=action,
            would_work="create the partition in his name, or leave out create and update",
        )
    draft = LeaseRecord(
        id="",
        partition="",
        epoch=0,
        owner=named.name,
        first=0,
        count=0,
        ttl=request.ttl,
        holder=request.holder,
        parent=request.parent,
        creator="" if named is caller else caller.name,
        owner_uid=-1 if named.uid is None else named.uid,
        hosts=tuple(request.hosts),
        run=request.run,
    )
    return Acquisition(
        state=state,
        caller=caller,
        request=request,
        name=spec.name or _only_one(state, caller, spec, action),
        spec=spec,
        draft=draft,
        action=action,
    )


async def _create(wanted: Acquisition, name: str, claim: DeviceClaim | None = None) -> Acquired:
    state, request = wanted.state, wanted.request
    spec = renamed(wanted.spec, name)
    if claim is None:
        spec = open_spec(state, wanted.caller, spec)
    entry = await partitions.begin_create(
        state,
        wanted.caller,
        CheckedSpec(spec, wanted.action, launch_hosts=request.hosts),
        lease_for=wanted.draft,
        transient=not request.keep,
        claim=claim,
        duration=request.duration,
    )
    try:
        (lease,) = entry.leases.values()
        faults = await steps.finish_create(state, entry)
        if faults:
            record = entry.known
            await steps.remove(state, entry, force=True)
            raise failed(
                record,
                record.errors,
                wanted.action,
                "try again; the machine is left out until it answers",
            )
        return Acquired(entry, entry.known, lease, created=True)
    finally:
        entry.lock.release()


async def _hold(wanted: Acquisition, entry: PartitionEntry) -> Acquired:
    """Take a lease on an existing partition whose lock is held."""
    state, request, action = wanted.state, wanted.request, wanted.action
    record = entry.known
    wanted.check_parent()  # it may have ended while others had the lock
    if _must_go(wanted, entry):
        checked = CheckedSpec(
            open_spec(state, wanted.caller, renamed(wanted.spec, entry.name)),
            action,
            launch_hosts=request.hosts,
        )
        successor = Successor(wanted.caller, checked, wanted.draft, transient=not request.keep)
        lease = await replace(state, entry, successor)
        return Acquired(entry, entry.known, lease, created=True)
    if record.operation not in (OperationState.IDLE, OperationState.FAILED):
        raise WrongState(  # only a fault of ours leaves a step unfinished with its lock free
            f"partition {record.name} is {record.operation.value}", operation=action
        )
    try:
        share = _share(wanted, entry)
    except Held:
        late = [x for x in entry.leases.values() if x.late and x.record.parent == request.parent]
        if not late:
            raise
        for lease in late:
            reason = f"{lease.record.id} was not renewed, and its job wants the devices"
            state.record_event("LeaseEnd", entry.name, lease.record.owner, reason)
        await fences.end(state, entry, late, keep=True)
        record = entry.known
        share = _share(wanted, entry)
    epoch = state.epochs.next()
    lease_record = msgspec.structs.replace(
        wanted.draft,
        id=f"l{epoch:x}",
        partition=record.name,
        epoch=epoch,
        first=share.first,
        count=share.size,
    )
    mask = mask_of(share.first, share.size)
    reset = request.reset
    if reset is None:
        reset = not record.reconfigurable or bool(record.dirty_mask & mask)
    if reset or record.ready is ReadyState.ERROR:
        faults = await steps.reset(
            state, entry, mask=mask, lease=lease_record, division=share.division
        )
    else:
        faults = await steps.take_without_reset(state, entry, lease_record, share.division)
    lease = entry.leases[lease_record.id]
    if faults:
        await steps.end_leases(state, entry, [lease])
        raise failed(
            record,
            [fault.reason for fault in faults],
            action,
            f"reset partition {record.name} once its machines answer, or use another",
        )
    return Acquired(entry, entry.known, lease, created=False)


def _must_go(wanted: Acquisition, entry: PartitionEntry) -> bool:
    """Whether a partition does not fit and may be replaced. Raises if it may not."""
    request, action, record = wanted.request, wanted.action, entry.known
    # Who holds a lease may use what it covers: `_check` saw whose it is.
    if not request.parent and not (wanted.draft.creator and may_lend(wanted.caller, entry)):
        check_change(wanted.caller, record.owner, action)
    mismatches = differences(record, wanted.spec, request.hosts)
    if mismatches and (request.parent or not request.update):
        within = bool(request.parent or record.job or entry.leases)
        raise does_not_fit(record, mismatches, action, inside_job=within)
    if mismatches:
        check_job(wanted.caller, record.job, action)
        if entry.leases:
            raise held_by_others(record, list(entry.leases.values()), action, _LATER)
        if entry.fences:
            raise fences.refusal(wanted.state, entry, action)
    return bool(mismatches)


def _share(wanted: Acquisition, entry: PartitionEntry) -> LeaseShare:
    """Which devices of a fitting partition the lease gets. Raises Held or InvalidRequest."""
    state, record, parent = wanted.state, entry.known, wanted.request.parent
    above = ancestors(parent, state.leases)
    other_leases = [x for x in entry.leases.values() if x.record.id not in above]
    if record.ready is ReadyState.ERROR and entry.leases:
        raise held_by_others(record, list(entry.leases.values()), wanted.action, _LATER)
    if record.ready is ReadyState.ERROR and entry.fences:
        raise fences.refusal(state, entry, wanted.action)
    division = Division()
    if entry.cluster is not None:
        division = divide(record, wanted.spec, entry.cluster.layout.family, wanted.action)
    first, count = _choose(wanted, entry, state.leases.get(parent), other_leases)
    return LeaseShare(division, first, count)


def would_acquire(state: ControllerState, caller: Caller, request: AcquireRequest) -> WouldAcquire:
    """What `acquire` would do now. Changes nothing.

    Raises what `acquire` would raise, but for devices that are not free.
    """
    wanted = _prepare(state, caller, request)
    name, action = wanted.name, wanted.action
    entry = state.find(caller, name) if name else None
    if entry is None or entry.record is None:
        if not wanted.may_create:
            raise _missing(wanted)
        outcome = f"a partition would be created{name and f', {name}'}"
        return WouldAcquire(wanted.spec, action, outcome)
    if _must_go(wanted, entry):
        outcome = f"partition {name} does not fit, and would be replaced if devices allow"
        return WouldAcquire(None, action, outcome)
    share = _share(wanted, entry)
    part = (
        ""
        if share.size == entry.known.size
        else (f" {share.first} to {share.first + share.size - 1}")
    )
    return WouldAcquire(
        None, action, f"partition {name} fits, and its devices{part} are free to be used"
    )


_LATER = "try again when it is released, or name another partition"


def _choose(
    wanted: Acquisition,
    entry: PartitionEntry,
    parent: HeldLease | None,
    other_leases: list[HeldLease],
) -> tuple[int, int]:
    """The first device that a lease gets, and how many. Raises Held or InvalidRequest."""
    state, spec, action, record = wanted.state, wanted.spec, wanted.action, entry.known
    first, count = (parent.record.first, parent.record.count) if parent else (0, record.size)
    leased = fenced = 0
    for other in other_leases:
        leased |= other.record.mask
    for fence in entry.fences.values():
        fenced |= fence.lease.mask
    size = spec.size or len(spec.devices) or count
    if not record.reconfigurable:
        size = count
    if size > count:
        raise InvalidRequest(
            f"the parent lease holds {count} devices, not {size}",
            operation=action,
            would_work=f"ask for {count} or fewer",
        )
    subset_start = free_subset(first, count, size, leased | fenced)
    if subset_start is None and free_subset(first, count, size, leased) is not None:
        raise fences.refusal(state, entry, action)
    if subset_start is None:
        raise held_by_others(record, other_leases, action, _LATER)
    return subset_start, size


def _check(
    state: ControllerState, caller: Caller, request: AcquireRequest, action: str
) -> HeldLease | None:
    """Raises InvalidRequest for bad numbers and words, and as `_parent` does, which it returns."""
    if not request.owner:
        check_creator(caller, action)
    partitions.check_duration(request.duration, action)
    check_hosts(request.hosts, action)
    if len(request.run) > MAX_NAME or not request.run.isprintable():
        raise InvalidRequest("the launch's mark is too long or not printable", operation=action)
    if not (math.isfinite(request.ttl) and 0 < request.ttl <= MAX_TTL):
        raise InvalidRequest(
            f"a lease cannot last {request.ttl:g} s",
            operation=action,
            would_work=f"use a ttl above 0 and at most {MAX_TTL:g} s",
        )
    if len(request.holder) > MAX_HOLDER or not request.holder.isprintable():
        raise InvalidRequest(
            "the holder's name is too long or not printable",
            operation=action,
            would_work=f"use at most {MAX_HOLDER} printable characters",
        )
    return _parent(state, caller, request, action)


def _parent(
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


def _within(parent: HeldLease, spec: PartitionSpec, action: str) -> PartitionSpec:
    partition = parent.record.partition
    if spec.name not in ("", partition):
        raise InvalidRequest(
            f"the parent lease {parent.record.id} is on partition {partition}",
            operation=action,
            would_work=f"name partition {partition}, or none",
        )
    return renamed(spec, partition)


def _only_one(state: ControllerState, caller: Caller, spec: PartitionSpec, action: str) -> str:
    """The one partition that the caller may use, or nothing where there is none.

    Those that came with somebody's lease go with it, and are nobody else's to find.
    """
    names = sorted(
        record.name
        for record in state.partitions.records()
        if may_change(caller, record.owner)
        and not record.transient
        and record.operation is not OperationState.REMOVING
        and (not spec.cluster or record.cluster == spec.cluster)
        and (not spec.allocation or record.allocation == spec.allocation)
    )
    if len(names) > 1:
        raise InvalidRequest(
            f"there are several partitions: {', '.join(names[:10])}"
            + (f" and {len(names) - 10} more" if names[10:] else ""),
            operation=action,
            would_work="name the one to use",
            partitions=names,
        )
    return names[0] if names else ""


def _new_name(state: ControllerState) -> str:
    number = 1
    while f"run-{number}" in state.partitions:
        number += 1
    return f"run-{number}"


def _missing(wanted: Acquisition) -> Exception:
    state, name = wanted.state, wanted.name
    allow = "let it be created with --update-partition=yes"
    usable = sorted(
        r.name for r in state.partitions.records() if may_change(wanted.caller, r.owner)
    )
    if usable:
        allow = f"use {' or '.join(usable[:5])}, or {allow}"
    return state.missing(name or "to use", wanted.action, wanted.caller, would_work=allow)
