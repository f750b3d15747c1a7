"""What an index works out once and keeps: the shapes of a kind of request, places, reasons.

All of it follows from the hardware and the allocations alone, so it is dropped when those
change, and otherwise only to bound the memory it takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from podwright.fabric import Cluster, ClusterTopology
from podwright.placement._free_pool import Place, Pool
from podwright.placement._infeasible import Reasons
from podwright.placement._shape_rules import Illegal, Shape, shapes
from podwright.placement._spans import DOMAIN
from podwright.placement._values import Block, Placement, Request

#: How many kinds of request are kept.
_KINDS_MAX = 1 << 10
#: How many places: so many, or one for each two devices if that is more.
_PLACES_MAX = 1 << 16

#: A kind of request: size, domains, gcds and allocation.
Kind = tuple[int, int | None, int, str | None]
#: A shape, its domains and order, where to look for it, and its places there that are kept, by
#: their first block; None where they are not kept. A plain tuple, for those unpack fastest.
Option = tuple[Shape, int, int, Pool, "list[Place | None] | None"]


class Memory:
    """Kept between two changes of the allocations. pools: by allocation; None for all."""

    def __init__(self, cluster: Cluster, pools: dict[str | None, tuple[Pool, ...]]) -> None:
        self._cluster = cluster
        self.pools = pools
        self.options: dict[Kind, tuple[Option, ...]] = {}
        self._reasons: dict[Kind, Reasons] = {}
        #: Whose places are kept and at which block, the oldest first.
        self._places: deque[tuple[list[Place | None], int]] = deque()
        self._places_max = max(_PLACES_MAX, cluster.size // 2)

    def learn(self, kind: Kind) -> tuple[Option, ...]:
        """What would fulfil a request, best first; kept in `options`. None if it is illegal."""
        size, domains, gcds, name = kind
        try:
            found = shapes(self._cluster, size, domains, gcds)
        except Illegal:
            return ()
        if len(self.options) >= _KINDS_MAX:
            self.options.clear()
        options = self.options[kind] = tuple(
            (shape, shape.domains, shape.order, pool, self._kept(pool, shape))
            for shape in found
            for pool in self.pools.get(name, ())
        )
        return options

    def _kept(self, pool: Pool, shape: Shape) -> list[Place | None] | None:
        looped = self._cluster.topology is ClusterTopology.LOOPED
        if shape.domains > 2 or (shape.domains == 2 and not looped):
            return None  # the first block does not tell the others, or there are too many
        if shape not in pool.known:
            pool.known[shape] = [None] * (len(pool.holders) >> shape.order)
        return pool.known[shape]

    def place(self, option: Option, slots: Sequence[int]) -> Place:
        """The place of a shape at these slots, made now and kept."""
        shape, _, order, pool, known = option
        if known is None:
            return make_place(pool, shape, slots)
        if len(self._places) >= self._places_max:
            oldest, at = self._places.popleft()
            oldest[at] = None
        first = slots[0] >> order
        self._places.append((known, first))
        place = known[first] = make_place(pool, shape, slots)
        return place

    def reasons(self, request: Request, pools: Sequence[Pool]) -> Reasons:
        """What stands in the way of requests of this kind."""
        kind = (request.size, request.domains, request.gcds, request.allocation)
        reasons = self._reasons.get(kind)
        if reasons is None:
            if len(self._reasons) >= _KINDS_MAX:
                self._reasons.clear()
            reasons = self._reasons[kind] = Reasons(self._cluster, pools, request)
        return reasons


def make_place(pool: Pool, shape: Shape, slots: Sequence[int]) -> Place:
    """The placement of a shape at these slots, and where it lies."""
    _, order, gcd = shape
    part = 1 << order
    blocks = tuple(Block(pool.domains[slot // DOMAIN], slot % DOMAIN, part) for slot in slots)
    gcds = blocks
    if gcd < part:
        gcds = tuple(Block(d, at, gcd) for d, o, _ in blocks for at in range(o, o + part, gcd))
    return Place(Placement(pool.name, blocks, gcds), pool, slots, order)
