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

from podwright.controller.hardware import _steps as steps
from podwright.controller.requests._refusals import fencing
from podwright.controller.state._caller import Caller, Role
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._cutoff import can_cut_off, in_words, waits_for
from podwright.controller.state._leases import HeldLease, ending
from podwright.controller.state._partition_index import Entry
from podwright.controller.state._records import FenceRecord, drop_fence, put, put_fence
from podwright.errors import Held
from podwright.store import Change


async def end(
    state: ControllerState,
    entry: Entry,
    leases: Sequence[HeldLease],
    *,
    released_hosts: Collection[str] = (),
    keep: bool = False,
) -> None:
    """End leases whose instances may still run, and fence their devices.

    released_hosts: hosts on which the instances are known to have ended. keep: the partition stays,
    even if it was created with these leases.
    """
    fences = [_fence(lease, released_hosts, state.now()) for lease in leases]
    record, changes = steps.without_leases(entry.known, leases)
    changes += map(put_fence, fences)
    with ending(leases):
        await state.journal.commit(changes)
    state.set(entry, record)
    for fence in fences:
        state.fences.add(entry, fence)
    state.drop_leases(entry, leases)
    await settle(state, entry, keep=keep)
    for fence in fences:
        if fence.id in entry.fences:
            state.record_event(
                "Fencing", entry.name, fence.lease.owner, in_words(state, entry, fence)
            )


async def settle(state: ControllerState, entry: Entry, *, keep: bool = False) -> None:
    """Cut old epochs off where that is possible, and lift the fences that wait no more.

    A transient partition without leases is then removed. keep: it stays.
    """
    for fence in list(entry.fences.values()):
        await _cut_off(state, entry, fence)
        left = waits_for(state, entry, fence)
        if not left or not fence.hosts or _seen_here(state, entry, fence, left):
            await lift(state, entry, [fence])
    record = entry.known
    if not keep and record.transient and not entry.leases:
        if entry.fences and not _only_faulty(state, entry):
            return
        # Machines that fence, and do not answer, keep their devices in quarantine until they do.
        await lift(state, entry, list(entry.fences.values()))
        await steps.remove(state, entry, force=True)


async def confirm(state: ControllerState, entry: Entry, lease: str, hosts: Collection[str]) -> None:
    """Note that nothing of an ended lease runs on these hosts; on all of them if none is named."""
    fence = entry.fences[lease]
    left = tuple(host for host in fence.hosts if hosts and host not in hosts)
    if left != fence.hosts:
        fence = msgspec.structs.replace(fence, hosts=left)
        await state.journal.commit([put_fence(fence)])
        entry.fences[lease] = fence
    await settle(state, entry)


async def lift(state: ControllerState, entry: Entry, fences: Sequence[FenceRecord]) -> None:
    """Remove fences. Devices that all machines of a fence have reset become clean."""
    if not fences:
        return
    record, ids = entry.known, {fence.id for fence in fences}
    clean = 0
    for fence in fences:
        if state.fences.cut(fence.id) >= entry.parts(fence.lease.mask).keys():
            clean |= fence.lease.mask
    for other in entry.fences.values():
        if other.id not in ids:
            clean &= ~other.lease.mask
    for lease in entry.leases.values():
        clean &= ~lease.record.mask
    changes: list[Change] = [drop_fence(name) for name in sorted(ids)]
    if record.dirty_mask & clean:
        mask = record.dirty_mask & ~clean
        record = msgspec.structs.replace(record, dirty=f"{mask:x}" if mask else "")
        changes.append(put(record))
    await state.journal.commit(changes)
    state.set(entry, record)
    state.drop_fences(entry, ids)


async def clear_way(state: ControllerState, caller: Caller, entry: Entry, action: str) -> None:
    """End all leases on a partition by force. Raises Held where fences stand in the way.

    An administrator, and the scheduler whose job it is, know what still runs; nobody else does.
    """
    if entry.leases:
        await end(state, entry, list(entry.leases.values()), keep=True)
    elif entry.fences:
        await settle(state, entry, keep=True)
    if entry.fences and not overrides(caller, entry):
        raise refusal(state, entry, action)
    await force(state, caller, entry, list(entry.fences.values()))


def refusal(state: ControllerState, entry: Entry, action: str) -> Held:
    """The error for a partition that nobody holds and that is still fenced."""
    reasons = [in_words(state, entry, fence) for fence in entry.fences.values()]
    return fencing(entry.known, reasons, action)


async def force(
    state: ControllerState, caller: Caller, entry: Entry, fences: Sequence[FenceRecord]
) -> None:
    """Lift fences at once: the caller knows that nothing of their leases runs."""
    for fence in fences:
        detail = f"{fence.id}: by force of {caller.name}, not waiting for "
        detail += " and ".join(waits_for(state, entry, fence))
        state.record_event("Fenced", entry.name, fence.lease.owner, detail)
    await lift(state, entry, fences)


def overrides(caller: Caller, entry: Entry) -> bool:
    """Whether a caller may confirm that nothing of a partition's leases runs."""
    is_creator = caller.role is Role.SCHEDULER and entry.known.creator == caller.name
    return caller.role is Role.ADMINISTRATOR or is_creator


def _fence(lease: HeldLease, released_hosts: Collection[str], now: float) -> FenceRecord:
    known = lease.record.hosts or ("",)
    return FenceRecord(
        lease=lease.record,
        hosts=tuple(host for host in known if host not in released_hosts),
        since=now,
    )


async def _cut_off(state: ControllerState, entry: Entry, fence: FenceRecord) -> None:
    parts = entry.parts(fence.lease.mask)
    able = {
        machine: parts[machine]
        for machine in waits_for(state, entry, fence)
        if can_cut_off(state, machine, fence.lease)
    }
    if able:
        faults = await state.hardware.fence(state.epochs.next(), able, run=fence.lease.run)
        state.fences.note_cut(fence.id, able.keys() - {fault.machine for fault in faults})


def _seen_here(
    state: ControllerState, entry: Entry, fence: FenceRecord, machines: Sequence[str]
) -> bool:
    """Whether only the server's own host has not confirmed, and nothing of the lease runs on it."""
    own_host = state.own_host
    if own_host is None or not fence.lease.run:
        return False
    named = [host for host in fence.hosts if host]
    if len(named) < len(fence.hosts) and not all(map(own_host.has, machines)):
        return False
    return all(map(own_host.is_here, named)) and own_host.is_gone(
        fence.lease.run, fence.lease.owner_uid
    )


def _only_faulty(state: ControllerState, entry: Entry) -> bool:
    """Whether all that is not cut off is on machines that can do so, and failed to."""
    return all(
        can_cut_off(state, machine, fence.lease)
        for fence in entry.fences.values()
        for machine in waits_for(state, entry, fence)
    )
