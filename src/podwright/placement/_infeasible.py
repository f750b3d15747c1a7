"""Why a request has no place, in words and numbers. Only worked out once it is refused.

What follows from the hardware alone is worked out once for all requests of a kind (Reasons);
what is free is looked at each time, since a full cluster is asked again and again.
"""

from __future__ import annotations

from collections.abc import Sequence

from podwright.fabric import Cluster, ClusterTopology
from podwright.placement._free_pool import Pool
from podwright.placement._shape_rules import Illegal, Shape, named_blocks, shapes, sizes
from podwright.placement._tables import WHOLE_ORDER
from podwright.placement._values import Refusal, Request

#: How many refusals of a kind are remembered.
_SAID_MAX = 1 << 8


class Reasons:
    """What stands in the way of requests of one size, link domains and GCDs in these pools."""

    def __init__(self, cluster: Cluster, pools: Sequence[Pool], request: Request) -> None:
        self.pools = pools
        self.size = request.size
        self.noun = cluster.family.device_noun
        self.looped = cluster.topology is ClusterTopology.LOOPED
        domains, gcds = request.domains, request.gcds
        #: Sizes with their shapes, largest first; of the same kind, and that these pools can hold.
        self.ladder = [
            (size, found)
            for size in sorted(sizes(cluster, domains, gcds), reverse=True)
            for found in (shapes(cluster, size, domains, gcds),)
            if self._ever_fits(found)
        ]
        self.nearest: tuple[int, ...] = ()
        self.never = ""
        #: Link domains, where all shapes of the ladder have as many; else 0.
        counts = {shape.domains for _, found in self.ladder for shape in found}
        self.count = counts.pop() if len(counts) == 1 else 0
        #: Then, by the order of the largest block there is (-1 for none), the largest size.
        self.by_order = [
            max([size for size, ((_, order, _),) in self.ladder if order <= largest], default=0)
            for largest in (*range(WHOLE_ORDER + 1), -1)
            if self.count
        ]
        self.said: dict[tuple[int, int], Refusal] = {}
        try:
            found = shapes(cluster, request.size, domains, gcds)
        except Illegal as illegal:
            self.never = illegal.rule
            self.nearest = self._nearest() if illegal.of_size else ()
            return
        self.form = f"aligned block of {1 << found[0].order}"
        if found[0].domains > 1:
            beside = " side by side" if self.looped else ""
            self.form += f" at one offset of {found[0].domains} link domains{beside}"
        if all(size != request.size for size, _ in self.ladder):
            where = " or ".join(pool.name for pool in pools)
            self.never = f"allocation {where} has no {self.form}"
            self.nearest = self._nearest()

    def refuse(self) -> Refusal:
        """The refusal as things are now. The request has no place."""
        free = 0
        for pool in self.pools:
            free += pool.free
        key = free, self.largest()
        try:
            return self.said[key]
        except KeyError:
            if len(self.said) >= _SAID_MAX:
                self.said.clear()
            said = self.said[key] = Refusal(
                bool(self.never), self.never or self._rule(free), *key, self.nearest
            )
            return said

    def _rule(self, free: int) -> str:
        if free < self.size:
            return f"{self.size} {self.noun}s are asked for and {free} are free"
        return f"{free} {self.noun}s are free, but no {self.form} is"

    def largest(self) -> int:
        """The largest size of this kind that has a place now, or 0."""
        if self.count:
            largest = -1
            for pool in self.pools:
                order = pool.largest(self.count)
                if order > largest:
                    largest = order
            return self.by_order[largest]
        orders: dict[int, int] = {}
        for size, found in self.ladder:
            for count, order, _ in found:
                if count not in orders:
                    orders[count] = max([pool.largest(count) for pool in self.pools])
                if order <= orders[count]:
                    return size
        return 0

    def _ever_fits(self, found: Sequence[Shape]) -> bool:
        return any(
            shape.order <= pool.largest_ever(shape.domains)
            for shape in found
            for pool in self.pools
        )

    def _nearest(self) -> tuple[int, ...]:
        """The next smaller and the next larger size that these pools can ever hold."""
        below = [size for size, _ in self.ladder if size < self.size]
        above = [size for size, _ in self.ladder if size > self.size]
        return (*below[:1], *above[-1:])


def unknown_allocation(cluster: Cluster, name: str | None) -> Refusal:
    """The refusal where there is nothing to look at."""
    named = f" {name}" if name is not None else ""
    return Refusal(True, f"there is no allocation{named} in cluster {cluster.name}")


def refuse_named(cluster: Cluster, pools: Sequence[Pool], request: Request) -> Refusal:
    """The refusal of a request for the very devices in `request.blocks`."""
    free = sum(pool.free for pool in pools)
    largest = Reasons(cluster, pools, request).largest()
    try:
        shape, blocks = named_blocks(cluster, request)
    except Illegal as illegal:
        return Refusal(True, illegal.rule, free, largest)
    for pool in pools:
        slots = pool.slots(blocks)
        if slots:
            drained = pool.has_free(slots, shape.order, drained_too=True)
            state = "on a drained machine" if drained else "taken"
            return Refusal(False, f"some of the devices named are {state}", free, largest)
    where = " or ".join(pool.name for pool in pools)
    return Refusal(True, f"the devices named are not all in allocation {where}", free, largest)
