"""Fences keep the devices of an ended lease from the next one while its processes may still run.

A lease leaves no fence if it was released and all of its hosts confirmed that the instances are
gone. A lease that ended in any other way (it expired, was ended by force, or a host has not
confirmed) leaves one: silence and time alone never give its devices to anybody else. A fence is
lifted in one of three ways:

- Each of the lease's machines cuts the old epoch off and resets the devices. This counts where the
  devices themselves refuse old epochs, or where the machine's agent runs under another account than
  the launch did.
- The lease's hosts confirm that nothing runs any more. The server examines its own host itself.
- An administrator confirms it.

Until then the partition is FENCING. All functions here are called with the partition's lock held.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from podwright.controller.hardware import _partition_steps as steps
from podwright.controller.requests._refusals import fencing
from podwright.controller.state._caller import Caller, Role
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._leases import HeldLease, ending
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._process_cutoff import can_cut_off, in_words, waits_for
from podwright.controller.state._records import FenceRecord, drop_fence, put, put_fence
from podwright.errors import Held
from podwright.store import Change


async def end(
    state: ControllerState,
    partition_entry: PartitionEntry,
    ended_leases: Sequence[HeldLease],
    *,
    released_hosts: Collection[str] = (),
    keep: bool = False,
) -> None:
    """End leases whose instances may still run, and fence their devices.

    released_hosts: hosts on which the instances are known to have ended. keep: the partition stays,
    even if it was created with these leases.
    """
    new_fences = [
        _fence_of_lease(ended_lease, released_hosts, state.now()) for ended_lease in ended_leases
    ]
    partition_record, changes = steps.without_leases(partition_entry.known, ended_leases)
    changes += map(put_fence, new_fences)
    with ending(ended_leases):
        await state.journal.commit(changes)
    state.set(partition_entry, partition_record)
    for fence in new_fences:
        state.fences.add(partition_entry, fence)
    state.drop_leases(partition_entry, ended_leases)
    await settle(state, partition_entry, keep=keep)
    for fence in new_fences:
        if fence.id in partition_entry.fences:
            state.record_event(
                "Fencing",
                partition_entry.name,
                fence.lease.owner,
                in_words(state, partition_entry, fence),
            )


async def settle(
    state: ControllerState, partition_entry: PartitionEntry, *, keep: bool = False
) -> None:
    """Cut old epochs off where that is possible, and lift the fences that wait no more.

    A transient partition without leases is then removed. keep: it stays.
    """
    for fence in list(partition_entry.fences.values()):
        await _cut_off_old_epochs(state, partition_entry, fence)
        waited_machines = waits_for(state, partition_entry, fence)
        if (
            not waited_machines
            or not fence.hosts
            or _gone_from_own_host(state, partition_entry, fence, waited_machines)
        ):
            await lift(state, partition_entry, [fence])
    partition_record = partition_entry.known
    if not keep and partition_record.transient and not partition_entry.leases:
        if partition_entry.fences and not _only_faulty_machines_left(state, partition_entry):
            return
        # Machines that fence, and do not answer, keep their devices in quarantine until they do.
        await lift(state, partition_entry, list(partition_entry.fences.values()))
        await steps.remove(state, partition_entry, force=True)


async def confirm_clean_hosts(
    state: ControllerState,
    partition_entry: PartitionEntry,
    lease_id: str,
    clean_hosts: Collection[str],
) -> None:
    """Note that nothing of an ended lease runs on these hosts; on all of them if none is named."""
    fence = partition_entry.fences[lease_id]
    unconfirmed_hosts = tuple(
        host for host in fence.hosts if clean_hosts and host not in clean_hosts
    )
    if unconfirmed_hosts != fence.hosts:
        fence = msgspec.structs.replace(fence, hosts=unconfirmed_hosts)
        await state.journal.commit([put_fence(fence)])
        partition_entry.fences = {**partition_entry.fences, lease_id: fence}
    await settle(state, partition_entry)


async def lift(
    state: ControllerState, partition_entry: PartitionEntry, lifted_fences: Sequence[FenceRecord]
) -> None:
    """Remove fences. Devices that all machines of a fence have reset become clean."""
    if not lifted_fences:
        return
    partition_record, lifted_ids = partition_entry.known, {fence.id for fence in lifted_fences}
    clean_mask = 0
    for fence in lifted_fences:
        if state.fences.cut(fence.id) >= partition_entry.parts(fence.lease.mask).keys():
            clean_mask |= fence.lease.mask
    for other_fence in partition_entry.fences.values():
        if other_fence.id not in lifted_ids:
            clean_mask &= ~other_fence.lease.mask
    for lease in partition_entry.leases.values():
        clean_mask &= ~lease.record.mask
    changes: list[Change] = [drop_fence(lease_id) for lease_id in sorted(lifted_ids)]
    if partition_record.dirty_mask & clean_mask:
        dirty_mask = partition_record.dirty_mask & ~clean_mask
        partition_record = msgspec.structs.replace(
            partition_record, dirty=f"{dirty_mask:x}" if dirty_mask else ""
        )
        changes.append(put(partition_record))
    await state.journal.commit(changes)
    state.set(partition_entry, partition_record)
    state.drop_fences(partition_entry, lifted_ids)


async def end_all_leases(
    state: ControllerState, caller: Caller, partition_entry: PartitionEntry, action: str
) -> None:
    """End all leases on a partition by force. Raises Held where fences stand in the way.

    An administrator, and the scheduler whose job it is, know what still runs; nobody else does.
    """
    if partition_entry.leases:
        await end(state, partition_entry, list(partition_entry.leases.values()), keep=True)
    elif partition_entry.fences:
        await settle(state, partition_entry, keep=True)
    if partition_entry.fences and not may_override_fence(caller, partition_entry):
        raise refusal(state, partition_entry, action)
    await force(state, caller, partition_entry, list(partition_entry.fences.values()))


def refusal(state: ControllerState, fenced_partition: PartitionEntry, action: str) -> Held:
    """The error for a partition that nobody holds and that is still fenced."""
    reasons = [
        in_words(state, fenced_partition, fence) for fence in fenced_partition.fences.values()
    ]
    return fencing(fenced_partition.known, reasons, action)


async def force(
    state: ControllerState,
    caller: Caller,
    partition_entry: PartitionEntry,
    lifted_fences: Sequence[FenceRecord],
) -> None:
    """Lift fences at once: the caller knows that nothing of their leases runs."""
    for fence in lifted_fences:
        detail = f"{fence.id}: by force of {caller.name}, not waiting for "
        detail += " and ".join(waits_for(state, partition_entry, fence))
        state.record_event("Fenced", partition_entry.name, fence.lease.owner, detail)
    await lift(state, partition_entry, lifted_fences)


def may_override_fence(caller: Caller, partition_entry: PartitionEntry) -> bool:
    """Whether a caller may confirm that nothing of a partition's leases runs."""
    is_creator = caller.role is Role.SCHEDULER and partition_entry.known.creator == caller.name
    return caller.role is Role.ADMINISTRATOR or is_creator


