"""What an index computes once and keeps: the shapes of a kind of request, places, reasons.

All of it follows from the hardware and the allocations alone. It is dropped when those change, and
otherwise only to bound the memory that it takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from podwright.fabric import Cluster, ClusterTopology
from podwright.placement._aligned_block_search import DOMAIN
from podwright.placement._free_pool import Place, Pool
from podwright.placement._infeasible import RefusalReasons
from podwright.placement._placement_types import Block, Placement, Request
from podwright.placement._shape_rules import IllegalShape, Shape, shapes

#: How many kinds of request are kept.
_KINDS_MAX = 1 << 10
#: How many places are kept: this number, or one for each two devices if that is more.
_PLACES_MAX = 1 << 16

#: A kind of request: size, domains, gcds and allocation.
Kind = tuple[int, int | None, int, str | None]
#: A shape, its domains and order, the pool to look in, and its known places there by their first
#: block; None where places are not kept. It is a plain tuple, since those unpack fastest.
Option = tuple[Shape, int, int, Pool, "list[Place | None] | None"]


class ShapeCache:
    """What is kept between two changes of the allocations. pools_by_allocation: by allocation; None
    for all.
    """

    def __init__(
        self, cluster: Cluster, pools_by_allocation: dict[str | None, tuple[Pool, ...]]
    ) -> None:
        self._cluster = cluster
        self.pools = pools_by_allocation
        self.options: dict[Kind, tuple[Option, ...]] = {}
        self._reasons: dict[Kind, RefusalReasons] = {}
        #: The list and the block of each place that is kept, the oldest first.
        self._places: deque[tuple[list[Place | None], int]] = deque()
        self._places_max = max(_PLACES_MAX, cluster.size // 2)

    def learn(self, request_kind: Kind) -> tuple[Option, ...]:
        """Return the shapes and pools that would fulfil a request, best first.

        Keep them in `shape_options`.

        An illegal request has none and is not kept.
        """
        size, domains, gcds, allocation_name = request_kind
        try:
            fitting_shapes = shapes(self._cluster, size, domains, gcds)
        except IllegalShape:
            return ()
        if len(self.options) >= _KINDS_MAX:
            self.options.clear()
        shape_options = self.options[request_kind] = tuple(
            (shape, shape.domains, shape.order, pool, self._cached_places(pool, shape))
            for shape in fitting_shapes
            for pool in self.pools.get(allocation_name, ())
        )
        return shape_options

    def _cached_places(self, pool: Pool, shape: Shape) -> list[Place | None] | None:
        is_looped = self._cluster.topology is ClusterTopology.LOOPED
        if shape.domains > 2 or (shape.domains == 2 and not is_looped):
            return None  # the first block does not tell the others, or there are too many
        if shape not in pool.known:
            pool.known[shape] = [None] * (len(pool.holders) >> shape.order)
        return pool.known[shape]

    def place(self, shape_option: Option, slots: Sequence[int]) -> Place:
        """Return the place of a shape at these slots. It is made now and kept."""
        shape, _, order, pool, known_places = shape_option
        if known_places is None:
            return make_place(pool, shape, slots)
        if len(self._places) >= self._places_max:
            oldest_places, oldest_index = self._places.popleft()
            oldest_places[oldest_index] = None
        block_index = slots[0] >> order
        self._places.append((known_places, block_index))
        place = known_places[block_index] = make_place(pool, shape, slots)
        return place

    def reasons(self, request: Request, pools: Sequence[Pool]) -> RefusalReasons:
        """Return the obstacles for requests of this kind."""
        kind = (request.size, request.domains, request.gcds, request.allocation)
        reasons = self._reasons.get(kind)
        if reasons is None:
            if len(self._reasons) >= _KINDS_MAX:
                self._reasons.clear()
            reasons = self._reasons[kind] = RefusalReasons(self._cluster, pools, request)
        return reasons


def make_place(pool: Pool, shape: Shape, slots: Sequence[int]) -> Place:
    """Return the placement of a shape at these slots, with its blocks in the pool."""
    _, order, gcd_size = shape
    block_size = 1 << order
    blocks = tuple(Block(pool.domains[slot // DOMAIN], slot % DOMAIN, block_size) for slot in slots)
    gcds = blocks
    if gcd_size < block_size:
        gcds = tuple(
            Block(domain, gcd_offset, gcd_size)
            for domain, offset, _ in blocks
            for gcd_offset in range(offset, offset + block_size, gcd_size)
        )
    return Place(Placement(pool.name, blocks, gcds), pool, slots, order)
