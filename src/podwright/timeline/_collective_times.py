"""The time of each collective in each instance: waiting for others, and transferring.

An instance enters a collective, and leaves it once it has the result. Until the last member has
entered, no member can have the whole result, so that part of the call is waiting. The rest is
transfer. A member that leaves before the last has entered (as the root of a broadcast may) has
waited at most until it left.

Members of one collective are found by the flow that their slices share. When records of a member
are missing, because the file is cut off or records were left out, the latest known arrival counts.
Then the reported waiting is a lower bound, and never too much.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from podwright.timeline._read_back import Timeline, TrackSlice


class CollectiveTime(NamedTuple):
    """One call of a collective by one instance: nanoseconds of waiting, then of transfer."""

    waiting: int
    transfer: int


class Arrivals(NamedTuple):
    """The arrivals of one collective's members: (time in nanoseconds, track), in order."""

    members: tuple[tuple[int, int], ...]

    @property
    def latest(self) -> int:
        """The time at which the last member entered."""
        return self.members[-1][0]


def arrivals(timeline: Timeline) -> dict[int, Arrivals]:
    """Return the arrivals of each collective's members, by the flow of the collective."""
    members_by_flow: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for call_slice in timeline.of("collective"):
        for flow in call_slice.flows:
            members_by_flow[flow].append((call_slice.begin, call_slice.track))
    return {flow: Arrivals(tuple(sorted(members))) for flow, members in members_by_flow.items()}


def split_time(call_slice: TrackSlice, arrivals_by_flow: dict[int, Arrivals]) -> CollectiveTime:
    """Divide an instance's call of a collective into waiting and transfer."""
    arrival = max(
        (arrivals_by_flow[flow].latest for flow in call_slice.flows if flow in arrivals_by_flow),
        default=call_slice.begin,
    )
    waiting_ns = min(max(arrival - call_slice.begin, 0), call_slice.end - call_slice.begin)
    return CollectiveTime(waiting_ns, call_slice.end - call_slice.begin - waiting_ns)
