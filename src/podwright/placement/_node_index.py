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
from podwright.placement._allocation_index import check_allocation
from podwright.placement._infeasible import unknown_allocation
from podwright.placement._node_pool import Harm, NodePool, best_first, spread
from podwright.placement._node_rules import NodeShape, best_runs, node_shape
from podwright.placement._node_slices import Slices, check_slices
from podwright.placement._shape_rules import Illegal
from podwright.placement._values import Block, Placement, Refusal, Request, are


class NodeIndex:
    """The free devices of one cluster of such machines. It keeps the promises of `Index`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._per = cluster.family.devices_per_machine
        self._full = (1 << self._per) - 1
        names = [
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
            for domain_index, machine_index in names
        }
        self._names = {place: name for name, place in self._machines.items()}
        self._untaken = dict.fromkeys(self._machines, self._full)
        self._drained: set[str] = set()
        self._avoided: dict[str, int] = {}  # machine -> its devices that are ill, if any
        self._slices = Slices()
        self._open = dict.fromkeys(self._machines, 0)  # neither taken, drained nor ill
        self._now = dict.fromkeys(self._machines, 0)  # of these, the whole devices
        self._home: dict[str, NodePool] = {}
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
        pools = {} if self._implicit else self._pools

        def home(machine: str) -> str:
            return next((other for other, pool in pools.items() if machine in pool.places), "")

        check_allocation(name, machines, pools, self._known, home)
        if self._implicit:
            self._pools.clear()
            self._home.clear()
        self._add_pool(name, machines)
        self._implicit = False

    def _add_pool(self, name: str, machines: Iterable[str]) -> None:
        places = {machine: self._machines[machine] for machine in machines}
        pool = self._pools[name] = NodePool(places, self._per, len(self.cluster.domains))
        for machine in places:
            self._home[machine] = pool
            self._now[machine] = 0
            self._refile(machine)

    def _refile(self, machine: str) -> None:
        """File a machine anew after its free devices may have changed."""
        now = self._untaken[machine] & ~self._avoided.get(machine, 0)
        if machine in self._drained:
            now = 0
        self._open[machine] = now
        now &= ~self._slices.of(machine)
        before, self._now[machine] = self._now[machine], now
        if before != now and machine in self._home:
            self._home[machine].refile(machine, before.bit_count(), now.bit_count())

    def remove_allocation(self, name: str) -> None:
        """Undo `define_allocation`. Raises ValueError if something is placed in it."""
        pool = self._pool(name)
        if any(placement.allocation == name for placement in self._held):
            raise ValueError(f"allocation {name} has partitions")
        for machine in pool.places:
            del self._home[machine]
        del self._pools[name]

    def drain(self, machine: str) -> None:
        """Place nothing new on the machine. Raises ValueError for an unknown machine."""
        self._drained.add(self._known(machine))
        self._refile(machine)

    def resume(self, machine: str) -> None:
        """Undo `drain`. Raises ValueError for an unknown machine."""
        self._drained.discard(self._known(machine))
        self._refile(machine)

    def avoid(self, machine: str, devices: Iterable[int]) -> None:
        """Place nothing new on these devices of a machine, and resume placing on its others.

        Raises ValueError for an unknown machine.
        """
        mask = sum(1 << index for index in set(devices) if index < self._per)
        self._avoided.pop(self._known(machine), None)
        if mask:
            self._avoided[machine] = mask
        self._refile(machine)

    def cut(self, machine: str, profiles: Mapping[int, str]) -> None:
        """Declare devices of a machine to be slices. profiles: device index -> profile.

        A slice goes only to a request that asks for its profile or names it. Raises ValueError for
        an unknown machine.
        """
        self._slices.cut(self._known(machine), profiles)
        self._refile(machine)

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

    def _pool(self, name: str) -> NodePool:
        if name not in self._pools:
            raise ValueError(f"there is no allocation {name} in cluster {self.cluster.name}")
        return self._pools[name]

    def _known(self, name: str) -> str:
        if name not in self._machines:
            raise ValueError(f"there is no machine {name} in cluster {self.cluster.name}")
        return name

    # Placements.

    def plan(self, request: Request) -> Placement | Refusal:
        """Return the placement that a request would get, or why not. Nothing is changed."""
        return self.find(request) or self._refuse(request)

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
                return self._find_named(request)
            if request.profile:
                return self._find_slices(request)
            shape = node_shape(self.cluster, request)
        except Illegal:
            return None
        for name, pool in self._pools.items():
            if request.allocation in (None, name) and (blocks := self._search(pool, shape)):
                return _placement(name, blocks, shape.gcd)
        return None

    def take(self, placement: Placement) -> None:
        """Take the devices of a new or earlier placement, also on drained machines.

        Raises ValueError, and changes nothing, when some of it is taken or outside its allocation.
        """
        pool = self._pool(placement.allocation)
        bits = self._bits(placement.blocks)
        if not bits or not pool.places.keys() >= bits.keys():
            raise ValueError(f"some of the devices are not in allocation {placement.allocation}")
        if placement in self._held or any(m & ~self._untaken[name] for name, m in bits.items()):
            raise ValueError("some of the devices are taken")
        for name, mask in bits.items():
            self._untaken[name] ^= mask
            self._refile(name)
        self._held[placement] = placement.size

    def release(self, placement: Placement) -> None:
        """Give a placement's devices back. Raises ValueError if it is not held."""
        if self._held.pop(placement, None) is None:
            raise ValueError("that placement is not held")
        for name, mask in self._bits(placement.blocks).items():
            self._untaken[name] |= mask
            self._refile(name)

    def placements(self) -> list[Placement]:
        """Return all placements that hold devices now."""
        return list(self._held)

    def _bits(self, blocks: Sequence[Block]) -> dict[str, int]:
        """Return blocks as masks by machine; empty if they leave the cluster or overlap."""
        out: dict[str, int] = {}
        for domain, offset, size in blocks:
            for slot in range(offset, offset + size):
                place, index = divmod(slot, self._per)
                name = self._names.get((domain, place))
                if name is None or size <= 0 or out.get(name, 0) >> index & 1:
                    return {}
                out[name] = out.get(name, 0) | 1 << index
        return out

    # The search for the devices of a shape.

    def _search(self, pool: NodePool, shape: NodeShape) -> list[Block]:
        if shape.rest:
            return self._trimmed(pool, shape)
        if shape.machines:
            return self._whole_machines(pool, shape)

        def harm(name: str) -> Harm:
            place = pool.places[name]
            return pool.full_machines[place[0]], place

        for names in pool.filed[shape.size :]:
            for name in best_first(names, harm):
                runs = best_runs(self._now[name], shape.size, shape.gcd, self._per)
                if runs:
                    domain, place = pool.places[name]
                    return [Block(domain, place * self._per + offset, n) for offset, n in runs]
        return []

    def _whole_machines(self, pool: NodePool, shape: NodeShape) -> list[Block]:
        if len(pool.filed[self._per]) < shape.machines:
            return []
        by_domain: dict[int, list[int]] = {}
        for domain, place in sorted(pool.places[name] for name in pool.filed[self._per]):
            by_domain.setdefault(domain, []).append(place)
        chosen = spread(by_domain, shape.machines, shape.domains)
        per = self._per
        return [Block(d, place * per, per) for d in sorted(chosen) for place in chosen[d]]

    def _trimmed(self, pool: NodePool, shape: NodeShape) -> list[Block]:
        """Return whole machines of a link domain and a part of one more.

        The part is taken from a machine that is already partly used, if there is one, so that as
        few machines as possible are broken.
        """
        per, by_domain = self._per, dict[int, list[tuple[int, int, str]]]()
        for count, names in enumerate(pool.filed[shape.rest :], shape.rest):
            for name in names:
                domain, place = pool.places[name]
                by_domain.setdefault(domain, []).append((count, place, name))
        best: tuple[tuple[bool, int, int], list[Block]] | None = None
        for domain, free_counts in by_domain.items():
            full_machines = sorted(place for count, place, _ in free_counts if count == per)
            if len(full_machines) < shape.machines:
                continue
            chosen = full_machines[: shape.machines]
            for count, place, name in sorted(free_counts):
                runs = best_runs(self._now[name], shape.rest, shape.gcd, per)
                if runs and place not in chosen:
                    key = count == per, len(full_machines), domain
                    parts = [(offset * per, per) for offset in chosen]
                    parts += [(place * per + offset, n) for offset, n in runs]
                    blocks = [Block(domain, offset, n) for offset, n in sorted(parts)]
                    best = min(best or (key, blocks), (key, blocks))
                    break
        return best[1] if best else []

    def _find_named(self, request: Request) -> Placement | None:
        bits, shape = self._named(request)
        for name, pool in self._pools.items():
            in_pool = request.allocation in (None, name) and pool.places.keys() >= bits.keys()
            if in_pool and not any(mask & ~self._open[m] for m, mask in bits.items()):
                return _placement(name, self._blocks(bits), shape.gcd)
        return None

    def _find_slices(self, request: Request) -> Placement | None:
        check_slices(request)
        for name, pool in self._pools.items():
            bits = self._slices.pick(request, pool.places, self._open)
            if request.allocation in (None, name) and bits:
                return _placement(name, self._blocks(bits), 1)
        return None

    def _named(self, request: Request) -> tuple[dict[str, int], NodeShape]:
        """Return the devices that the request names, and their shape. Raises Illegal.

        They may be any devices of any machines: where Slurm gave them out, the choice is Slurm's.
        """
        bits = self._bits(request.blocks or ())
        total = sum(mask.bit_count() for mask in bits.values())
        if not bits:
            raise Illegal("the devices named are not all there, or one is named twice")
        if request.size not in (0, total):
            raise Illegal(f"{total} devices are named where {request.size} are asked for")
        domains = len({self._machines[name][0] for name in bits})
        if request.domains not in (None, domains):
            raise Illegal(f"the devices named lie in {domains} link domains")
        if request.gcds <= 0 or total % request.gcds:
            raise Illegal(f"{total} devices do not divide evenly into {request.gcds} GCDs")
        shape = NodeShape(0, total, total // request.gcds, None)
        if any(block.size % shape.gcd for block in self._blocks(bits)):
            raise Illegal(f"a GCD is a run of {shape.gcd} neighbours")
        return bits, shape

    def _blocks(self, bits: dict[str, int]) -> list[Block]:
        blocks = []
        for name in sorted(bits, key=self._machines.__getitem__):
            domain, place = self._machines[name]
            runs = best_runs(bits[name], bits[name].bit_count(), 1, self._per)
            blocks += [Block(domain, place * self._per + first, n) for first, n in runs]
        return blocks

    # The reasons of a refusal.

    def _refuse(self, request: Request) -> Refusal:
        pools = [p for name, p in self._pools.items() if request.allocation in (None, name)]
        if not pools:
            return unknown_allocation(self.cluster, request.allocation)
        noun = self.cluster.family.device_noun
        free, largest = sum(pool.free for pool in pools), self._largest(request, pools)
        try:
            if request.blocks is not None:
                bits, _ = self._named(request)
                in_one_pool = any(pool.places.keys() >= bits.keys() for pool in pools)
                rule = "some of the devices named are taken, or on a drained machine"
                if not in_one_pool:
                    rule = "the devices named are not all in one allocation"
                return Refusal(not in_one_pool, rule, free, largest)
            if request.profile:
                check_slices(request)
                places = [name for pool in pools for name in pool.places]
                return self._slices.refuse(request, places, self._open)
            shape = node_shape(self.cluster, request)
        except Illegal as illegal:
            nearest = self._nearest(request.size, pools) if illegal.of_size else ()
            return Refusal(True, illegal.rule, free, largest, nearest)
        room = max(len(pool.places) for pool in pools)
        machines = shape.machines + bool(shape.rest)
        if machines > room:
            rule = f"the largest allocation has {room} machines, not {machines}"
            return Refusal(True, rule, free, largest, self._nearest(request.size, pools))
        if free < request.size:
            rule = f"{are(request.size, noun)} asked for and {are(free)} free"
        elif shape.rest:
            rule = (
                f"{are(free, noun)} free, but no {shape.machines} whole machines and "
                f"{shape.rest} {noun}s of one more of their link domain are"
            )
        elif shape.machines:
            rule = f"{are(free, noun)} free, but no {shape.machines} whole machines are"
        else:
            rule = f"{are(free, noun)} free, but no {shape.gcd} side by side in one machine"
        return Refusal(False, rule, free, largest)

    def _largest(self, request: Request, pools: Sequence[NodePool]) -> int:
        """Return the largest size of a request of the same kind that has a place now."""
        apart = self.cluster.topology is ClusterTopology.NONE
        full_machines = max(
            max(pool.full_machines) if apart else sum(pool.full_machines) for pool in pools
        )
        rests = range(self._per - 1 if self.cluster.family.block_rule.trims else 0, -1, -1)
        for size in (self._per * n + rest for n in range(full_machines, 0, -1) for rest in rests):
            if self.find(replace(request, size=size, blocks=None, gcds=size)):
                return size
        gcds = request.gcds if request.size < self._per else 1
        for size in range(self._per - 1, 0, -1):
            if self.find(Request(size, request.allocation, None, gcds)):
                return size
        return 0

    def _nearest(self, size: int, pools: Sequence[NodePool]) -> tuple[int, ...]:
        largest_pool = max(len(pool.places) for pool in pools) * self._per
        below = min(size // self._per * self._per, largest_pool)
        return tuple(n for n in (below, below + self._per) if 0 < n <= largest_pool)


def _placement(allocation: str, blocks: Sequence[Block], gcd: int) -> Placement:
    gcds = tuple(
        Block(domain, gcd_offset, gcd)
        for domain, offset, size in blocks
        for gcd_offset in range(offset, offset + size, gcd)
    )
    return Placement(allocation, tuple(blocks), gcds)
