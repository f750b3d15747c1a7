"""Acquire: find or create a partition and hold it, in one step that nobody can get between.

The rules are those of the PopRun guide, 2.8.3, with our answers where it has none. Devices that
a lease leaves behind are reset when the next one begins, not when it ends: the end is quick,
and a partition that nobody takes again costs no reset.
"""

from __future__ import annotations

import math

import msgspec

from podwright.controller import _fences as fences
from podwright.controller import _partitions as partitions
from podwright.controller import _steps as steps
from podwright.controller._caller import (
    Caller,
    check_change,
    check_creator,
    check_job,
    in_name_of,
    may_change,
)
from podwright.controller._core import Core, Entry
from podwright.controller._exclusive_allocations import lends, open_spec
from podwright.controller._gcd_division import Division, divide
from podwright.controller._lease_expiry import MAX_NAME, check_hosts, over
from podwright.controller._leases import HeldLease, ancestors, free_subset, mask_of
from podwright.controller._partition_fit import differences
from podwright.controller._records import LeaseRecord, PartitionRecord
from podwright.controller._refusals import does_not_fit, failed, held
from podwright.controller._replace import replace
from podwright.controller._reservation import Taken
from podwright.controller._spec import CheckedSpec, check_name, described, renamed
from podwright.errors import Held, InvalidRequest, WrongState
from podwright.wire import AcquireRequest, OperationState, PartitionSpec, ReadyState

MAX_TTL = 3600.0  #: seconds
MAX_HOLDER = 200  #: characters


async def acquire(
    core: Core, caller: Caller, request: AcquireRequest, taken: Taken | None = None
) -> tuple[Entry, PartitionRecord, HeldLease, bool]:
    """The partition, as it stands with the lease, the lease, and whether it is new.

    taken: devices for a new one, where some are taken already.
    """
    try:
        name, spec, draft, action = _prepare(core, caller, request)
        may_create = (request.create or request.update) and not request.parent
        if not name or name not in core.partitions:
            if not may_create:
                raise _missing(core, caller, name, action)
            ours, taken = taken, None
            spec = renamed(spec, name or _new_name(core))
            return await _create(core, caller, request, spec, draft, action, ours)
    finally:
        partitions.give_back(core, taken)  # a partition was there all the same
    while (entry := core.partitions.get(name)) is not None:
        await entry.lock.acquire()
        try:
            if not entry.gone:
                return await _hold(core, caller, request, spec, entry, draft, action)
        finally:
            entry.lock.release()
    if not may_create:
        raise _missing(core, caller, name, action)
    return await _create(core, caller, request, renamed(spec, name), draft, action)


