"""Start: read what is written, ask the machines, and finish or undo every step.

A partition whose step was interrupted is compared with its machines: where they report it
configured with the step's epoch, the step was done and only its outcome is written. Else it is
done again under a new epoch, so that a late call of the old server is refused. A partition
that was being removed goes in any case; devices whose machine is silent stay in quarantine.
"""

from __future__ import annotations

import asyncio

from podwright.agents import MachineReport
from podwright.controller.hardware import _machines as machines
from podwright.controller.hardware import _steps as steps
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._machine_calls import MachineFault
from podwright.controller.state._partition_index import Entry
from podwright.controller.state._records import (
    FENCE,
    LEASE,
    META,
    PARTITION,
    QUARANTINE,
    SCHEMA,
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
from podwright.controller.state._states import BROKEN, CREATING, READY, REMOVING, move, state_of
from podwright.errors import PodwrightError, Unavailable
from podwright.store import Change, Opened
from podwright.wire import OperationState, ReadyState

Reports = dict[str, MachineReport]


async def recover(state: ControllerState, opened: Opened) -> None:
    """Bring memory, store and machines together. Raises wire.Unavailable for a store that a
    newer Podwright has written."""
    state.epochs.begin(opened.epoch)
    await _load(state, opened)
    if state.journal.full is not None:
        return  # no step can be finished or undone that cannot be written down
    reports = await ask_all(state)
    dirty = {q.machine for q in state.quarantine.values()}
    unreleased = [m for m, report in reports.items() if report.configured or m in dirty]
    clean = await asyncio.gather(*(release_strays(state, m, reports[m]) for m in unreleased))
    for machine, right in zip(unreleased, clean, strict=True):
        if not right:
            state.mark_down(machine)
    await asyncio.gather(
        *(_settle(state, entry, reports) for entry in list(state.partitions.values()))
    )


async def ask_all(state: ControllerState) -> Reports:
    """What each machine reports; those that do not answer are out of service."""
    reports: Reports = {}

    async def ask(machine: str) -> None:
        try:
            report = await state.hardware.describe(machine)
        except PodwrightError:
            state.mark_down(machine)
        else:
            reports[machine] = report
            state.inventory.by_machine[machine].learn(machine, report)

    await asyncio.gather(*(ask(machine) for machine in state.inventory.by_machine))
    return reports


async def release_strays(state: ControllerState, machine: str, report: MachineReport) -> bool:
    """Take devices out of partitions that do not hold them, and end quarantines of a machine.

    Nothing is written first: what is left undone is seen again at the next look. Returns
    whether the machine now holds only what it should.
    """
    owners = state.partitions.owners(machine)
    ours = [q for q in state.quarantine.values() if q.machine == machine]
    per = state.inventory.by_machine[machine].layout.family.devices_per_machine
    strays = {
        index
        for index, (partition, _) in report.configured.items()
        if owners.get(index) != partition
    }
    strays |= {(q.block.offset + i) % per for q in ours for i in range(q.block.size)}
    if strays and await state.hardware.release(state.epochs.next(), {machine: sorted(strays)}):
        return False
    if ours:
        await state.journal.commit([drop_quarantine(q) for q in ours])
        for q in ours:
            del state.quarantine[q.key]
            state.inventory.clusters[q.cluster].index.release(q.placement)
        for q in ours:
            state.freed(state.inventory.clusters[q.cluster], (q.block,), "")
    return True


async def verify(state: ControllerState, entry: Entry, reports: Reports) -> None:
    """Join devices again that their machine has forgotten, as after a power cut.

    Under the partition's own epoch: nothing new is being done, so no intent is written.
    """
    record = entry.known
    missing = {
        machine: lost
        for machine, indices in entry.parts().items()
        if (report := reports.get(machine)) is not None
        and (lost := [i for i in indices if report.configured.get(i, ("", 0))[0] != record.name])
    }
    if missing:
        faults = await steps.join(state, entry, record.epoch, missing)
        if faults:
            await steps.break_down(state, entry, faults)


async def _load(state: ControllerState, opened: Opened) -> None:
    schema = opened.records.get((META, "schema"))
    if schema is None:
        if state.journal.full is None:
            await state.journal.commit([put_meta()])
    elif (version := decode(MetaRecord, schema).version) > SCHEMA:
        raise Unavailable(
            f"the store was written by a newer Podwright (schema {version}, not {SCHEMA})",
            would_work="start the newer one",
        )
    machines.load(state, opened.records)
    broken: list[Entry] = []
    for (kind, _), body in sorted(opened.records.items()):
        if kind == PARTITION:
            record = decode(PartitionRecord, body)
            cluster = state.inventory.clusters.get(record.cluster)
            try:
                if cluster is not None:
                    cluster.index.take(record.placement)
            except (ValueError, IndexError):
                cluster = None  # the cluster or its allocations were defined anew
            entry = Entry(record.name, cluster, record)
            state.partitions.add(entry)
            state.set(entry, record)
            if cluster is None:
                broken.append(entry)
    changes: list[Change] = []
    for (kind, key), body in opened.records.items():
        if kind == QUARANTINE:
            quarantined = decode(QuarantineRecord, body)
            _take_quarantine(state, quarantined)
        elif kind == LEASE:
            lease = decode(LeaseRecord, body)
            owner = state.partitions.get(lease.partition)
            if owner is None:
                changes.append(drop_lease(key))
            else:
                state.add_lease(owner, lease)
        elif kind == FENCE:
            fence = decode(FenceRecord, body)
            owner = state.partitions.get(fence.lease.partition)
            if owner is None:
                changes.append(drop_fence(key))
            else:
                state.fences.add(owner, fence)
    for entry in broken:
        record = entry.known
        if record.operation is not OperationState.REMOVING:
            reason = f"its devices are no longer in cluster {record.cluster}"
            record = move(record, BROKEN, errors=(reason,))
            state.set(entry, record)
            changes.append(put(record))
    if changes and state.journal.full is None:
        await state.journal.commit(changes)


def _take_quarantine(state: ControllerState, quarantined: QuarantineRecord) -> None:
    cluster = state.inventory.clusters.get(quarantined.cluster)
    if cluster is None or quarantined.machine not in cluster.places:
        return  # the machine left; should it come back, its strays are released
    try:
        cluster.index.take(quarantined.placement)
    except (ValueError, IndexError):
        return
    state.quarantine[quarantined.key] = quarantined


async def _settle(state: ControllerState, entry: Entry, reports: Reports) -> None:
    """Finish or undo one partition's step."""
    await entry.lock.acquire()
    try:
        record = entry.known
        foreign = state.hardware.foreign.keys() & entry.parts().keys()
        if foreign and record.operation is OperationState.IDLE:
            return  # whoever runs there runs on; it is compared once they understand each other
        silent = [m for m in entry.parts() if m in state.down]
        in_use = entry.leases or entry.fences
        if state_of(record) == REMOVING or (record.transient and not in_use):
            await _remove(state, entry, silent)
        elif record.ready is ReadyState.ERROR:
            pass  # its owner, or the automatic reset, decides
        elif silent:
            await steps.break_down(
                state,
                entry,
                [MachineFault(m, f"machine {m} does not answer", True) for m in silent],
            )
        elif record.operation is OperationState.IDLE:
            await verify(state, entry, reports)
        elif _done(entry, record, reports):
            state.set(entry, move(record, READY, dirty=""))
            state.journal.later(put(entry.known))
        else:
            await _repeat_step(state, entry, record)
    finally:
        entry.lock.release()


def _done(entry: Entry, record: PartitionRecord, reports: Reports) -> bool:
    """Whether the machines have finished the step that the record announces."""
    mask = None
    if record.operation is OperationState.RESETTING:
        mask = record.dirty_mask
    return all(
        reports[machine].configured.get(index) == (record.name, record.epoch)
        for machine, indices in entry.parts(mask).items()
        for index in indices
    )


async def _repeat_step(state: ControllerState, entry: Entry, record: PartitionRecord) -> None:
    """The step once more, under a new epoch."""
    repeated = move(record, state_of(record), epoch=state.epochs.next())
    # A lease that began with the step stays: whether its holder ever heard of it cannot be told,
    # and it runs out if nobody renews it.
    await state.journal.commit([put(repeated)])
    state.set(entry, repeated)
    if state_of(repeated) == CREATING:
        await steps.finish_create(state, entry)
    else:
        await steps.finish_reset(state, entry, joins_anew=True)


async def _remove(state: ControllerState, entry: Entry, silent: list[str]) -> None:
    if state_of(entry.known) != REMOVING:
        await steps.remove(state, entry, force=True)
        return
    removal = move(entry.known, REMOVING, epoch=state.epochs.next())
    await state.journal.commit([put(removal)])
    state.set(entry, removal)
    faults = await steps.release_devices(state, entry)
    await steps.finish_remove(state, entry, faults)
