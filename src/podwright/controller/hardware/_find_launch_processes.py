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
    record, host = lease.record, state.own_host
    entry = state.partitions.get(record.partition)
    job = bool(record.parent) or (entry is not None and bool(entry.known.job))
    if host is None or job or lease.ending or not record.run or not record.hosts:
        return False
    return all(map(host.is_here, record.hosts))


async def look_for_processes(state: ControllerState, lease: HeldLease) -> None:
    """Look for processes of a launch once, and count what the looks found in its lease."""
    assert state.own_host is not None
    live = await state.own_host.lives(lease.record.run, lease.record.owner_uid)
    if live:
        lease.seen, lease.missed = True, 0
    elif live is False or not lease.seen:
        lease.missed += 1