def _prepare(
    core: Core, caller: Caller, request: AcquireRequest
) -> tuple[str, PartitionSpec, LeaseRecord, str]:
    """The partition's name, if it is known, what it should be, the lease to come, the words."""
    spec = request.spec
    action = "acquire " + described(spec, core.inventory.noun)
    parent = _check(core, caller, request, action)
    if spec.name:
        check_name(spec.name)
    if parent is not None:
        spec = _within(parent, spec, action)
    named = in_name_of(caller, request.owner, request.owner_uid, "", action)
    if named is not caller and (request.create or request.update):
        raise InvalidRequest(
            "a lease in somebody's name is on a partition that is there",
            asked=action,
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
    return spec.name or _only_one(core, caller, spec, action), spec, draft, action


async def _create(
    core: Core,
    caller: Caller,
    request: AcquireRequest,
    spec: PartitionSpec,
    draft: LeaseRecord,
    action: str,
    taken: Taken | None = None,
) -> tuple[Entry, PartitionRecord, HeldLease, bool]:
    if taken is None:
        spec = open_spec(core, caller, spec)
    entry = await partitions.begin_create(
        core,
        caller,
        CheckedSpec(spec, action),
        lease_for=draft,
        transient=not request.keep,
        taken=taken,
        duration=request.duration,
    )
    try:
        (lease,) = entry.leases.values()
        faults = await steps.finish_create(core, entry)
        if faults:
            record = entry.known
            await steps.remove(core, entry, force=True)
            raise failed(
                record, record.errors, action, "try again; the machine is left out until it answers"
            )
        return entry, entry.known, lease, True
    finally:
        entry.lock.release()


async def _hold(
    core: Core,
    caller: Caller,
    request: AcquireRequest,
    spec: PartitionSpec,
    entry: Entry,
    draft: LeaseRecord,
    action: str,
) -> tuple[Entry, PartitionRecord, HeldLease, bool]:
    record = entry.known
    _parent(core, caller, request, action)  # it may have ended while others had the lock
    if _must_go(core, caller, request, spec, entry, draft, action):
        lease = await replace(
            core, caller, request, renamed(spec, entry.name), entry, draft, action
        )
        return entry, entry.known, lease, True
    if record.operation not in (OperationState.IDLE, OperationState.FAILED):
        raise WrongState(  # only a fault of ours leaves a step unfinished with its lock free
            f"partition {record.name} is {record.operation.value}", asked=action
        )
    try:
        division, first, count = _share(core, request, spec, entry, action)
    except Held:
        late = [x for x in entry.leases.values() if x.late and x.record.parent == request.parent]
        if not late:
            raise
        for lease in late:
            why = f"{lease.record.id} was not renewed, and its job wants the devices"
            core.tell("LeaseEnd", entry.name, lease.record.owner, why)
        await fences.end(core, entry, late, keep=True)
        record = entry.known
        division, first, count = _share(core, request, spec, entry, action)
    epoch = core.next_epoch()
    lease_record = msgspec.structs.replace(
        draft,
        id=f"l{epoch:x}",
        partition=record.name,
        epoch=epoch,
        first=first,
        count=count,
    )
    mask = mask_of(first, count)
    wanted = request.reset
    if wanted is None:
        wanted = not record.reconfigurable or bool(record.dirty_mask & mask)
    if wanted or record.ready is ReadyState.ERROR:
        faults = await steps.reset(core, entry, mask=mask, lease=lease_record, division=division)
    else:
        faults = await steps.take_unreset(core, entry, lease_record, division)
    lease = entry.leases[lease_record.id]
    if faults:
        await steps.end_leases(core, entry, [lease])
        raise failed(
            record,
            [fault.reason for fault in faults],
            action,
            f"reset partition {record.name} once its machines answer, or use another",
        )
    return entry, entry.known, lease, False


def _must_go(
    core: Core,
    caller: Caller,
    request: AcquireRequest,
    spec: PartitionSpec,
    entry: Entry,
    draft: LeaseRecord,
    action: str,
) -> bool:
    """Whether a partition does not fit and may be replaced. Raises if it may not."""
    record = entry.known
    # Who holds a lease may use what it covers: `_check` saw whose it is.
    if not request.parent and not (draft.creator and lends(caller, entry)):
        check_change(caller, record.owner, action)
    found = differences(record, spec)
    if found and (request.parent or not request.update):
        raise does_not_fit(record, found, action)
    if found:
        check_job(caller, record.job, action)
        if entry.leases:
            raise held(record, list(entry.leases.values()), action, _LATER)
        if entry.fences:
            raise fences.refusal(core, entry, action)
    return bool(found)


def _share(
    core: Core, request: AcquireRequest, spec: PartitionSpec, entry: Entry, action: str
) -> tuple[Division, int, int]:
    """How a fitting partition is divided, and which of its devices are had: first and count."""
    record = entry.known
    above = ancestors(request.parent, core.leases)
    others = [x for x in entry.leases.values() if x.record.id not in above]
    if record.ready is ReadyState.ERROR and entry.leases:
        raise held(record, list(entry.leases.values()), action, _LATER)
    if record.ready is ReadyState.ERROR and entry.fences:
        raise fences.refusal(core, entry, action)
    division = Division()
    if entry.site is not None:
        division = divide(record, spec, entry.site.cluster.family, action)
    parent = core.leases.get(request.parent)
    return division, *_choose(core, entry, spec, parent, others, action)


def would_acquire(
    core: Core, caller: Caller, request: AcquireRequest
) -> tuple[PartitionSpec | None, str, str]:
    """What `acquire` would do now: the partition to create, if any, what was asked, in words.

    Changes nothing. Raises what `acquire` would raise, but for devices that are not free.
    """
    name, spec, draft, action = _prepare(core, caller, request)
    entry = core.partitions.get(name) if name else None
    if entry is None or entry.record is None:
        if not (request.create or request.update) or request.parent:
            raise _missing(core, caller, name, action)
        return spec, action, f"a partition would be created{name and f', {name}'}"
    if _must_go(core, caller, request, spec, entry, draft, action):
        return (
            None,
            action,
            f"partition {name} does not fit, and would be replaced if devices allow",
        )
    _, first, count = _share(core, request, spec, entry, action)
    whole = count == entry.known.size
    part = "" if whole else f" {first} to {first + count - 1}"
    return None, action, f"partition {name} fits, and its devices{part} are free to be used"


_LATER = "try again when it is released, or name another partition"


def _choose(
    core: Core,
    entry: Entry,
    spec: PartitionSpec,
    parent: HeldLease | None,
    others: list[HeldLease],
    action: str,
) -> tuple[int, int]:
    """Which devices of a fitting partition a lease gets. Raises Held or InvalidRequest."""
    record = entry.known
    first, count = (parent.record.first, parent.record.count) if parent else (0, record.size)
    taken = fenced = 0
    for other in others:
        taken |= other.record.mask
    for fence in entry.fences.values():
        fenced |= fence.lease.mask
    wanted = spec.size or len(spec.devices) or count
    if not record.reconfigurable:
        wanted = count
    if wanted > count:
        raise InvalidRequest(
            f"the parent lease holds {count} devices, not {wanted}",
            asked=action,
            would_work=f"ask for {count} or fewer",
        )
    at = free_subset(first, count, wanted, taken | fenced)
    if at is None and free_subset(first, count, wanted, taken) is not None:
        raise fences.refusal(core, entry, action)
    if at is None:
        raise held(record, others, action, _LATER)
    return at, wanted


def _check(core: Core, caller: Caller, request: AcquireRequest, action: str) -> HeldLease | None:
    """Raises InvalidRequest for bad numbers and words, and as `_parent` does, which it returns."""
    if not request.owner:
        check_creator(caller, action)
    partitions.check_duration(request.duration, action)
    check_hosts(request.hosts, action)
    if len(request.run) > MAX_NAME or not request.run.isprintable():
        raise InvalidRequest("the launch's mark is too long or not printable", asked=action)
    if not (math.isfinite(request.ttl) and 0 < request.ttl <= MAX_TTL):
        raise InvalidRequest(
            f"a lease cannot last {request.ttl:g} s",
            asked=action,
            would_work=f"use a ttl above 0 and at most {MAX_TTL:g} s",
        )
    if len(request.holder) > MAX_HOLDER or not request.holder.isprintable():
        raise InvalidRequest(
            "the holder's name is too long or not printable",
            asked=action,
            would_work=f"use at most {MAX_HOLDER} printable characters",
        )
    return _parent(core, caller, request, action)


def _parent(core: Core, caller: Caller, request: AcquireRequest, action: str) -> HeldLease | None:
    """The lease in which one is asked for, if any. Raises Fenced, Denied."""
    if not request.parent:
        return None
    parent = core.leases.get(request.parent)
    if parent is None or parent.ending:
        raise over(request.parent, action)
    check_change(caller, parent.record.owner, action)
    return parent


def _within(parent: HeldLease, spec: PartitionSpec, action: str) -> PartitionSpec:
    partition = parent.record.partition
    if spec.name not in ("", partition):
        raise InvalidRequest(
            f"the parent lease {parent.record.id} is on partition {partition}",
            asked=action,
            would_work=f"name partition {partition}, or none",
        )
    return renamed(spec, partition)


def _only_one(core: Core, caller: Caller, spec: PartitionSpec, action: str) -> str:
    """The one partition that the caller may use, or nothing where there is none.

    Those that came with somebody's lease go with it, and are nobody else's to find.
    """
    names = sorted(
        record.name
        for record in core.records()
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
            asked=action,
            would_work="name the one to use",
            partitions=names,
        )
    return names[0] if names else ""


def _new_name(core: Core) -> str:
    number = 1
    while f"run-{number}" in core.partitions:
        number += 1
    return f"run-{number}"


def _missing(core: Core, caller: Caller, name: str, action: str) -> Exception:
    allow = "let it be created with --update-partition=yes"
    mine = sorted(r.name for r in core.records() if may_change(caller, r.owner))
    if mine:
        allow = f"use {' or '.join(mine[:5])}, or {allow}"
    if name:
        return core.missing(name, action, would_work=allow)
    return core.missing("to use", action, would_work=allow)
