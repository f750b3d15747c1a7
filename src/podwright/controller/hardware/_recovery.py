"""Start: read what is written, ask the machines, and finish or undo every step.

A partition whose step was interrupted is compared with its machines: where they report it
configured with the step's epoch, the step was done and only its outcome is written. Else it is
done again under a new epoch, so that a late call of the old server is refused. A partition
that was being removed goes in any case; devices whose machine is silent stay in quarantine.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import msgspec

from podwright.agents import MachineReport
from podwright.controller.hardware import _machine_drain as machines
from podwright.controller.hardware import _partition_steps as steps
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._machine_calls import MachineFault
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._partition_states import (
    BROKEN,
    CREATING,
    READY,
    REMOVING,
    move,
    state_of,
)
from podwright.controller.state._records import (
    FENCE,
    LEASE,
    META,
    PARTITION,
    QUARANTINE,
    SCHEMA_VERSION,
    FenceRecord,
    LeaseRecord,
    MetaRecord,
    PartitionRecord,
    QuarantineRecord,
    decode,
    drop_fence,
    drop_lease,
    drop_quarantine,
    put,
    put_meta,
)
from podwright.errors import PodwrightError, Unavailable
from podwright.store import Change, Opened
from podwright.wire import OperationState, ReadyState

MachineReports = dict[str, MachineReport]
_T = TypeVar("_T")
#: Partitions or machines that are dealt with at a time: a task for each of many needs more memory
#: than all that they work on.
AT_ONCE: Final = 2000


async def recover(state: ControllerState, opened_store: Opened) -> None:
    """Bring memory, store and machines together. Raises wire.Unavailable for a store that a
    newer Podwright has written."""
    state.epochs.begin(opened_store.epoch)
    await _load_store(state, opened_store)
    if state.journal.full is not None:
        return  # no step can be finished or undone that cannot be written down
    reports = await ask_all(state)
    quarantined_machines = {record.machine for record in state.quarantine.values()}
    unreleased = [
        name
        for name, report in reports.items()
        if report.configured or name in quarantined_machines
    ]
    stray_free = await asyncio.gather(
        *(release_strays(state, name, reports[name]) for name in unreleased)
    )
    for machine, devices in zip(unreleased, stray_free, strict=True):
        if not devices:
            state.mark_down(machine)
    await _for_each(
        state.partitions.values(), lambda entry: _settle_partition(state, entry, reports)
    )


async def ask_all(state: ControllerState) -> MachineReports:
    """What each machine reports; those that do not answer are out of service."""
    reports: MachineReports = {}

    async def ask(machine: str) -> None:
        try:
            report = await state.hardware.describe(machine)
        except PodwrightError:
            state.mark_down(machine)
        else:
            state.inventory.by_machine[machine].learn(machine, report)
            reports[machine] = report._replace(devices=())  # learned, and there are many

    await _for_each(state.inventory.by_machine, ask)
    return reports


async def _for_each(things: Iterable[_T], work: Callable[[_T], Awaitable[None]]) -> None:
    """Do the work for all things, `AT_ONCE` at a time."""
    all_things = list(things)
    left = iter(all_things)

    async def do_some() -> None:
        for thing in left:
            await work(thing)

    await asyncio.gather(*(do_some() for _ in all_things[:AT_ONCE]))


async def release_strays(state: ControllerState, machine: str, report: MachineReport) -> bool:
    """Take devices out of partitions that do not hold them, and end quarantines of a machine.

    Nothing is written first: what is left undone is seen again at the next look. Returns
    whether the machine now holds only what it should.
    """
    owner_by_device = state.partitions.owners(machine)
    machine_quarantines = [
        record for record in state.quarantine.values() if record.machine == machine
    ]
    devices_per_machine = state.inventory.by_machine[machine].layout.family.devices_per_machine
    stray_indices = {
        device_index
        for device_index, (partition, _) in report.configured.items()
        if owner_by_device.get(device_index) != partition
    }
    stray_indices |= {
        (record.block.offset + block_index) % devices_per_machine
        for record in machine_quarantines
        for block_index in range(record.block.size)
    }
    if stray_indices and await state.hardware.release(
        state.epochs.next(), {machine: sorted(stray_indices)}
    ):
        return False
    if machine_quarantines:
        await state.journal.commit([drop_quarantine(record) for record in machine_quarantines])
        for quarantine_record in machine_quarantines:
            del state.quarantine[quarantine_record.key]
            state.inventory.clusters[quarantine_record.cluster].index.release(
                quarantine_record.placement
            )
        for quarantine_record in machine_quarantines:
            state.freed(
                state.inventory.clusters[quarantine_record.cluster], (quarantine_record.block,), ""
            )
    return True


async def verify(
    state: ControllerState, partition_entry: PartitionEntry, reports: MachineReports
) -> None:
    """Join devices again that their machine has forgotten, as after a power cut.

    Under the partition's own epoch: nothing new is being done, so no intent is written.
    """
    partition_record = partition_entry.known
    missing_devices = {
        machine: lost_indices
        for machine, device_indices in partition_entry.parts().items()
        if (report := reports.get(machine)) is not None
        and (
            lost_indices := [
                index
                for index in device_indices
                if report.configured.get(index, ("", 0))[0] != partition_record.name
            ]
        )
    }
    if missing_devices:
        faults = await steps.join(state, partition_entry, partition_record.epoch, missing_devices)
        if faults:
            await steps.mark_partition_broken(state, partition_entry, faults)


async def _load_store(state: ControllerState, opened_store: Opened) -> None:
    schema_record = opened_store.records.get((META, "schema"))
    if schema_record is None:
        if state.journal.full is None:
            await state.journal.commit([put_meta()])
    elif (schema_version := decode(MetaRecord, schema_record).version) > SCHEMA_VERSION:
        raise Unavailable(
            f"the store was written by a newer Podwright (schema {schema_version}, not "
            f"{SCHEMA_VERSION})",
            would_work="start the newer one",
        )
    machines.load(state, opened_store.records)
    broken_partitions: list[PartitionEntry] = []
    partition_keys = sorted(key for key in opened_store.records if key[0] == PARTITION)
    for key in partition_keys:
        # Nobody needs it after this, and there are many.
        partition_record = _compact(decode(PartitionRecord, opened_store.records.pop(key)))
        cluster = state.inventory.clusters.get(partition_record.cluster)
        try:
            if cluster is not None:
                cluster.index.take(partition_record.placement)
        except (ValueError, IndexError):
            cluster = None  # the cluster or its allocations were defined anew
        partition_entry = PartitionEntry(partition_record.name, cluster)
        state.partitions.add(partition_entry)
        state.set(partition_entry, partition_record)
        if cluster is None:
            broken_partitions.append(partition_entry)
    store_changes: list[Change] = []
    for (record_kind, record_key), record_body in opened_store.records.items():
        if record_kind == QUARANTINE:
            quarantined = decode(QuarantineRecord, record_body)
            _take_quarantine(state, quarantined)
        elif record_kind == LEASE:
            lease_record = decode(LeaseRecord, record_body)
            partition_owning = state.partitions.get(lease_record.partition)
            if partition_owning is None:
                store_changes.append(drop_lease(record_key))
            else:
                state.add_lease(partition_owning, lease_record)
        elif record_kind == FENCE:
            fence_record = decode(FenceRecord, record_body)
            partition_owning = state.partitions.get(fence_record.lease.partition)
            if partition_owning is None:
                store_changes.append(drop_fence(record_key))
            else:
                state.fences.add(partition_owning, fence_record)
    for partition_entry in broken_partitions:
        _check_unheld(partition_entry)
        partition_record = partition_entry.known
        if partition_record.operation is not OperationState.REMOVING:
            reason = f"its devices are no longer in cluster {partition_record.cluster}"
            partition_record = move(partition_record, BROKEN, errors=(reason,))
            state.set(partition_entry, partition_record)
            store_changes.append(put(partition_record))
    if store_changes and state.journal.full is None:
        await state.journal.commit(store_changes)


def _check_unheld(partition_entry: PartitionEntry) -> None:
    """Raise Unavailable for devices that nobody may get, and that have no place in the cluster."""
    if partition_entry.leases or partition_entry.fences:
        raise Unavailable(
            f"partition {partition_entry.name} is held, and its devices have no place in cluster "
            f"{partition_entry.known.cluster}: they would go to another program as well",
            would_work="restore a backup: vipu-server --restore FILE --replace",
        )


def _compact(record: PartitionRecord) -> PartitionRecord:
    """The same record, which shares with others what is equal: there are many."""
    for name in ("cluster", "allocation", "owner", "creator", "guest"):
        text = sys.intern(getattr(record, name))
        msgspec.structs.force_setattr(record, name, text)
    if record.gcds == record.blocks:
        msgspec.structs.force_setattr(record, "gcds", record.blocks)
    return record


def _take_quarantine(state: ControllerState, quarantine_record: QuarantineRecord) -> None:
    cluster = state.inventory.clusters.get(quarantine_record.cluster)
    if cluster is None or quarantine_record.machine not in cluster.places:
        return  # the machine left; should it come back, its strays are released
    try:
        cluster.index.take(quarantine_record.placement)
    except (ValueError, IndexError):
        return
    state.quarantine[quarantine_record.key] = quarantine_record


async def _settle_partition(
    state: ControllerState, partition_entry: PartitionEntry, reports: MachineReports
) -> None:
    """Finish or undo one partition's step."""
    await partition_entry.lock.acquire()
    try:
        partition_record = partition_entry.known
        machine_names = partition_entry.machines
        foreign = not state.hardware.foreign.keys().isdisjoint(machine_names)
        if foreign and partition_record.operation is OperationState.IDLE:
            return  # whoever runs there runs on; it is compared once they understand each other
        silent_machines = [name for name in machine_names if name in state.down]
        in_use = partition_entry.leases or partition_entry.fences
        if state_of(partition_record) == REMOVING or (partition_record.transient and not in_use):
            await _remove_partition(state, partition_entry, silent_machines)
        elif partition_record.ready is ReadyState.ERROR:
            pass  # its owner, or the automatic reset, decides
        elif silent_machines:
            await steps.mark_partition_broken(
                state,
                partition_entry,
                [
                    MachineFault(machine_name, f"machine {machine_name} does not answer", True)
                    for machine_name in silent_machines
                ],
            )
        elif partition_record.operation is OperationState.IDLE:
            await verify(state, partition_entry, reports)
        elif _is_step_done(partition_entry, partition_record, reports):
            state.set(partition_entry, move(partition_record, READY, dirty=""))
            state.journal.later(put(partition_entry.known))
        else:
            await _repeat_step(state, partition_entry, partition_record)
    finally:
        partition_entry.lock.release()


