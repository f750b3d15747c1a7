"""Which devices are free, and which of them a request gets.

One owner changes an index in place. A device is in at most one placement, and a placement is in one
allocation. A drained machine takes nothing new and keeps what is on it. The same requests in the
same order get the same answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from podwright.fabric import ALIGNED_POWER_OF_TWO, Cluster, ClusterTopology
from podwright.placement._aligned_block_search import DOMAIN
from podwright.placement._allocation_check import check_allocation
from podwright.placement._free_pool import Place, Pool
from podwright.placement._infeasible import refuse_named, unknown_allocation
from podwright.placement._placement_types import Block, Placement, Refusal, Request
from podwright.placement._shape_cache import ShapeCache, make_place
from podwright.placement._shape_rules import IllegalShape, Shape, named_blocks


class Index:
    """The free devices of one cluster, by allocation.

    Until the first `define_allocation` there is one allocation, which has the name of the cluster
    and holds every machine.
    """

    def __init__(self, cluster: Cluster) -> None:
        if (
            cluster.family.block_rule is not ALIGNED_POWER_OF_TWO
            or cluster.family.max_domain_devices > DOMAIN
        ):
            raise ValueError(f"placement does not know the rules of family {cluster.family.name}")
        self.cluster = cluster
        self._machines: dict[str, tuple[int, int]] = {}
        devices_per_machine = cluster.family.devices_per_machine
        for domain_index, domain in enumerate(cluster.domains):
            for machine_index, machine in enumerate(domain.machines):
                self._machines[machine.name] = (
                    domain_index,
                    (1 << devices_per_machine) - 1 << machine_index * devices_per_machine,
                )
        self._drained: set[str] = set()
        self._avoided_masks: dict[str, int] = {}  # machine -> its devices that are ill, if any
        self._pools: dict[str, Pool] = {}
        self._implicit = True
        self._looped = cluster.topology is ClusterTopology.LOOPED
        self._add_pool(cluster.name, list(self._machines))

    # Allocations and machines.

    @property
    def allocations(self) -> tuple[str, ...]:
        """The names of the allocations, in the order of their definition."""
        return tuple(self._pools)

    def define_allocation(self, name: str, machines: Sequence[str]) -> None:
        """Set machines apart under a name.

        Raises ValueError, and changes nothing, when no machine is given, when one is unknown, named
        twice or in another allocation, and when the name is taken.
        """
        if self._implicit and any(pool.allocated for pool in self._pools.values()):
            raise ValueError("there are partitions already, outside any allocation")
        existing_pools = {} if self._implicit else self._pools

        def home(machine: str) -> str:
            domain_and_mask = self._machine_domain_and_mask(machine)
            return next(
                (pool.name for pool in existing_pools.values() if pool.owns(*domain_and_mask)), ""
            )

        check_allocation(name, machines, existing_pools, self._machine_domain_and_mask, home)
        if self._implicit:
            self._pools.clear()
            self._implicit = False
        self._add_pool(name, machines)

    def remove_allocation(self, name: str) -> None:
        """Undo `define_allocation`. Raises ValueError if something is placed in it."""
        pool = self._pool(name)
        if pool.allocated:
            raise ValueError(f"allocation {name} has partitions")
        del self._pools[name]
        self._list_pools()

    def _add_pool(self, allocation_name: str, machines: Sequence[str]) -> None:
        owned_masks = [0] * len(self.cluster.domains)
        for machine in machines:
            domain, mask = self._machines[machine]
            owned_masks[domain] |= mask
        self._pools[allocation_name] = Pool(self, allocation_name, owned_masks, looped=self._looped)
        for machine in machines:  # a new pool files all devices as in service
            if machine in self._drained or self._avoided_masks.get(machine):
                self._refile_machine(machine)
        self._list_pools()

    def _list_pools(self) -> None:
        pools_by_allocation: dict[str | None, tuple[Pool, ...]] = {
            None: tuple(self._pools.values())
        }
        pools_by_allocation.update((name, (pool,)) for name, pool in self._pools.items())
        self._memory = ShapeCache(self.cluster, pools_by_allocation)
        self._recorded_places: dict[Placement, Place] = {}
        #: Shapes of recorded placements of one block, by its size and the number of GCDs.
        self._single_shapes: dict[tuple[int, int], Shape] = {}

    def _machine_domain_and_mask(self, name: str) -> tuple[int, int]:
        if name not in self._machines:
            raise ValueError(f"there is no machine {name} in cluster {self.cluster.name}")
        return self._machines[name]

    def _pool(self, allocation_name: str) -> Pool:
        if allocation_name not in self._pools:
            raise ValueError(
                f"there is no allocation {allocation_name} in cluster {self.cluster.name}"
            )
        return self._pools[allocation_name]

    def drain(self, machine: str) -> None:
        """Place nothing new on the machine. Raises ValueError for an unknown machine."""
        self._machine_domain_and_mask(machine)
        self._drained.add(machine)
        self._refile_machine(machine)

    def resume(self, machine: str) -> None:
        """Undo `drain`. Raises ValueError for an unknown machine."""
        self._machine_domain_and_mask(machine)
        self._drained.discard(machine)
        self._refile_machine(machine)

    def avoid_devices(self, machine: str, devices: Iterable[int]) -> None:
        """Place nothing new on these devices of a machine, and resume placing on its others.

        Raises ValueError for an unknown machine.
        """
        _, mask = self._machine_domain_and_mask(machine)
        bit = (mask & -mask).bit_length() - 1
        avoided_mask = sum(1 << bit + index for index in set(devices)) & mask
        if avoided_mask != self._avoided_masks.get(machine, 0):
            self._avoided_masks[machine] = avoided_mask
            self._refile_machine(machine)

    def _refile_machine(self, machine: str) -> None:
        """File the devices of a machine after they were drained, avoided, or put to use again."""
        domain, mask = self._machines[machine]
        down_mask = mask if machine in self._drained else self._avoided_masks.get(machine, 0)
        for pool in self._pools.values():
            if pool.owns(domain, mask):
                pool.set_up(domain, mask & ~down_mask, up=True)
                pool.set_up(domain, down_mask, up=False)

    def room(self, request: Request) -> tuple[int, int]:
        """Return the free devices, and the largest size of a request of this kind that has a place.

        Both are 0 for an allocation that does not exist.
        """
        pools = self._memory.pools.get(request.allocation)
        if not pools:
            return 0, 0
        kind = request if request.blocks is None else replace(request, blocks=None)
        return sum(pool.free for pool in pools), self._memory.reasons(kind, pools).largest()

    def free(self, allocation: str | None = None) -> int:
        """Return the number of devices that are neither taken, drained nor ill.

        allocation: None counts all. Raises ValueError for an unknown one.
        """
        pools = self._pools.values() if allocation is None else [self._pool(allocation)]
        return sum(pool.free for pool in pools)

    def size(self, allocation: str | None = None) -> int:
        """Return the size of an allocation, or of all. Raises ValueError for an unknown one."""
        pools = self._pools.values() if allocation is None else [self._pool(allocation)]
        return sum(pool.size for pool in pools)

    # Placements.

    def plan(self, request: Request) -> Placement | Refusal:
        """Return the placement that a request would get, or why not. Nothing is changed."""
        place = self._find_place(request)
        return self._refusal_of_request(request) if place is None else place.placement

    def find(self, request: Request) -> Placement | None:
        """Return the placement that `plan` returns, or None.

        Computing a refusal's reasons takes longer.
        """
        place = self._find_place(request)
        return None if place is None else place.placement

    def allocate(self, request: Request) -> Placement | Refusal:
        """Plan a placement and take it."""
        place = self._find_place(request)
        if place is None:
            return self._refusal_of_request(request)
        pool = place.pool
        pool.holders[place.slot] = place
        pool.allocated += place.size
        pool.turn(place, 1)
        if place.rest:
            pool.turn_other_blocks(place, 1)
        return place.placement

    def take(self, placement: Placement) -> None:
        """Take the devices of a new or earlier placement, also on drained machines.

        Raises ValueError, and changes nothing, when it is not a legal placement of this cluster, or
        when some of it is taken or outside its allocation.
        """
        pool = self._pool(placement.allocation)
        place = getattr(placement, "place", None)
        if place is None or place.pool is not pool:
            place = self._recorded_places.get(placement) or self._recorded_place(pool, placement)
        if not pool.has_free_blocks(place.slots, place.order, drained_too=True):
            raise ValueError("some of the devices are taken")
        pool.holders[place.slot] = place
        pool.allocated += place.size
        pool.turn(place, 1)
        pool.turn_other_blocks(place, 1)

    def placements(self) -> list[Placement]:
        """Return all placements that hold devices now."""
        return [
            place.placement
            for pool in self._pools.values()
            for place in pool.holders
            if place is not None
        ]

    def _recorded_place(self, pool: Pool, placement: Placement) -> Place:
        """Return the place of a placement that this index did not make. Raises ValueError."""
        shape, blocks = self._recorded_shape(placement)
        slots = pool.slots(blocks)
        if not slots:
            raise ValueError(f"some of the devices are not in allocation {pool.name}")
        place = make_place(pool, shape, slots)
        if place.placement != placement:
            raise ValueError("blocks or GCDs are not in routing order")
        place.placement = placement  # so its blocks are kept once
        object.__setattr__(placement, "place", place)
        if len(slots) == 1:  # there are few of these, and the queue takes them again and again
            self._recorded_places[placement] = place
        return place

    def _recorded_shape(self, placement: Placement) -> tuple[Shape, tuple[Block, ...]]:
        """Return the shape of a placement, and its blocks in the order of the loop.

        A start asks for each partition, and most have one block: equal ones have one shape.
        """
        (domain, offset, size), *others = placement.blocks
        kind = (size, len(placement.gcds))
        known = None if others or offset % size else self._single_shapes.get(kind)
        if (
            known is not None
            and 0 <= domain < len(self.cluster.domains)
            and 0 <= offset <= self.cluster.domain_size(domain) - size
        ):
            return known, placement.blocks
        request = Request(0, gcds=len(placement.gcds), blocks=placement.blocks)
        try:
            shape, blocks = named_blocks(self.cluster, request)
        except IllegalShape as illegal:
            raise ValueError(illegal.rule) from None
        if not others:
            self._single_shapes[kind] = shape
        return shape, blocks

    def release(self, placement: Placement) -> None:
        """Give a placement's devices back. Raises ValueError if it is not held."""
        try:
            place = placement.place
            pool = place.pool
            if pool.holders[place.slot] is not place or pool.index is not self:
                place = self._holding_place(placement)
        except AttributeError:  # it was not made by an index
            place = self._holding_place(placement)
        pool = place.pool
        pool.holders[place.slot] = None
        pool.allocated -= place.size
        pool.turn(place, -1)
        if place.rest:
            pool.turn_other_blocks(place, -1)

    def _holding_place(self, placement: Placement) -> Place:
        """Return the place that holds the devices of an equal placement of this index."""
        pool = self._pools.get(placement.allocation)
        for domain, offset, _ in placement.blocks[:1]:
            if pool is not None and domain in pool.place and 0 <= offset < DOMAIN:
                place = pool.holders[pool.place[domain] * DOMAIN + offset]
                if place is not None and place.placement == placement:
                    return place
        raise ValueError("that placement is not held")

    def _find_place(self, request: Request) -> Place | None:
        if request.blocks is not None:
            return self._find_named_place(request)
        request_kind = (request.size, request.domains, request.gcds, request.allocation)
        shape_cache = self._memory
        try:
            shape_options = shape_cache.options[request_kind]
        except KeyError:
            shape_options = shape_cache.learn(request_kind)
        for shape_option in shape_options:
            _, domain_count, order, pool, known_places = shape_option
            if domain_count == 1:
                slot = pool.find(order)
                if slot >= 0:
                    return (known_places and known_places[slot >> order]) or shape_cache.place(
                        shape_option, (slot,)
                    )
            else:
                slots = pool.find_span(order, domain_count)
                if slots:
                    return (known_places and known_places[slots[0] >> order]) or shape_cache.place(
                        shape_option, slots
                    )
        return None

    def _find_named_place(self, request: Request) -> Place | None:
        try:
            shape, blocks = named_blocks(self.cluster, request)
        except IllegalShape:
            return None
        for pool in self._memory.pools.get(request.allocation, ()):
            slots = pool.slots(blocks)
            if slots and pool.has_free_blocks(slots, shape.order):
                return make_place(pool, shape, slots)
        return None

    def _refusal_of_request(self, request: Request) -> Refusal:
        pools = self._memory.pools.get(request.allocation)
        if not pools:
            return unknown_allocation(self.cluster, request.allocation)
        if request.blocks is not None:
            return refuse_named(self.cluster, pools, request)
        return self._memory.reasons(request, pools).refuse()
