"""Who can keep an ended lease's processes from its devices, and what a fence waits for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from podwright.controller.state._leases import HeldLease
from podwright.controller.state._records import FenceRecord, LeaseRecord

if TYPE_CHECKING:
    from podwright.controller.state._controller_state import ControllerState
    from podwright.controller.state._partition_index import PartitionEntry

ROOT_UID: Final = 0


def would_cut_off(
    state: ControllerState, partition_entry: PartitionEntry, lease: HeldLease
) -> bool:
    """Whether all machines of a live lease could keep it from its devices."""
    return all(can_cut_off(state, machine, lease.record) for machine in partition_entry.parts())


def can_cut_off(state: ControllerState, machine: str, lease_record: LeaseRecord) -> bool:
    """Whether a machine can keep an old epoch's processes from its devices, though these do not
    want that: devices that refuse it do, and so does an agent whose account is another.

    Our choice for a launch whose account is unknown, as with access keys: an agent that is root
    counts as another account, unless the lease is root's.
    """
    machine_cut = state.hardware.cuts.get(machine)
    if machine_cut is None or not machine_cut.by:
        return False
    if machine_cut.by == "devices":
        return True
    if lease_record.owner_uid < 0:
        return machine_cut.uid == ROOT_UID and lease_record.owner not in ("root", "anonymous")
    return machine_cut.uid >= 0 and machine_cut.uid != lease_record.owner_uid


def waits_for(
    state: ControllerState, partition_entry: PartitionEntry, fence: FenceRecord
) -> list[str]:
    """The machines that have not cut a fence's old epoch off, by name."""
    cut_machines = state.fences.cut(fence.id)
    return [
        machine
        for machine in partition_entry.parts(fence.lease.mask)
        if machine not in cut_machines
    ]


def in_words(state: ControllerState, partition_entry: PartitionEntry, fence: FenceRecord) -> str:
    """What a fence waits for, and what would end it."""
    lease = fence.lease
    uncut_machines = waits_for(state, partition_entry, fence)
    able_machines = [
        machine for machine in uncut_machines if can_cut_off(state, machine, fence.lease)
    ]
    unable_machines = [machine for machine in uncut_machines if machine not in able_machines]
    host_names = (
        " and ".join(host for host in fence.hosts if host) or "its hosts, which it did not name"
    )
    fence_sentence = (
        f"lease {lease.id} of {lease.holder or lease.owner} ended {state.now() - fence.since:.0f}"
    )
    fence_sentence += f" s ago without word from {host_names} that its instances are gone"
    if unable_machines:
        fence_sentence += (
            f"; no agent under another account can cut them off on {', '.join(unable_machines)}"
        )
    if able_machines:
        fence_sentence += f"; {', '.join(able_machines)} did not answer, or did not cut them off"
    return fence_sentence
