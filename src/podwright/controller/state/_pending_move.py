"""A move that a launch has been told of and has not made yet. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from podwright.controller.state._cluster_index import IndexedCluster
from podwright.placement import Block, Placement


@dataclass(frozen=True, slots=True)
class PendingMove:
    """A launch is asked to end, so that its partition gets other devices.

    Nothing of it is written down: a server that was down has thought better of it, and the launch
    starts again where it was. target: taken in the index until it has moved, or need not any more.
    waiter: who gets room by it; empty: nobody, its machine is drained. room: the place that the
    waiter then gets. until: when it must have ended. size: devices. seconds: what it loses.
    room_for: whom a scheduler makes room for, in its words, where it asked; it calls off, too.
    """

    id: str
    partition: str
    owner: str
    size: int
    lease: str
    cluster: IndexedCluster
    target: Placement
    waiter: str
    room: tuple[Block, ...]
    until: float
    seconds: float
    room_for: str = ""
