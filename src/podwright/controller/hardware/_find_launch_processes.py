"""Whether the server sees the processes of a launch, where all of them are on its own host.

A launch can be killed with all its watchers in the second in which its lease begins. The server
gives such a lease back early only if it has seen the launch before (`_abandoned_leases`). It
therefore looks as soon as a lease begins, and does not leave the first look to the reconciler's
next tick.
"""

from __future__ import annotations

from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._leases import HeldLease


def look_for_new_launch(state: ControllerState, lease: HeldLease) -> None:
    """Look for the launch of a lease that begins now, beside what its call goes on to do."""
    if may_look_for_launch(state, lease):
        state.spawn(look_for_processes(state, lease))


def may_look_for_launch(state: ControllerState, lease: HeldLease) -> bool:
    """Return whether all hosts of a launch are the server's own, and no job decides its end."""
    lease_record, own_host = lease.record, state.own_host
    partition_entry = state.partitions.get(lease_record.partition)
    within_job = bool(lease_record.parent) or (
        partition_entry is not None and bool(partition_entry.known.job)
    )
    if (
        own_host is None
        or within_job
        or lease.ending
        or not lease_record.run
        or not lease_record.hosts
    ):
        return False
    return all(map(own_host.is_here, lease_record.hosts))


async def look_for_processes(state: ControllerState, lease: HeldLease) -> None:
    """Look for processes of a launch once, and count what the looks found in its lease."""
    assert state.own_host is not None
    processes_live = await state.own_host.lives(lease.record.run, lease.record.owner_uid)
    if processes_live:
        lease.seen, lease.missed = True, 0
    elif processes_live is False or not lease.seen:
        lease.missed += 1
