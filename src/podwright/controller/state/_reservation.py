"""The place that is planned for the first waiter, and what of it is reserved. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from podwright.controller.state._cluster_index import IndexedCluster
from podwright.placement import Block, Placement


@dataclass(frozen=True, slots=True)
class Goal:
    """A place for a waiter.

    starts_at: when it is expected to be free, in seconds of `ControllerState.now`. known: this time
    rests on what its holders announced, and is not a guess. busy: how many of its devices are in
    use. partitions: the names of the partitions that use them.
    """

    cluster: IndexedCluster
    allocation: str
    blocks: tuple[Block, ...]
    starts_at: float
    known: bool
    busy: int
    partitions: tuple[str, ...]

    @property
    def pool(self) -> tuple[str, str]:
        """The cluster and the allocation."""
        return self.cluster.layout.name, self.allocation


@dataclass(slots=True)
class Reservation:
    """A goal of a waiter, and the free part of it that nobody else may take.

    order: the waiter's rank in the queue. placements: the reserved parts of the goal. missing: its
    other blocks. owner: the user who waits. guest: the scheduler whose job waits; empty for
    a waiter of the server's own queue.
    """

    waiter: str
    order: tuple[int, float, str]
    goal: Goal
    planned_at: float
    owner: str = ""
    guest: str = ""
    placements: list[Placement] = field(default_factory=list)
    missing: list[Block] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.missing = list(self.goal.blocks)
        self.reserve_free_blocks()

    @property
    def reserved(self) -> int:
        """The number of devices that are reserved."""
        return sum(placement.size for placement in self.placements)

    def reserve_free_blocks(self) -> None:
        """Reserve all devices of the goal that are free."""
        placement_index, remaining_blocks, self.missing = self.goal.cluster.index, self.missing, []
        while remaining_blocks:
            block = remaining_blocks.pop()
            block_placement = Placement(self.goal.allocation, (block,), (block,))
            try:
                placement_index.take(block_placement)
            except ValueError:
                if block.size == 1:
                    self.missing.append(block)
                    continue
                half_size = block.size // 2
                remaining_blocks.append(Block(block.domain, block.offset, half_size))
                remaining_blocks.append(
                    Block(block.domain, block.offset + half_size, block.size - half_size)
                )
            else:
                self.placements.append(block_placement)

    def lift(self) -> None:
        """Release all reserved devices."""
        for placement in self.placements:
            self.goal.cluster.index.release(placement)
        self.placements, self.missing = [], list(self.goal.blocks)
