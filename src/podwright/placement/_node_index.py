"""Which devices are free where they sit in machines, and which of them a request gets.

`Index` serves aligned blocks; this index serves GPUs. A request gets any number of devices inside
one machine, or whole machines, with a part of one more where the family trims. A machine is a mask.
Machines are filed by their number of free devices, so that the fullest with enough room is found
first, and machines and link domains stay whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from podwright.fabric import Cluster, ClusterTopology
from podwright.placement._allocation_check import check_allocation
from podwright.placement._infeasible import unknown_allocation
from podwright.placement._mig_slices import MachineSlices, check_slices
from podwright.placement._node_pool import Harm, NodePool, least_harmful_first, spread
from podwright.placement._node_rules import NodeShape, best_device_runs, node_shape
from podwright.placement._placement_types import Block, Placement, Refusal, Request, are
from podwright.placement._shape_rules import IllegalShape


class NodeIndex:
    """The free devices of one cluster of such machines. It keeps the promises of `Index`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._per = cluster.family.devices_per_machine
        self._full = (1 << self._per) - 1
        machine_places = [
            (domain_index, machine_index)
            for domain_index, domain in enumerate(cluster.domains)
            for machine_index in range(len(domain.machines))
        ]
        #: Machine -> (its link domain, its place in the link domain).
        self._machines = {
            cluster.domains[domain_index].machines[machine_index].name: (
                domain_index,
                machine_index,
            )
            for domain_index, machine_index in machine_places
        }
        self._names = {place: name for name, place in self._machines.items()}
        self._untaken_masks = dict.fromkeys(self._machines, self._full)
        self._drained: set[str] = set()
        self._avoided_masks: dict[str, int] = {}  # machine -> its devices that are ill, if any
        self._slices = MachineSlices()
        self._open = dict.fromkeys(self._machines, 0)  # neither taken, drained nor ill
        self._now = dict.fromkeys(self._machines, 0)  # of these, the whole devices
        self._pool_by_machine: dict[str, NodePool] = {}
        self._pools: dict[str, NodePool] = {}
        self._add_pool(cluster.name, self._machines)
        self._implicit = True
        self._held: dict[Placement, int] = {}

    # Allocations and machines.

    @property
    def allocations(self) -> tuple[str, ...]:
        """The names of the allocations, in the order of their definition."""
        return tuple(self._pools)

    def define_allocation(self, name: str, machines: Sequence[str]) -> None:
        """Set machines apart under a name. See `Index.define_allocation`."""
        if self._implicit and self._held:
            raise ValueError("there are partitions already, outside any allocation")
        existing_pools = {} if self._implicit else self._pools

        def home(machine: str) -> str:
            return next(
                (
                    allocation_name
                    for allocation_name, pool in existing_pools.items()
                    if machine in pool.places
                ),
                "",
            )

        check_allocation(name, machines, existing_pools, self._require_machine, home)
        if self._implicit:
            self._pools.clear()
            self._pool_by_machine.clear()
        self._add_pool(name, machines)
        self._implicit = False

    def _add_pool(self, allocation_name: str, machines: Iterable[str]) -> None:
        places = {machine: self._machines[machine] for machine in machines}
        pool = self._pools[allocation_name] = NodePool(places, self._per, len(self.cluster.domains))
        for machine in places:
            self._pool_by_machine[machine] = pool
            self._now[machine] = 0
            self._refile_machine(machine)

    def _refile_machine(self, machine: str) -> None:
        """File a machine anew after its free devices may have changed."""
        free_mask = self._untaken_masks[machine] & ~self._avoided_masks.get(machine, 0)
        if machine in self._drained:
            free_mask = 0
        self._open[machine] = free_mask
        free_mask &= ~self._slices.of(machine)
        previous_mask, self._now[machine] = self._now[machine], free_mask
        if previous_mask != free_mask and machine in self._pool_by_machine:
            self._pool_by_machine[machine].refile(
                machine, previous_mask.bit_count(), free_mask.bit_count()
            )

    def remove_allocation(self, name: str) -> None:
        """Undo `define_allocation`. Raises ValueError if something is placed in it."""
        pool = self._pool(name)
        if any(placement.allocation == name for placement in self._held):
            raise ValueError(f"allocation {name} has partitions")
        for machine in pool.places:
            del self._pool_by_machine[machine]
        del self._pools[name]

    def drain(self, machine: str) -> None:
        """Place nothing new on the machine. Raises ValueError for an unknown machine."""
        self._drained.add(self._require_machine(machine))
        self._refile_machine(machine)

    def resume(self, machine: str) -> None:
        """Undo `drain`. Raises ValueError for an unknown machine."""
        self._drained.discard(self._require_machine(machine))
        self._refile_machine(machine)

    def avoid_devices(self, machine: str, devices: Iterable[int]) -> None:
        """Place nothing new on these devices of a machine, and resume placing on its others.

        Raises ValueError for an unknown machine.
        """
        mask = sum(1 << index for index in set(devices) if index < self._per)
        self._avoided_masks.pop(self._require_machine(machine), None)
        if mask:
            self._avoided_masks[machine] = mask
        self._refile_machine(machine)

    def cut(self, machine: str, profiles: Mapping[int, str]) -> None:
        """Declare devices of a machine to be slices. profiles: device index -> profile.

        A slice goes only to a request that asks for its profile or names it. Raises ValueError for
        an unknown machine.
        """
        self._slices.cut(self._require_machine(machine), profiles)
        self._refile_machine(machine)

    def room(self, request: Request) -> tuple[int, int]:
        """See `Index.room`."""
        pools = [pool for name, pool in self._pools.items() if request.allocation in (None, name)]
        if not pools:
            return 0, 0
        return sum(pool.free for pool in pools), self._largest(request, pools)

    def free(self, allocation: str | None = None) -> int:
        """Return the number of whole devices that are neither taken, drained nor ill.

        Raises ValueError for an unknown allocation.
        """
        return sum(pool.free for pool in self._of(allocation))

    def size(self, allocation: str | None = None) -> int:
        """Return the size of an allocation, or of all. Raises ValueError for an unknown one."""
        return self._per * sum(len(pool.places) for pool in self._of(allocation))

    def _of(self, allocation: str | None) -> list[NodePool]:
        return [*self._pools.values()] if allocation is None else [self._pool(allocation)]

    def _pool(self, allocation_name: str) -> NodePool:
        if allocation_name not in self._pools:
            raise ValueError(
                f"there is no allocation {allocation_name} in cluster {self.cluster.name}"
            )
        return self._pools[allocation_name]

    def _require_machine(self, machine_name: str) -> str:
        if machine_name not in self._machines:
            raise ValueError(f"there is no machine {machine_name} in cluster {self.cluster.name}")
        return machine_name

    # Placements.

    def plan(self, request: Request) -> Placement | Refusal:
        """Return the placement that a request would get, or why not. Nothing is changed."""
        return self.find(request) or self._refusal_of_request(request)

    def allocate(self, request: Request) -> Placement | Refusal:
        """Plan a placement and take it."""
        placement = self.plan(request)
        if isinstance(placement, Placement):
            self.take(placement)
        return placement

    def find(self, request: Request) -> Placement | None:
        """Return the placement that `plan` returns, or None without a reason."""
        try:
            if request.blocks is not None:
                return self._find_named_placement(request)
            if request.profile:
                return self._find_slices(request)
            shape = node_shape(self.cluster, request)
        except IllegalShape:
            return None
        for name, pool in self._pools.items():
            if request.allocation in (None, name) and (blocks := self._find_blocks(pool, shape)):
                return _make_placement(name, blocks, shape.gcd)
        return None

    def take(self, placement: Placement) -> None:
        """Take the devices of a new or earlier placement, also on drained machines.

        Raises ValueError, and changes nothing, when some of it is taken or outside its allocation.
        """
        pool = self._pool(placement.allocation)
        masks_by_machine = self._bits(placement.blocks)
        if not masks_by_machine or not pool.places.keys() >= masks_by_machine.keys():
            raise ValueError(f"some of the devices are not in allocation {placement.allocation}")
        if placement in self._held or any(
            block_mask & ~self._untaken_masks[name] for name, block_mask in masks_by_machine.items()
        ):
            raise ValueError("some of the devices are taken")
        for machine_name, taken_mask in masks_by_machine.items():
            self._untaken_masks[machine_name] ^= taken_mask
            self._refile_machine(machine_name)
        self._held[placement] = placement.size

    def release(self, placement: Placement) -> None:
        """Give a placement's devices back. Raises ValueError if it is not held."""
        if self._held.pop(placement, None) is None:
            raise ValueError("that placement is not held")
        for name, mask in self._bits(placement.blocks).items():
            self._untaken_masks[name] |= mask
            self._refile_machine(name)

    def placements(self) -> list[Placement]:
        """Return all placements that hold devices now."""
        return list(self._held)

    def _bits(self, blocks: Sequence[Block]) -> dict[str, int]:
        """Return blocks as masks by machine; empty if they leave the cluster or overlap."""
        masks_by_machine: dict[str, int] = {}
        for domain, offset, size in blocks:
            for device_offset in range(offset, offset + size):
                machine_index, device_index = divmod(device_offset, self._per)
                machine_name = self._names.get((domain, machine_index))
                if (
                    machine_name is None
                    or size <= 0
                    or masks_by_machine.get(machine_name, 0) >> device_index & 1
                ):
                    return {}
                masks_by_machine[machine_name] = (
                    masks_by_machine.get(machine_name, 0) | 1 << device_index
                )
        return masks_by_machine

    # The search for the devices of a shape.

    def _find_blocks(self, pool: NodePool, shape: NodeShape) -> list[Block]:
        if shape.rest:
            return self._find_trimmed_machines(pool, shape)
        if shape.machines:
            return self._find_whole_machines(pool, shape)

        def harm(machine_name: str) -> Harm:
            machine_place = pool.places[machine_name]
            return pool.full_machines[machine_place[0]], machine_place

        for machine_names in pool.machines_by_free_count[shape.size :]:
            for machine_name in least_harmful_first(machine_names, harm):
                runs = best_device_runs(self._now[machine_name], shape.size, shape.gcd, self._per)
                if runs:
                    domain, machine_place = pool.places[machine_name]
                    return [
                        Block(domain, machine_place * self._per + run_start, length)
                        for run_start, length in runs
                    ]
        return []

    def _find_whole_machines(self, pool: NodePool, shape: NodeShape) -> list[Block]:
        if len(pool.machines_by_free_count[self._per]) < shape.machines:
            return []
        places_by_domain: dict[int, list[int]] = {}
        for domain, machine_place in sorted(
            pool.places[name] for name in pool.machines_by_free_count[self._per]
        ):
            places_by_domain.setdefault(domain, []).append(machine_place)
        chosen_places = spread(places_by_domain, shape.machines, shape.domains)
        devices_per_machine = self._per
        return [
            Block(chosen_domain, place * devices_per_machine, devices_per_machine)
            for chosen_domain in sorted(chosen_places)
            for place in chosen_places[chosen_domain]
        ]

    def _find_trimmed_machines(self, pool: NodePool, shape: NodeShape) -> list[Block]:
        """Return whole machines of a link domain and a part of one more.

        The part is taken from a machine that is already partly used, if there is one, so that as
        few machines as possible are broken.
        """
        devices_per_machine, machines_by_domain = self._per, dict[int, list[tuple[int, int, str]]]()
        for free_count, machine_names in enumerate(
            pool.machines_by_free_count[shape.rest :], shape.rest
        ):
            for machine_name in machine_names:
                domain, machine_place = pool.places[machine_name]
                machines_by_domain.setdefault(domain, []).append(
                    (free_count, machine_place, machine_name)
                )
        best_choice: tuple[tuple[bool, int, int], list[Block]] | None = None
        for domain, domain_machines in machines_by_domain.items():
            full_machines = sorted(
                place for count, place, _ in domain_machines if count == devices_per_machine
            )
            if len(full_machines) < shape.machines:
                continue
            chosen_places = full_machines[: shape.machines]
            for free_count, machine_place, machine_name in sorted(domain_machines):
                runs = best_device_runs(
                    self._now[machine_name], shape.rest, shape.gcd, devices_per_machine
                )
                if runs and machine_place not in chosen_places:
                    choice_rank = free_count == devices_per_machine, len(full_machines), domain
                    part_runs = [
                        (offset * devices_per_machine, devices_per_machine)
                        for offset in chosen_places
                    ]
                    part_runs += [
                        (machine_place * devices_per_machine + offset, length)
                        for offset, length in runs
                    ]
                    blocks = [Block(domain, offset, length) for offset, length in sorted(part_runs)]
                    best_choice = min(best_choice or (choice_rank, blocks), (choice_rank, blocks))
                    break
        return best_choice[1] if best_choice else []

    def _find_named_placement(self, request: Request) -> Placement | None:
        masks_by_machine, shape = self._named(request)
        for allocation_name, pool in self._pools.items():
            lies_in_pool = (
                request.allocation in (None, allocation_name)
                and pool.places.keys() >= masks_by_machine.keys()
            )
            if lies_in_pool and not any(
                mask & ~self._open[machine_name] for machine_name, mask in masks_by_machine.items()
            ):
                return _make_placement(
                    allocation_name, self._blocks_of_masks(masks_by_machine), shape.gcd
                )
        return None

    def _find_slices(self, request: Request) -> Placement | None:
        check_slices(request)
        for name, pool in self._pools.items():
            masks_by_machine = self._slices.pick(request, pool.places, self._open)
            if request.allocation in (None, name) and masks_by_machine:
                return _make_placement(name, self._blocks_of_masks(masks_by_machine), 1)
        return None

    def _named(self, request: Request) -> tuple[dict[str, int], NodeShape]:
        """Return the devices that the request names, and their shape. Raises IllegalShape.

        They may be any devices of any machines: where Slurm gave them out, the choice is Slurm's.
        """
        masks_by_machine = self._bits(request.blocks or ())
        device_count = sum(mask.bit_count() for mask in masks_by_machine.values())
        if not masks_by_machine:
            raise IllegalShape("the devices named are not all there, or one is named twice")
        if request.size not in (0, device_count):
            raise IllegalShape(
                f"{device_count} devices are named where {request.size} are asked for"
            )
        domain_count = len({self._machines[name][0] for name in masks_by_machine})
        if request.domains not in (None, domain_count):
            raise IllegalShape(f"the devices named lie in {domain_count} link domains")
        if request.gcds <= 0 or device_count % request.gcds:
            raise IllegalShape(
                f"{device_count} devices do not divide evenly into {request.gcds} GCDs"
            )
        shape = NodeShape(0, device_count, device_count // request.gcds, None)
        if any(block.size % shape.gcd for block in self._blocks_of_masks(masks_by_machine)):
            raise IllegalShape(f"a GCD is a run of {shape.gcd} neighbours")
        return masks_by_machine, shape

    def _blocks_of_masks(self, masks_by_machine: dict[str, int]) -> list[Block]:
        blocks = []
        for machine_name in sorted(masks_by_machine, key=self._machines.__getitem__):
            domain, place = self._machines[machine_name]
            runs = best_device_runs(
                masks_by_machine[machine_name],
                masks_by_machine[machine_name].bit_count(),
                1,
                self._per,
            )
            blocks += [
                Block(domain, place * self._per + run_start, length) for run_start, length in runs
            ]
        return blocks

    # The reasons of a refusal.

    def _refusal_of_request(self, request: Request) -> Refusal:
        pools = [
            candidate_pool
            for name, candidate_pool in self._pools.items()
            if request.allocation in (None, name)
        ]
        if not pools:
            return unknown_allocation(self.cluster, request.allocation)
        device_noun = self.cluster.family.device_noun
        free_devices, largest_size = self.room(request)
        try:
            if request.blocks is not None:
                masks_by_machine, _ = self._named(request)
                in_one_pool = any(pool.places.keys() >= masks_by_machine.keys() for pool in pools)
                rule = "some of the devices named are taken, or on a drained machine"
                if not in_one_pool:
                    rule = "the devices named are not all in one allocation"
                return Refusal(not in_one_pool, rule, free_devices, largest_size)
            if request.profile:
                check_slices(request)
                machine_names = [name for pool in pools for name in pool.places]
                return self._slices.refuse(request, machine_names, self._open)
            shape = node_shape(self.cluster, request)
        except IllegalShape as illegal:
            nearest_sizes = (
                self._nearest_possible_sizes(request.size, pools) if illegal.of_size else ()
            )
            return Refusal(True, illegal.rule, free_devices, largest_size, nearest_sizes)
        largest_pool = max(len(pool.places) for pool in pools)
        machine_count = shape.machines + bool(shape.rest)
        if machine_count > largest_pool:
            rule = f"the largest allocation has {largest_pool} machines, not {machine_count}"
            return Refusal(
                True,
                rule,
                free_devices,
                largest_size,
                self._nearest_possible_sizes(request.size, pools),
            )
        if free_devices < request.size:
            rule = f"{are(request.size, device_noun)} asked for and {are(free_devices)} free"
        elif shape.rest:
            rule = (
                f"{are(free_devices, device_noun)} free, but no {shape.machines} whole machines "
                f"and {shape.rest} {device_noun}s of one more of their link domain are"
            )
        elif shape.machines:
            rule = (
                f"{are(free_devices, device_noun)} free, but no {shape.machines} whole machines are"
            )
        else:
            rule = (
                f"{are(free_devices, device_noun)} free, but no {shape.gcd} side by side in one "
                "machine"
            )
        return Refusal(False, rule, free_devices, largest_size)

    def _largest(self, request: Request, pools: Sequence[NodePool]) -> int:
        """Return the largest size of a request of the same kind that has a place now."""
        domains_unlinked = self.cluster.topology is ClusterTopology.NONE
        full_machines = max(
            max(pool.full_machines) if domains_unlinked else sum(pool.full_machines)
            for pool in pools
        )
        remainders = range(self._per - 1 if self.cluster.family.block_rule.trims else 0, -1, -1)
        for size in (
            self._per * count + remainder
            for count in range(full_machines, 0, -1)
            for remainder in remainders
        ):
            if self.find(replace(request, size=size, blocks=None, gcds=size)):
                return size
        gcds = request.gcds if request.size < self._per else 1
        for size in range(self._per - 1, 0, -1):
            if self.find(Request(size, request.allocation, None, gcds)):
                return size
        return 0

    def _nearest_possible_sizes(self, size: int, pools: Sequence[NodePool]) -> tuple[int, ...]:
        devices = max(len(pool.places) for pool in pools) * self._per
        smaller_size = min(size // self._per * self._per, devices)
        return tuple(
            near_size
            for near_size in (smaller_size, smaller_size + self._per)
            if 0 < near_size <= devices
        )


def _make_placement(allocation: str, blocks: Sequence[Block], gcd_size: int) -> Placement:
    gcds = tuple(
        Block(domain, gcd_offset, gcd_size)
        for domain, offset, size in blocks
        for gcd_offset in range(offset, offset + size, gcd_size)
    )
    return Placement(allocation, tuple(blocks), gcds)
