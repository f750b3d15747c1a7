"""Who can keep an ended lease's processes from its devices, and what a fence waits for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from podwright.controller.state._leases import HeldLease
from podwright.controller.state._records import FenceRecord, LeaseRecord

if TYPE_CHECKING:
    from podwright.controller.state._controller_state import ControllerState
    from podwright.controller.state._partition_index import Entry

ROOT: Final = 0


def would_cut_off(state: ControllerState, entry: Entry, lease: HeldLease) -> bool:
    """Whether all machines of a live lease could keep it from its devices."""
    return all(can_cut_off(state, machine, lease.record) for machine in entry.parts())


def can_cut_off(state: ControllerState, machine: str, lease: LeaseRecord) -> bool:
    """Whether a machine can keep an old epoch's processes from its devices, though these do not
    want that: devices that refuse it do, and so does an agent whose account is another.

    Our choice for a launch whose account is unknown, as with access keys: an agent that is root
    counts as another account, unless the lease is root's.
    """
    report = state.hardware.cuts.get(machine)
    if report is None or not report.by:
        return False
    if report.by == "devices":
        return True
    if lease.owner_uid < 0:
        return report.uid == ROOT and lease.owner not in ("root", "anonymous")
    return report.uid >= 0 and report.uid != lease.owner_uid


def waits_for(state: ControllerState, entry: Entry, fence: FenceRecord) -> list[str]:
    """The machines that have not cut a fence's old epoch off, by name."""
    cut = state.fences.cut(fence.id)
    return [machine for machine in entry.parts(fence.lease.mask) if machine not in cut]


def in_words(state: ControllerState, entry: Entry, fence: FenceRecord) -> str:
    """What a fence waits for, and what would end it."""
    lease = fence.lease
    machines = waits_for(state, entry, fence)
    able = [m for m in machines if can_cut_off(state, m, fence.lease)]
    unable = [m for m in machines if m not in able]
    named = " and ".join(host for host in fence.hosts if host) or "its hosts, which it did not name"
    text = (
        f"lease {lease.id} of {lease.holder or lease.owner} ended {state.now() - fence.since:.0f}"
    )
    text += f" s ago without word from {named} that its instances are gone"
    if unable:
        text += f"; no agent under another account can cut them off on {', '.join(unable)}"
    if able:
        text += f"; {', '.join(able)} did not answer, or did not cut them off"
    return text
