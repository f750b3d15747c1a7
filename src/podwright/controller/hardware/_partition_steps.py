"""The steps that touch hardware: intent committed, hardware driven, outcome written down.

Each is called with the partition's lock held. A good outcome is committed later, with
somebody's commit or alone after a moment (`_journal`): after a crash in between, recovery finds the
intent and asks the hardware. A bad outcome is committed at once. Those that drive machines return
the machines that did not do their part.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from podwright.controller.hardware import _find_launch_processes as launch_sight
from podwright.controller.hardware._cliques import settle_cliques
from podwright.controller.hardware._gcd_division import Division
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._leases import HeldLease, ending, mask_of
from podwright.controller.state._machine_calls import DevicesByMachine, MachineFault
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._partition_states import (
    BROKEN,
    READY,
    REMOVING,
    RESETTING,
    RESETTING_PART,
    move,
)
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
from podwright.placement import Block
from podwright.store import Change
from podwright.wire import ReadyState


async def begin_create(
    state: ControllerState,
    partition_entry: PartitionEntry,
    partition_record: PartitionRecord,
    first_lease: LeaseRecord | None = None,
) -> None:
    """Write down that a partition is to be, with the lease that comes with it."""
    changes: list[Change] = [put(partition_record)]
    if first_lease is not None:
        changes.append(put_lease(first_lease))
    await state.journal.commit(changes)
    state.set(partition_entry, partition_record)
    if first_lease is not None:
        launch_sight.look_for_new_launch(state, state.add_lease(partition_entry, first_lease))


async def join(
    state: ControllerState,
    partition_entry: PartitionEntry,
    epoch: int,
    devices_by_machine: DevicesByMachine,
) -> list[MachineFault]:
    """Join devices of a partition, those of a pool at their hosts."""
    with_fabric = state.hardware.fabric is not None
    faults = await state.hardware.configure(
        partition_entry.name,
        epoch,
        devices_by_machine,
        owner=partition_entry.known.owner,
        joins=partition_entry.joins(devices_by_machine) if with_fabric else None,
    )
    if faults or not with_fabric:
        return faults
    return await settle_cliques(state, partition_entry, epoch, devices_by_machine)


async def finish_create(
    state: ControllerState, partition_entry: PartitionEntry
) -> list[MachineFault]:
    """Join the devices of a partition that is CREATING."""
    record = partition_entry.known
    faults = await join(state, partition_entry, record.epoch, partition_entry.parts())
    if faults:
        await mark_partition_broken(state, partition_entry, faults)
    else:
        _record_settled(state, partition_entry, move(record, READY))
    return faults


async def reset(
    state: ControllerState,
    partition_entry: PartitionEntry,
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
    partition_record = partition_entry.known
    full_mask = mask_of(0, partition_record.size)
    was_in_error = partition_record.ready is ReadyState.ERROR
    if mask is None or was_in_error:
        mask = full_mask
    changed_record = move(
        partition_record,
        RESETTING if mask == full_mask else RESETTING_PART,
        epoch=lease.epoch if lease else state.epochs.next(),
        dirty=f"{partition_record.dirty_mask | mask:x}",
        errors=(),
        unremoved=False,
        auto_resets=partition_record.auto_resets + 1 if auto else 0,
        auto_reset_at=state.wall() if auto else partition_record.auto_reset_at,
        transient=partition_record.transient and not keep,
        relocatable=partition_record.relocatable or relocatable,
        **(division or {}),
    )
    store_changes: list[Change] = [put(changed_record)]
    if lease is not None:
        store_changes.append(put_lease(lease))
    await state.journal.commit(store_changes)
    state.set(partition_entry, changed_record)
    if lease is not None:
        launch_sight.look_for_new_launch(state, state.add_lease(partition_entry, lease))
    return await finish_reset(state, partition_entry, joins_anew=was_in_error)


async def finish_reset(
    state: ControllerState, partition_entry: PartitionEntry, *, joins_anew: bool
) -> list[MachineFault]:
    """Reset what is dirty in a partition that is RESETTING, and join all anew if need be.

    What is under a lease is never dirty, but for the lease that this reset is for.
    """
    partition_record = partition_entry.known
    machine_faults = await state.hardware.reset(
        partition_record.epoch, partition_entry.parts(partition_record.dirty_mask)
    )
    # With a fabric, a reset also joins what is reset: the fabric may have lost it, and what is
    # joined already stays as it is.
    if not machine_faults and (joins_anew or state.hardware.fabric is not None):
        joined_mask = None if joins_anew else partition_record.dirty_mask
        machine_faults = await join(
            state, partition_entry, partition_record.epoch, partition_entry.parts(joined_mask)
        )
    if machine_faults:
        await mark_partition_broken(state, partition_entry, machine_faults)
    else:
        _record_settled(state, partition_entry, move(partition_record, READY, dirty=""))
    return machine_faults


async def remove(
    state: ControllerState, partition_entry: PartitionEntry, *, force: bool
) -> list[MachineFault]:
    """Remove a partition and end all leases on it.

    force: although machines do not do their part; their devices go into quarantine. Otherwise
    it is left in error.
    """
    ending_leases = list(partition_entry.leases.values())
    removing_record = move(partition_entry.known, REMOVING, epoch=state.epochs.next(), errors=())
    with ending(ending_leases):
        await state.journal.commit(
            [
                put(removing_record),
                *(drop_lease(ending_lease.record.id) for ending_lease in ending_leases),
            ]
        )
    state.set(partition_entry, removing_record)
    state.drop_leases(partition_entry, ending_leases)
    machine_faults = await release_devices(state, partition_entry)
    if machine_faults and not force:
        await mark_partition_broken(state, partition_entry, machine_faults, unremoved=True)
    else:
        await finish_remove(state, partition_entry, machine_faults)
    return machine_faults


async def release_devices(
    state: ControllerState, partition_entry: PartitionEntry
) -> list[MachineFault]:
    """Reset the devices of a partition that is REMOVING and take them out of it."""
    return await state.hardware.release(partition_entry.known.epoch, partition_entry.parts())


async def finish_remove(
    state: ControllerState, partition_entry: PartitionEntry, machine_faults: Sequence[MachineFault]
) -> None:
    """A partition is gone; devices of faulty machines are kept from everybody."""
    new_quarantines = quarantines(partition_entry, machine_faults)
    if new_quarantines:
        await state.journal.commit(
            [
                drop(partition_entry.name),
                *(put_quarantine(record) for record in new_quarantines),
            ]
        )
    else:
        state.journal.later(drop(partition_entry.name))
    state.forget(partition_entry, new_quarantines)


async def take_without_reset(
    state: ControllerState,
    partition_entry: PartitionEntry,
    new_lease: LeaseRecord,
    division: Division,
) -> list[MachineFault]:
    """A lease begins on devices as they are.

    Its holder takes them dirty or not; they are dirty again when it ends. Joining what is
    joined carries the new epoch to the machines, which from here on refuse whoever held these
    devices before.
    """
    partition_record = partition_entry.known
    dirty_mask = partition_record.dirty_mask & ~new_lease.mask
    store_changes: list[Change] = [put_lease(new_lease)]
    if dirty_mask != partition_record.dirty_mask or division:
        partition_record = msgspec.structs.replace(
            partition_record, dirty=f"{dirty_mask:x}" if dirty_mask else "", **division
        )
        store_changes.append(put(partition_record))
    await state.journal.commit(store_changes)
    state.set(partition_entry, partition_record)
    launch_sight.look_for_new_launch(state, state.add_lease(partition_entry, new_lease))
    machine_faults = await join(
        state, partition_entry, new_lease.epoch, partition_entry.parts(new_lease.mask)
    )
    if machine_faults:
        await mark_partition_broken(state, partition_entry, machine_faults)
    return machine_faults


async def mark_partition_broken(
    state: ControllerState,
    partition_entry: PartitionEntry,
    machine_faults: Sequence[MachineFault],
    *,
    unremoved: bool = False,
) -> None:
    """A step failed: ERROR, with the reasons, each once. unremoved: the step was its removal."""
    record = partition_entry.known
    reasons = dict.fromkeys(fault.reason for fault in machine_faults)
    broken_record = move(
        record,
        BROKEN,
        errors=tuple(reasons),
        unremoved=unremoved,
        auto_resets=record.auto_resets + unremoved,  # the pause before the next attempt grows
    )
    state.record_event(
        "Error", partition_entry.name, broken_record.owner, "; ".join(broken_record.errors)
    )
    await state.journal.commit([put(broken_record)])
    state.set(partition_entry, broken_record)


async def end_leases(
    state: ControllerState, partition_entry: PartitionEntry, ended_leases: Sequence[HeldLease]
) -> None:
    """Leases end whose instances are gone: a partition that came with them goes, or their devices
    become dirty."""
    partition_record = partition_entry.known
    ended_ids = {lease.record.id for lease in ended_leases}
    if (
        partition_record.transient
        and ended_ids >= partition_entry.leases.keys()
        and not partition_entry.fences
    ):
        await remove(state, partition_entry, force=True)
        return
    partition_record, store_changes = without_leases(partition_record, ended_leases)
    with ending(ended_leases):
        await state.journal.commit(store_changes)
    state.set(partition_entry, partition_record)
    state.drop_leases(partition_entry, ended_leases)


def without_leases(
    partition_record: PartitionRecord, ended_leases: Sequence[HeldLease]
) -> tuple[PartitionRecord, list[Change]]:
    """The record of a partition after the end of leases, whose devices are then dirty, and what
    has to be written down."""
    changes: list[Change] = [drop_lease(ended_lease.record.id) for ended_lease in ended_leases]
    mask = partition_record.dirty_mask
    for ended_lease in ended_leases:
        mask |= ended_lease.record.mask
    if mask != partition_record.dirty_mask:
        partition_record = msgspec.structs.replace(partition_record, dirty=f"{mask:x}")
        changes.append(put(partition_record))
    return partition_record, changes


def quarantines(
    partition_entry: PartitionEntry, machine_faults: Sequence[MachineFault]
) -> list[QuarantineRecord]:
    """The devices of a partition that lie in faulty machines."""
    if partition_entry.cluster is None or not machine_faults:
        return []
    partition_record, machines = (
        partition_entry.known,
        {fault.machine for fault in machine_faults},
    )
    quarantine_records_of = left_behind_quarantines(
        partition_entry.cluster, partition_record, partition_record.blocks, partition_record.epoch
    )
    return [
        quarantine_record
        for quarantine_record in quarantine_records_of
        if quarantine_record.machine in machines
    ]


def left_behind_quarantines(
    cluster: IndexedCluster,
    partition_record: PartitionRecord,
    partition_blocks: Sequence[Block],
    epoch: int,
) -> list[QuarantineRecord]:
    """Devices that a partition has had, or nearly, and that must be reset: a record a machine."""
    return [
        QuarantineRecord(
            cluster=partition_record.cluster,
            allocation=partition_record.allocation,
            machine=machine,
            block=block,
            epoch=epoch,
            partition=partition_record.name,
        )
        for machine, block in cluster.blocks_by_machine(partition_blocks)
    ]


def _record_settled(
    state: ControllerState, partition_entry: PartitionEntry, partition_record: PartitionRecord
) -> None:
    state.set(partition_entry, partition_record)
    state.journal.later(put(partition_record))
