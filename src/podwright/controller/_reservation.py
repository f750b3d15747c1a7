"""A place that is planned for who waits first, and what of it is kept. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from podwright.controller._admission import Admission
from podwright.controller._cluster_index import IndexedCluster
from podwright.placement import Block, Placement
from podwright.wire import Routing

if TYPE_CHECKING:
    pass


class Taken(NamedTuple):
    """Devices that are already taken in the index for somebody who is about to start, and count
    for him. routing: inside their link domains."""

    site: IndexedCluster
    placement: Placement
    admitted: Admission
    routing: Routing


@dataclass(frozen=True, slots=True)
class Goal:
    """A place for a waiter. known: `starts_at` rests on what others said, not on a guess.

    busy: devices of it that somebody has. partitions: whose they are.
    """

    site: IndexedCluster
    allocation: str
    blocks: tuple[Block, ...]
    starts_at: float
    known: bool
    busy: int
    partitions: tuple[str, ...]

    @property
    def pool(self) -> tuple[str, str]:
        """The cluster and the allocation."""
        return self.site.cluster.name, self.allocation


@dataclass(slots=True)
class Reservation:
    """A goal, and what of it is kept."""

    waiter: str
    order: tuple[int, float, str]
    goal: Goal
    planned_at: float
    held: list[Placement] = field(default_factory=list)
    missing: list[Block] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.missing = list(self.goal.blocks)
        self.absorb()

    @property
    def kept(self) -> int:
        """Devices that are kept."""
        return sum(placement.size for placement in self.held)

    def absorb(self) -> None:
        """Keep whatever is free of the goal."""
        index, todo, self.missing = self.goal.site.index, self.missing, []
        while todo:
            block = todo.pop()
            piece = Placement(self.goal.allocation, (block,), (block,))
            try:
                index.take(piece)
            except ValueError:
                if block.size == 1:
                    self.missing.append(block)
                    continue
                half = block.size // 2
                todo.append(Block(block.domain, block.offset, half))
                todo.append(Block(block.domain, block.offset + half, block.size - half))
            else:
                self.held.append(piece)

    def lift(self) -> None:
        """Keep nothing for the moment."""
        for piece in self.held:
            self.goal.site.index.release(piece)
        self.held, self.missing = [], list(self.goal.blocks)
