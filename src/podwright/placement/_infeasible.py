"""Why a request has no place, in words and numbers. It is computed only after a refusal.

What follows from the hardware alone is computed once for all requests of a kind (Reasons). What is
free is counted each time, since a full cluster is asked again and again.
"""

from __future__ import annotations

from collections.abc import Sequence

from podwright.fabric import Cluster, ClusterTopology
from podwright.placement._free_pool import Pool
from podwright.placement._hole_tables import WHOLE_ORDER
from podwright.placement._placement_types import Refusal, Request, are
from podwright.placement._shape_rules import IllegalShape, Shape, named_blocks, shapes, sizes

#: How many refusals of a kind are kept.
_MAX_CACHED_REFUSALS = 1 << 8


class RefusalReasons:
    """The obstacles for requests of one size, with their link domains and GCDs, in these pools."""

    def __init__(self, cluster: Cluster, pools: Sequence[Pool], request: Request) -> None:
        self.pools = pools
        self.size = request.size
        self.noun = cluster.family.device_noun
        self.looped = cluster.topology is ClusterTopology.LOOPED
        domains, gcds = request.domains, request.gcds
        #: The sizes of the same kind that these pools can hold, with their shapes, largest first.
        self.feasible_sizes = [
            (size, fitting_shapes)
            for size in sorted(sizes(cluster, domains, gcds), reverse=True)
            for fitting_shapes in (shapes(cluster, size, domains, gcds),)
            if self._ever_fits(fitting_shapes)
        ]
        self.nearest: tuple[int, ...] = ()
        self.never = ""
        #: The number of link domains, if it is the same for all shapes of the ladder; else 0.
        domain_counts = {
            shape.domains for _, fitting_shapes in self.feasible_sizes for shape in fitting_shapes
        }
        self.count = domain_counts.pop() if len(domain_counts) == 1 else 0
        #: In that case: the largest size, by the order of the largest free block (-1 for none).
        self.largest_size_by_order = [
            max(
                [size for size, ((_, order, _),) in self.feasible_sizes if order <= largest_order],
                default=0,
            )
            for largest_order in (*range(WHOLE_ORDER + 1), -1)
            if self.count
        ]
        self.refusals: dict[tuple[int, int], Refusal] = {}
        try:
            fitting_shapes = shapes(cluster, request.size, domains, gcds)
        except IllegalShape as illegal:
            self.never = illegal.rule
            self.nearest = self._nearest() if illegal.of_size else ()
            return
        self.form = f"aligned block of {1 << fitting_shapes[0].order}"
        if fitting_shapes[0].domains > 1:
            adjacent_text = " side by side" if self.looped else ""
            self.form += (
                f" at one offset of {fitting_shapes[0].domains} link domains{adjacent_text}"
            )
        if all(size != request.size for size, _ in self.feasible_sizes):
            pool_names = " or ".join(pool.name for pool in pools)
            self.never = f"allocation {pool_names} has no {self.form}"
            self.nearest = self._nearest()

    def refuse(self) -> Refusal:
        """Return the refusal for the present state. The request must have no place."""
        free_devices = 0
        for pool in self.pools:
            free_devices += pool.free
        refusal_key = free_devices, self.largest()
        try:
            return self.refusals[refusal_key]
        except KeyError:
            if len(self.refusals) >= _MAX_CACHED_REFUSALS:
                self.refusals.clear()
            refusal = self.refusals[refusal_key] = Refusal(
                bool(self.never),
                self.never or self._violated_rule_text(free_devices),
                *refusal_key,
                self.nearest,
            )
            return refusal

    def _violated_rule_text(self, free_devices: int) -> str:
        if free_devices < self.size:
            return f"{are(self.size, self.noun)} asked for and {are(free_devices)} free"
        return f"{are(free_devices, self.noun)} free, but no {self.form} is"

    def largest(self) -> int:
        """Return the largest size of this kind that has a place now, or 0."""
        if self.count:
            largest_order = -1
            for pool in self.pools:
                order = pool.largest(self.count)
                if order > largest_order:
                    largest_order = order
            return self.largest_size_by_order[largest_order]
        largest_orders: dict[int, int] = {}
        for size, fitting_shapes in self.feasible_sizes:
            for domain_count, order, _ in fitting_shapes:
                if domain_count not in largest_orders:
                    largest_orders[domain_count] = max(
                        [pool.largest(domain_count) for pool in self.pools]
                    )
                if order <= largest_orders[domain_count]:
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
        smaller_sizes = [size for size, _ in self.feasible_sizes if size < self.size]
        larger_sizes = [size for size, _ in self.feasible_sizes if size > self.size]
        return (*smaller_sizes[:1], *larger_sizes[-1:])


def unknown_allocation(cluster: Cluster, name: str | None) -> Refusal:
    """Return the refusal for an allocation that does not exist."""
    text = f" {name}" if name is not None else ""
    return Refusal(True, f"there is no allocation{text} in cluster {cluster.name}")


def refuse_named(cluster: Cluster, pools: Sequence[Pool], request: Request) -> Refusal:
    """Return the refusal of a request for exactly the devices in `request.blocks`."""
    free_devices = sum(pool.free for pool in pools)
    largest_size = RefusalReasons(cluster, pools, request).largest()
    try:
        shape, blocks = named_blocks(cluster, request)
    except IllegalShape as illegal:
        return Refusal(True, illegal.rule, free_devices, largest_size)
    for pool in pools:
        slots = pool.slots(blocks)
        if slots:
            is_drained = pool.has_free_blocks(slots, shape.order, drained_too=True)
            state_text = "on a drained machine, or ill" if is_drained else "taken"
            return Refusal(
                False, f"some of the devices named are {state_text}", free_devices, largest_size
            )
    pool_names = " or ".join(pool.name for pool in pools)
    return Refusal(
        True,
        f"the devices named are not all in allocation {pool_names}",
        free_devices,
        largest_size,
    )