def _fence_of_lease(
    ended_lease: HeldLease, released_hosts: Collection[str], now: float
) -> FenceRecord:
    lease_hosts = ended_lease.record.hosts or ("",)
    return FenceRecord(
        lease=ended_lease.record,
        hosts=tuple(host for host in lease_hosts if host not in released_hosts),
        since=now,
    )


async def _cut_off_old_epochs(
    state: ControllerState, partition_entry: PartitionEntry, fence: FenceRecord
) -> None:
    devices_by_machine = partition_entry.parts(fence.lease.mask)
    fencing_machines = {
        machine: devices_by_machine[machine]
        for machine in waits_for(state, partition_entry, fence)
        if can_cut_off(state, machine, fence.lease)
    }
    if fencing_machines:
        faults = await state.hardware.fence(
            state.epochs.next(), fencing_machines, run=fence.lease.run
        )
        state.fences.note_cut(
            fence.id, fencing_machines.keys() - {fault.machine for fault in faults}
        )


def _gone_from_own_host(
    state: ControllerState,
    partition_entry: PartitionEntry,
    fence: FenceRecord,
    waited_machines: Sequence[str],
) -> bool:
    """Whether only the server's own host has not confirmed, and nothing of the lease runs on it."""
    own_host = state.own_host
    if own_host is None or not fence.lease.run:
        return False
    named_hosts = [host for host in fence.hosts if host]
    if len(named_hosts) < len(fence.hosts) and not all(map(own_host.has, waited_machines)):
        return False
    return all(map(own_host.is_here, named_hosts)) and own_host.is_gone(
        fence.lease.run, fence.lease.owner_uid
    )


def _only_faulty_machines_left(state: ControllerState, partition_entry: PartitionEntry) -> bool:
    """Whether all that is not cut off is on machines that can do so, and failed to."""
    return all(
        can_cut_off(state, machine, fence.lease)
        for fence in partition_entry.fences.values()
        for machine in waits_for(state, partition_entry, fence)
    )
