"""Leases of launches that were killed on the server's own host, watchers and all.

Such a lease would be held until its time is over, minutes later: nobody is left to renew it or to
give it back. Where every host of a lease is the server's own, the server can look. A lease ends
early only if all of this is so:

- The server has seen a process of the launch before, at its first look when the lease began
  (`_launch_sight`) or at a later one. What it cannot see (another account's, one
  in a container of the same name) it never takes for gone.
- The lease has not been renewed for SILENT seconds; a launch renews every three.
- LOOKS looks at all processes, LOOK_EVERY seconds apart, find none of the launch: no instance,
  nothing in its cgroup, and none of its watchers. A single look is not an instant: a process may be
  forked behind it while its parent ends.

Then the lease ends as one that was released with the word of all its hosts. A lease within a
job's is left alone: the job's scheduler ends it.
"""

from __future__ import annotations

from typing import Final

from podwright.controller.hardware import _steps as steps
from podwright.controller.hardware._launch_sight import look_once, may_look
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._leases import HeldLease, descendants

#: Seconds without a renewal after which a launch is looked for.
SILENT: Final = 7.0
LOOK_EVERY: Final = 2.0
LOOKS: Final = 2
#: How often a launch is looked for that is new; one that cannot be seen is then left alone.
FIRST_LOOKS: Final = 20


class AbandonedLaunches:
    """Finds launches whose processes have all ended."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._look_at = 0.0

    async def check(self) -> None:
        """Examine new launches, and every LOOK_EVERY seconds those that do not renew."""
        state = self._state
        now = state.now()
        if state.own_host is None:
            return
        due = now >= self._look_at
        self._look_at = now + LOOK_EVERY if due else self._look_at
        for lease in list(state.leases.values()):
            new = not lease.seen and lease.missed < FIRST_LOOKS
            if may_look(state, lease) and (new or (due and lease.seen and late(lease, now))):
                await look_once(state, lease)
                if lease.seen and lease.missed >= LOOKS:
                    await self._end(lease)

    async def _end(self, lease: HeldLease) -> None:
        state = self._state
        entry = state.partitions.get(lease.record.partition)
        if entry is None:
            return
        await entry.lock.acquire()
        try:
            if lease.ending or lease.record.id not in entry.leases or not late(lease, state.now()):
                return
            words = f"{lease.record.id}: nothing of its launch is left on this host"
            state.record_event("LeaseEnd", entry.name, lease.record.owner, words)
            ending_leases = descendants(lease.record.id, entry.leases.values())
            await steps.end_leases(state, entry, ending_leases)
        finally:
            entry.lock.release()


def late(lease: HeldLease, now: float) -> bool:
    """Whether nobody has renewed a lease for SILENT seconds."""
    return now - (lease.expires - lease.record.ttl) > SILENT
