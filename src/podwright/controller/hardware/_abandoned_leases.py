"""Leases of launches that were killed on the server's own host, watchers and all.

Such a lease would be held until its time is over, minutes later: nobody is left to renew it or to
give it back. Where every host of a lease is the server's own, the server can look. A lease ends
early only if all of this is so:

- The server has seen a process of the launch before, at its first look when the lease began
  (`_find_launch_processes`) or at a later one. What it cannot see (another account's, one
  in a container of the same name) it never takes for gone.
- The lease has not been renewed for SILENT seconds; a launch renews every three. - LOOKS_BEFORE_END
looks at all processes, LOOK_INTERVAL_SECONDS apart, find none of the launch: no instance,
  nothing in its cgroup, and none of its watchers. A single look is not an instant: a process may be
  forked behind it while its parent ends.

Then the lease ends as one that was released with the word of all its hosts. A lease within a
job's is left alone: the job's scheduler ends it.
"""

from __future__ import annotations

from typing import Final

from podwright.controller.hardware import _partition_steps as steps
from podwright.controller.hardware._find_launch_processes import (
    look_for_processes,
    may_look_for_launch,
)
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._leases import HeldLease, descendants

#: Seconds without a renewal after which a launch is looked for.
SILENT_AFTER_S: Final = 7.0
LOOK_INTERVAL_SECONDS: Final = 2.0
LOOKS_BEFORE_END: Final = 2
#: How often a launch is looked for that is new; one that cannot be seen is then left alone.
MAX_FIRST_LOOKS: Final = 20


class AbandonedLaunches:
    """Finds launches whose processes have all ended."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._look_at = 0.0

    async def check(self) -> None:
        """Examine new launches, and every LOOK_INTERVAL_SECONDS those that do not renew."""
        state = self._state
        now = state.now()
        if state.own_host is None:
            return
        looks_again_now = now >= self._look_at
        self._look_at = now + LOOK_INTERVAL_SECONDS if looks_again_now else self._look_at
        for lease in list(state.leases.marked.values()):
            is_new_launch = not lease.seen and lease.missed < MAX_FIRST_LOOKS
            if may_look_for_launch(state, lease) and (
                is_new_launch or (looks_again_now and lease.seen and late(lease, now))
            ):
                await look_for_processes(state, lease)
                if lease.seen and lease.missed >= LOOKS_BEFORE_END:
                    await self._end_lease(lease)

    async def _end_lease(self, lease: HeldLease) -> None:
        state = self._state
        partition_entry = state.partitions.get(lease.record.partition)
        if partition_entry is None:
            return
        await partition_entry.lock.acquire()
        try:
            if (
                lease.ending
                or lease.record.id not in partition_entry.leases
                or not late(lease, state.now())
            ):
                return
            event_detail = f"{lease.record.id}: nothing of its launch is left on this host"
            state.record_event("LeaseEnd", partition_entry.name, lease.record.owner, event_detail)
            ending_leases = descendants(lease.record.id, partition_entry.leases.values())
            await steps.end_leases(state, partition_entry, ending_leases)
        finally:
            partition_entry.lock.release()


def late(lease: HeldLease, now: float) -> bool:
    """Whether nobody has renewed a lease for SILENT seconds."""
    return now - (lease.expires - lease.record.ttl) > SILENT_AFTER_S
