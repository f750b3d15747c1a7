"""Why a request has no place, in words and numbers. Only worked out once it is refused."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.fabric import Cluster
from podwright.placement._pool import Pool
from podwright.placement._rules import Illegal, Shape, named_blocks, shapes, sizes
from podwright.placement._values import Refusal, Request


def refusal(cluster: Cluster, pools: Sequence[Pool], request: Request, *, looped: bool) -> Refusal:
    """The refusal of a request that has no place in any of these pools."""
    if not pools:
        named = f" {request.allocation}" if request.allocation is not None else ""
        return Refusal(True, f"there is no allocation{named} in cluster {cluster.name}")
    look = _Look(cluster, pools, request, looped)
    try:
        if request.blocks is not None:
            return look.at_blocks()
        found = shapes(cluster, request.size, request.domains, request.gcds)
    except Illegal as illegal:
        return look.refuse(illegal.rule, never=True, nearest=illegal.of_size)
    return look.at_shapes(found)


class _Look:
    """One look at the pools on behalf of one request."""

    def __init__(
        self, cluster: Cluster, pools: Sequence[Pool], request: Request, looped: bool
    ) -> None:
        self.cluster, self.pools, self.request, self.looped = cluster, pools, request, looped
        self.noun = cluster.family.device_noun
        self.free = sum(pool.free for pool in pools)

    def refuse(self, rule: str, *, never: bool, nearest: bool = False) -> Refusal:
        largest = max(self._sizes(empty=False), default=0)
        return Refusal(never, rule, self.free, largest, self._nearest() if nearest else ())

    def at_blocks(self) -> Refusal:
        shape, blocks = named_blocks(self.cluster, self.request)
        for pool in self.pools:
            slots = pool.slots(blocks)
            if slots:
                free = pool.has_free(slots, shape.order, drained_too=True)
                state = "on a drained machine" if free else "taken"
                return self.refuse(f"some of the devices named are {state}", never=False)
        where = " or ".join(pool.name for pool in self.pools)
        return self.refuse(f"the devices named are not all in allocation {where}", never=True)

    def at_shapes(self, found: Sequence[Shape]) -> Refusal:
        shape, size = found[0], self.request.size
        form = f"aligned block of {1 << shape.order}"
        if shape.domains > 1:
            beside = " side by side" if self.looped else ""
            form += f" at one offset of {shape.domains} link domains{beside}"
        if not any(self._fits(pool, each, empty=True) for each in found for pool in self.pools):
            where = " or ".join(pool.name for pool in self.pools)
            return self.refuse(f"allocation {where} has no {form}", never=True, nearest=True)
        free = self.free
        if free < size:
            rule = f"{size} {self.noun}s are asked for and {free} are free"
        else:
            rule = f"{free} {self.noun}s are free, but no {form} is"
        return self.refuse(rule, never=False)

    def _fits(self, pool: Pool, shape: Shape, *, empty: bool) -> bool:
        count, order, _ = shape
        if count == 1:
            return pool.largest_ever >= order if empty else pool.find(order) >= 0
        return bool(pool.find_span(order, count, looped=self.looped, empty=empty))

    def _sizes(self, *, empty: bool) -> Sequence[int]:
        """The sizes with these GCDs and link domains that have a place, ascending."""
        domains, gcds = self.request.domains, self.request.gcds
        if gcds == 1 and domains in (None, 1):  # the common case: one block
            orders = [pool.largest_ever if empty else pool.largest() for pool in self.pools]
            return [1 << order for order in range(max(orders) + 1)]
        return [
            size
            for size in sizes(self.cluster, domains, gcds)
            if any(
                self._fits(pool, shape, empty=empty)
                for shape in shapes(self.cluster, size, domains, gcds)
                for pool in self.pools
            )
        ]

    def _nearest(self) -> tuple[int, ...]:
        """The next smaller and the next larger size that these allocations can ever hold."""
        legal = self._sizes(empty=True)
        asked = self.request.size
        below = [size for size in legal if size < asked]
        above = [size for size in legal if size > asked]
        return (*below[-1:], *above[:1])
