"""Fences: what stands between an ended lease and the next one on its devices.

A lease that was released, its hosts saying that the instances are gone, leaves nothing behind.
One that ended in any other way (it ran out, was ended by force, or a host has not spoken) leaves
a fence: silence and time alone never make its devices anybody else's. Either each of its machines
cuts the old epoch off and resets the devices, which counts where the devices themselves refuse old
epochs, or where the machine's agent runs under another account than the launch did; or its hosts
say that nothing runs any more, and this host, where the server itself runs, is looked at; or an
administrator who knows better says so. Until then the partition is FENCING.

Everything here is called with the partition's lock held.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from podwright.controller import _steps as steps
from podwright.controller._caller import Caller, Role
from podwright.controller._core import Core, Entry
from podwright.controller._cutoff import can_cut_off, in_words, waits_for
from podwright.controller._leases import HeldLease, ending
from podwright.controller._records import FenceRecord, drop_fence, drop_lease, put, put_fence
from podwright.controller._refusals import fencing
from podwright.errors import Held
from podwright.store import Change


async def end(
    core: Core,
    entry: Entry,
    ended: Sequence[HeldLease],
    *,
    gone: Collection[str] = (),
    keep: bool = False,
) -> None:
    """Leases end, and nobody said that their instances are gone, but on the hosts `gone`.

    keep: the partition stays, although it came with them.
    """
    record = entry.known
    fences = [_fence(lease, gone, core.now()) for lease in ended]
    mask = record.dirty_mask
    for lease in ended:
        mask |= lease.record.mask
    changes: list[Change] = [drop_lease(lease.record.id) for lease in ended]
    changes += map(put_fence, fences)
    if mask != record.dirty_mask:
        record = msgspec.structs.replace(record, dirty=f"{mask:x}")
        changes.append(put(record))
    with ending(ended):
        await core.journal.commit(changes)
    core.set(entry, record)
    for fence in fences:
        core.add_fence(entry, fence)
    core.drop_leases(entry, ended)
    await settle(core, entry, keep=keep)
    for fence in fences:
        if fence.id in entry.fences:
            core.tell("Fencing", entry.name, fence.lease.owner, in_words(core, entry, fence))


async def settle(core: Core, entry: Entry, *, keep: bool = False) -> None:
    """Do what can be done about a partition's fences; what cannot yet stays."""
    for fence in list(entry.fences.values()):
        await _cut_off(core, entry, fence)
        left = waits_for(core, entry, fence)
        if not left or not fence.hosts or _seen_here(core, entry, fence, left):
            await lift(core, entry, [fence])
    record = entry.known
    if not keep and record.transient and not entry.leases:
        if entry.fences and not _only_faulty(core, entry):
            return
        # Machines that fence, and do not answer, keep their devices in quarantine until they do.
        await lift(core, entry, list(entry.fences.values()))
        await steps.remove(core, entry, force=True)


async def confirm(core: Core, entry: Entry, lease: str, hosts: Collection[str]) -> None:
    """Hosts say that nothing of an ended lease runs on them any more; all do if none is named."""
    fence = entry.fences[lease]
    left = tuple(host for host in fence.hosts if hosts and host not in hosts)
    if left != fence.hosts:
        fence = msgspec.structs.replace(fence, hosts=left)
        await core.journal.commit([put_fence(fence)])
        entry.fences[lease] = fence
    await settle(core, entry)


async def lift(core: Core, entry: Entry, fences: Sequence[FenceRecord]) -> None:
    """Fences are over. What every machine of one has reset is not dirty any more."""
    if not fences:
        return
    record, ids = entry.known, {fence.id for fence in fences}
    clean = 0
    for fence in fences:
        if core.cut[fence.id].issuperset(entry.parts(fence.lease.mask)):
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
    await core.journal.commit(changes)
    core.set(entry, record)
    core.drop_fences(entry, ids)


async def clear_way(core: Core, caller: Caller, entry: Entry, action: str) -> None:
    """End all leases on a partition by force. Raises Held where fences stand in the way.

    An administrator, and the scheduler whose job it is, know what still runs; nobody else does.
    """
    if entry.leases:
        await end(core, entry, list(entry.leases.values()), keep=True)
    elif entry.fences:
        await settle(core, entry, keep=True)
    if entry.fences and not overrides(caller, entry):
        raise refusal(core, entry, action)
    await force(core, caller, entry, list(entry.fences.values()))


def refusal(core: Core, entry: Entry, action: str) -> Held:
    """Nobody holds a partition, and yet it is not free."""
    why = [in_words(core, entry, fence) for fence in entry.fences.values()]
    return fencing(entry.known, why, action)


async def force(core: Core, caller: Caller, entry: Entry, fences: Sequence[FenceRecord]) -> None:
    """Wait for nothing: the caller knows that nothing of these leases runs."""
    for fence in fences:
        what = f"{fence.id}: by force of {caller.name}, not waiting for "
        what += " and ".join(waits_for(core, entry, fence))
        core.tell("Fenced", entry.name, fence.lease.owner, what)
    await lift(core, entry, fences)


def overrides(caller: Caller, entry: Entry) -> bool:
    """Whether a caller may say that nothing of a partition's leases runs any more."""
    made = caller.role is Role.SCHEDULER and entry.known.creator == caller.name
    return caller.role is Role.ADMINISTRATOR or made


def _fence(lease: HeldLease, gone: Collection[str], now: float) -> FenceRecord:
    known = lease.record.hosts or ("",)
    return FenceRecord(
        lease=lease.record, hosts=tuple(host for host in known if host not in gone), since=now
    )


async def _cut_off(core: Core, entry: Entry, fence: FenceRecord) -> None:
    parts = entry.parts(fence.lease.mask)
    able = {
        machine: parts[machine]
        for machine in waits_for(core, entry, fence)
        if can_cut_off(core, machine, fence.lease)
    }
    if able:
        faults = await core.hardware.fence(core.next_epoch(), able, run=fence.lease.run)
        core.cut[fence.id] |= able.keys() - {fault.machine for fault in faults}


def _seen_here(core: Core, entry: Entry, fence: FenceRecord, machines: Sequence[str]) -> bool:
    """Whether this host is all that is left to speak, and nothing of the lease is on it."""
    here = core.here
    if here is None or not fence.lease.run:
        return False
    named = [host for host in fence.hosts if host]
    if len(named) < len(fence.hosts) and not all(map(here.has, machines)):
        return False
    return all(map(here.is_here, named)) and here.is_gone(fence.lease.run, fence.lease.owner_uid)


def _only_faulty(core: Core, entry: Entry) -> bool:
    """Whether all that is not cut off is on machines that can do so, and failed to."""
    return all(
        can_cut_off(core, machine, fence.lease)
        for fence in entry.fences.values()
        for machine in waits_for(core, entry, fence)
    )
