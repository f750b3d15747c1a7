"""Why a request has no place, in words and numbers. It is computed only after a refusal.

What follows from the hardware alone is computed once for all requests of a kind (Reasons). What is
free is counted each time, since a full cluster is asked again and again.
"""

from __future__ import annotations

from collections.abc import Sequence

from podwright.fabric import Cluster, ClusterTopology
from podwright.placement._free_pool import Pool
from podwright.placement._shape_rules import Illegal, Shape, named_blocks, shapes, sizes
from podwright.placement._tables import WHOLE_ORDER
from podwright.placement._values import Refusal, Request, are

#: How many refusals of a kind are kept.
_REFUSALS_MAX = 1 << 8


class Reasons:
    """The obstacles for requests of one size, with their link domains and GCDs, in these pools."""

    def __init__(self, cluster: Cluster, pools: Sequence[Pool], request: Request) -> None:
        self.pools = pools
        self.size = request.size
        self.noun = cluster.family.device_noun
        self.looped = cluster.topology is ClusterTopology.LOOPED
        domains, gcds = request.domains, request.gcds
        #: The sizes of the same kind that these pools can hold, with their shapes, largest first.
        self.ladder = [
            (size, fitting_shapes)
            for size in sorted(sizes(cluster, domains, gcds), reverse=True)
            for fitting_shapes in (shapes(cluster, size, domains, gcds),)
            if self._ever_fits(fitting_shapes)
        ]
        self.nearest: tuple[int, ...] = ()
        self.never = ""
        #: The number of link domains, if it is the same for all shapes of the ladder; else 0.
        counts = {shape.domains for _, fitting_shapes in self.ladder for shape in fitting_shapes}
        self.count = counts.pop() if len(counts) == 1 else 0
        #: In that case: the largest size, by the order of the largest free block (-1 for none).
        self.by_order = [
            max([size for size, ((_, order, _),) in self.ladder if order <= largest], default=0)
            for largest in (*range(WHOLE_ORDER + 1), -1)
            if self.count
        ]
        self.refusals: dict[tuple[int, int], Refusal] = {}
        try:
            fitting_shapes = shapes(cluster, request.size, domains, gcds)
        except Illegal as illegal:
            self.never = illegal.rule
            self.nearest = self._nearest() if illegal.of_size else ()
            return
        self.form = f"aligned block of {1 << fitting_shapes[0].order}"
        if fitting_shapes[0].domains > 1:
            adjacent = " side by side" if self.looped else ""
            self.form += f" at one offset of {fitting_shapes[0].domains} link domains{adjacent}"
        if all(size != request.size for size, _ in self.ladder):
            where = " or ".join(pool.name for pool in pools)
            self.never = f"allocation {where} has no {self.form}"
            self.nearest = self._nearest()

    def refuse(self) -> Refusal:
        """Return the refusal for the present state. The request must have no place."""
        free = 0
        for pool in self.pools:
            free += pool.free
        key = free, self.largest()
        try:
            return self.refusals[key]
        except KeyError:
            if len(self.refusals) >= _REFUSALS_MAX:
                self.refusals.clear()
            refusal = self.refusals[key] = Refusal(
                bool(self.never), self.never or self._rule(free), *key, self.nearest
            )
            return refusal

    def _rule(self, free: int) -> str:
        if free < self.size:
            return f"{are(self.size, self.noun)} asked for and {are(free)} free"
        return f"{are(free, self.noun)} free, but no {self.form} is"

    def largest(self) -> int:
        """Return the largest size of this kind that has a place now, or 0."""
        if self.count:
            largest = -1
            for pool in self.pools:
                order = pool.largest(self.count)
                if order > largest:
                    largest = order
            return self.by_order[largest]
        orders: dict[int, int] = {}
        for size, fitting_shapes in self.ladder:
            for count, order, _ in fitting_shapes:
                if count not in orders:
                    orders[count] = max([pool.largest(count) for pool in self.pools])
                if order <= orders[count]:
                    return size
        return 0

    def _ever_fits(self, fitting_shapes: Sequence[Shape]) -> bool:
        return any(
            shape.order <= pool.largest_ever(shape.domains)
            for shape in fitting_shapes
            for pool in self.pools
        )

    def _nearest(self) -> tuple[int, ...]:
        """Return the next smaller and the next larger size that these pools can ever hold."""
        below = [size for size, _ in self.ladder if size < self.size]
        above = [size for size, _ in self.ladder if size > self.size]
        return (*below[:1], *above[-1:])


def unknown_allocation(cluster: Cluster, name: str | None) -> Refusal:
    """Return the refusal for an allocation that does not exist."""
    named = f" {name}" if name is not None else ""
    return Refusal(True, f"there is no allocation{named} in cluster {cluster.name}")


def refuse_named(cluster: Cluster, pools: Sequence[Pool], request: Request) -> Refusal:
    """Return the refusal of a request for exactly the devices in `request.blocks`."""
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