def _is_step_done(
    partition_entry: PartitionEntry, partition_record: PartitionRecord, reports: MachineReports
) -> bool:
    """Whether the machines have finished the step that the record announces."""
    mask = None
    if partition_record.operation is OperationState.RESETTING:
        mask = partition_record.dirty_mask
    return all(
        reports[machine].configured.get(index) == (partition_record.name, partition_record.epoch)
        for machine, indices in partition_entry.parts(mask).items()
        for index in indices
    )


async def _repeat_step(
    state: ControllerState, partition_entry: PartitionEntry, partition_record: PartitionRecord
) -> None:
    """The step once more, under a new epoch."""
    repeated_record = move(partition_record, state_of(partition_record), epoch=state.epochs.next())
    # A lease that began with the step stays: whether its holder ever heard of it cannot be told,
    # and it runs out if nobody renews it.
    await state.journal.commit([put(repeated_record)])
    state.set(partition_entry, repeated_record)
    if state_of(repeated_record) == CREATING:
        await steps.finish_create(state, partition_entry)
    else:
        await steps.finish_reset(state, partition_entry, joins_anew=True)


async def _remove_partition(
    state: ControllerState, partition_entry: PartitionEntry, silent_machines: list[str]
) -> None:
    if state_of(partition_entry.known) != REMOVING:
        await steps.remove(state, partition_entry, force=True)
        return
    record = move(partition_entry.known, REMOVING, epoch=state.epochs.next())
    await state.journal.commit([put(record)])
    state.set(partition_entry, record)
    faults = await steps.release_devices(state, partition_entry)
    await steps.finish_remove(state, partition_entry, faults)
