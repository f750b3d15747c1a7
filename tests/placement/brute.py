"""The rules of placement once more, in readable form: every legal shape is listed and tried.

The module shares only values with the package, so tests compare two independent answers.
"""

from __future__ import annotations

from collections.abc import Iterator

from podwright.fabric import Cluster, ClusterTopology
from podwright.placement import Block, Request

Device = tuple[int, int]

SIZES_OF_BLOCKS = (1, 2, 4, 8, 16, 32, 64)


def devices_of(blocks: tuple[Block, ...]) -> list[Device]:
    return [(b.domain, b.offset + i) for b in blocks for i in range(b.size)]


def legal_blocks(
    cluster: Cluster, size: int, domains: int | None, gcds: int
) -> Iterator[tuple[Block, ...]]:
    """Every set of blocks that a partition of this family may have, in routing order."""
    there = len(cluster.domains)
    if size <= 0 or gcds <= 0 or size % gcds or size // gcds not in SIZES_OF_BLOCKS:
        return
    if (size > 64 and size % 64) or (size < 64 and size not in SIZES_OF_BLOCKS):
        return
    for count in range(1, there + 1):
        if domains not in (None, count) or size % count or gcds % count:
            continue
        part = size // count
        if part not in SIZES_OF_BLOCKS or (size > 64 and part != 64):
            continue
        if count > 1 and (size <= 2 or cluster.topology is ClusterTopology.NONE):
            continue
        for run in _runs(cluster, count):
            for offset in range(0, 64, part):
                if all(offset + part <= cluster.domain_size(d) for d in run):
                    yield tuple(Block(d, offset, part) for d in run)


def _runs(cluster: Cluster, count: int) -> list[list[int]]:
    there = len(cluster.domains)
    if cluster.topology is ClusterTopology.SWITCHED:
        return [
            [d for d in range(there) if chosen >> d & 1]
            for chosen in range(1 << there)
            if chosen.bit_count() == count
        ]
    starts = 1 if count == there else there
    return [[(start + i) % there for i in range(count)] for start in range(starts)]


class Brute:
    """Devices by name, in sets; slow and plain."""

    def __init__(self, cluster: Cluster, allocations: dict[str, list[str]]) -> None:
        self.cluster = cluster
        self.allocations = {name: self._of(machines) for name, machines in allocations.items()}
        self.drained: set[Device] = set()
        self.allocated: set[Device] = set()

    def _of(self, machines: list[str]) -> set[Device]:
        every = [
            (d, i) for d in range(len(self.cluster.domains))
            for i in range(self.cluster.domain_size(d))
        ]  # fmt: skip
        return {device for device in every if self.cluster.machine_of(*device).name in machines}

    def set_up(self, machine: str, *, up: bool) -> None:
        devices = self._of([machine])
        self.drained = self.drained - devices if up else self.drained | devices

    def usable(self, allocation: str) -> set[Device]:
        return self.allocations[allocation] - self.drained - self.allocated

    def choices(self, request: Request, *, ever: bool = False) -> set[tuple[Block, ...]]:
        """Return all sets of blocks that fit; `ever`: as if nothing were taken or drained."""
        if request.allocation is not None and request.allocation not in self.allocations:
            return set()
        names = list(self.allocations) if request.allocation is None else [request.allocation]
        size = request.size
        if request.blocks is not None:
            named = devices_of(request.blocks)
            if size not in (0, len(named)) or len(set(named)) != len(named):
                return set()
            size = len(named)
        out = set()
        for blocks in legal_blocks(self.cluster, size, request.domains, request.gcds):
            devices = set(devices_of(blocks))
            if request.blocks is not None and devices != set(named):
                continue
            if any(devices <= (self.allocations[n] if ever else self.usable(n)) for n in names):
                out.add(blocks)
        return out
