"""The steps that touch hardware: intent committed, hardware driven, outcome written down.

Each is called with the partition's lock held. A good outcome rides with a later commit
(`_journal`): after a crash in between, recovery finds the intent and asks the hardware. A bad
outcome is committed at once. Each returns the machines that did not do their part.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from podwright.controller.hardware import _launch_sight as launch_sight
from podwright.controller.hardware._gcd_division import Division
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._leases import HeldLease, ending, mask_of
from podwright.controller.state._machine_calls import MachineFault, Parts
from podwright.controller.state._partition_index import Entry
from podwright.controller.state._records import (
    LeaseRecord,
    PartitionRecord,
    QuarantineRecord,
    drop,
    drop_lease,
    put,
    put_lease,
    put_quarantine,
)
from podwright.controller.state._states import (
    BROKEN,
    READY,
    REMOVING,
    RESETTING,
    RESETTING_PART,
    move,
)
from podwright.placement import Block
from podwright.store import Change
from podwright.wire import ReadyState


async def begin_create(
    state: ControllerState, entry: Entry, record: PartitionRecord, lease: LeaseRecord | None = None
) -> None:
    """Write down that a partition is to be, with the lease that comes with it."""
    changes: list[Change] = [put(record)]
    if lease is not None:
        changes.append(put_lease(lease))
    await state.journal.commit(changes)
    state.set(entry, record)
    if lease is not None:
        launch_sight.look_at_new(state, state.add_lease(entry, lease))


async def join(
    state: ControllerState, entry: Entry, epoch: int, parts: Parts
) -> list[MachineFault]:
    """Join devices of a partition, those of a pool at their hosts."""
    return await state.hardware.configure(
        entry.name, epoch, parts, owner=entry.known.owner, joins=entry.joins(parts)
    )


async def finish_create(state: ControllerState, entry: Entry) -> list[MachineFault]:
    """Join the devices of a partition that is CREATING."""
    record = entry.known
    faults = await join(state, entry, record.epoch, entry.parts())
    if faults:
        await break_down(state, entry, faults)
    else:
        _settled(state, entry, move(record, READY))
    return faults


async def reset(
    state: ControllerState,
    entry: Entry,
    *,
    mask: int | None = None,
    lease: LeaseRecord | None = None,
    keep: bool = False,
    auto: bool = False,
    relocatable: bool = False,
    division: Division | None = None,
) -> list[MachineFault]:
    """Reset a partition, or the devices of a mask over its routing order.

    lease: comes to life with it, and its epoch is that of the reset. keep: it stays from now on,
    although it came with a lease. auto: the server does so by itself. division: its GCDs from now
    on. One in error is reset whole, and joined anew.
    """
    record = entry.known
    all_devices = mask_of(0, record.size)
    repair = record.ready is ReadyState.ERROR
    if mask is None or repair:
        mask = all_devices
    changed = move(
        record,
        RESETTING if mask == all_devices else RESETTING_PART,
        epoch=lease.epoch if lease else state.epochs.next(),
        dirty=f"{record.dirty_mask | mask:x}",
        errors=(),
        auto_resets=record.auto_resets + 1 if auto else 0,
        auto_reset_at=state.wall() if auto else record.auto_reset_at,
        transient=record.transient and not keep,
        relocatable=record.relocatable or relocatable,
        **(division or {}),
    )
    changes: list[Change] = [put(changed)]
    if lease is not None:
        changes.append(put_lease(lease))
    await state.journal.commit(changes)
    state.set(entry, changed)
    if lease is not None:
        launch_sight.look_at_new(state, state.add_lease(entry, lease))
    return await finish_reset(state, entry, joins_anew=repair)


async def finish_reset(
    state: ControllerState, entry: Entry, *, joins_anew: bool
) -> list[MachineFault]:
    """Reset what is dirty in a partition that is RESETTING, and join all anew if need be.

    What is under a lease is never dirty, but for the lease that this reset is for.
    """
    record = entry.known
    faults = await state.hardware.reset(record.epoch, entry.parts(record.dirty_mask))
    if joins_anew and not faults:
        faults = await join(state, entry, record.epoch, entry.parts())
    if faults:
        await break_down(state, entry, faults)
    else:
        _settled(state, entry, move(record, READY, dirty=""))
    return faults


async def remove(state: ControllerState, entry: Entry, *, force: bool) -> list[MachineFault]:
    """Remove a partition and end all leases on it.

    force: although machines do not do their part; their devices go into quarantine. Otherwise
    it is left in error.
    """
    ending_leases = list(entry.leases.values())
    record = move(entry.known, REMOVING, epoch=state.epochs.next(), errors=())
    with ending(ending_leases):
        await state.journal.commit([put(record), *(drop_lease(x.record.id) for x in ending_leases)])
    state.set(entry, record)
    state.drop_leases(entry, ending_leases)
    faults = await release_devices(state, entry)
    if faults and not force:
        await break_down(state, entry, faults)
    else:
        await finish_remove(state, entry, faults)
    return faults


async def release_devices(state: ControllerState, entry: Entry) -> list[MachineFault]:
    """Reset the devices of a partition that is REMOVING and take them out of it."""
    return await state.hardware.release(entry.known.epoch, entry.parts())


async def finish_remove(
    state: ControllerState, entry: Entry, faults: Sequence[MachineFault]
) -> None:
    """A partition is gone; devices of faulty machines are kept from everybody."""
    left = quarantines(entry, faults)
    if left:
        await state.journal.commit([drop(entry.name), *(put_quarantine(q) for q in left)])
    else:
        state.journal.later(drop(entry.name))
    state.forget(entry, left)


async def take_unreset(
    state: ControllerState, entry: Entry, lease: LeaseRecord, division: Division
) -> list[MachineFault]:
    """A lease begins on devices as they are.

    Its holder takes them dirty or not; they are dirty again when it ends. Joining what is
    joined carries the new epoch to the machines, which from here on refuse whoever held these
    devices before.
    """
    record = entry.known
    left = record.dirty_mask & ~lease.mask
    changes: list[Change] = [put_lease(lease)]
    if left != record.dirty_mask or division:
        record = msgspec.structs.replace(record, dirty=f"{left:x}" if left else "", **division)
        changes.append(put(record))
    await state.journal.commit(changes)
    state.set(entry, record)
    launch_sight.look_at_new(state, state.add_lease(entry, lease))
    faults = await join(state, entry, lease.epoch, entry.parts(lease.mask))
    if faults:
        await break_down(state, entry, faults)
    return faults


async def break_down(state: ControllerState, entry: Entry, faults: Sequence[MachineFault]) -> None:
    """A step failed: ERROR, with the reasons."""
    record = move(entry.known, BROKEN, errors=tuple(fault.reason for fault in faults))
    state.record_event("Error", entry.name, record.owner, "; ".join(record.errors))
    await state.journal.commit([put(record)])
    state.set(entry, record)


async def end_leases(state: ControllerState, entry: Entry, leases: Sequence[HeldLease]) -> None:
    """Leases end whose instances are gone: a partition that came with them goes, or their devices
    become dirty."""
    record = entry.known
    ids = {x.record.id for x in leases}
    if record.transient and ids >= entry.leases.keys() and not entry.fences:
        await remove(state, entry, force=True)
        return
    record, changes = without_leases(record, leases)
    with ending(leases):
        await state.journal.commit(changes)
    state.set(entry, record)
    state.drop_leases(entry, leases)


def without_leases(
    record: PartitionRecord, leases: Sequence[HeldLease]
) -> tuple[PartitionRecord, list[Change]]:
    """The record of a partition after the end of leases, whose devices are then dirty, and what
    has to be written down."""
    changes: list[Change] = [drop_lease(lease.record.id) for lease in leases]
    mask = record.dirty_mask
    for lease in leases:
        mask |= lease.record.mask
    if mask != record.dirty_mask:
        record = msgspec.structs.replace(record, dirty=f"{mask:x}")
        changes.append(put(record))
    return record, changes


def quarantines(entry: Entry, faults: Sequence[MachineFault]) -> list[QuarantineRecord]:
    """The devices of a partition that lie in faulty machines."""
    if entry.cluster is None or not faults:
        return []
    record, faulty = entry.known, {fault.machine for fault in faults}
    left = left_behind(entry.cluster, record, record.blocks, record.epoch)
    return [quarantined for quarantined in left if quarantined.machine in faulty]


def left_behind(
    cluster: IndexedCluster, record: PartitionRecord, blocks: Sequence[Block], epoch: int
) -> list[QuarantineRecord]:
    """Devices that a partition has had, or nearly, and that must be reset: a record a machine."""
    return [
        QuarantineRecord(
            cluster=record.cluster,
            allocation=record.allocation,
            machine=machine,
            block=block,
            epoch=epoch,
            partition=record.name,
        )
        for machine, block in cluster.blocks_by_machine(blocks)
    ]


def _settled(state: ControllerState, entry: Entry, record: PartitionRecord) -> None:
    state.set(entry, record)
    state.journal.later(put(record))
