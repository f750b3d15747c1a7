"""Which devices are free, and which of them a request gets.

One owner changes it in place. A device is at most in one placement, a placement in one
allocation; what is drained takes nothing new and keeps what is on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from podwright.fabric import Cluster, ClusterTopology
from podwright.placement._values import Block, Placement, Refusal, Request


class Index:
    """The free devices of one cluster, allocation by allocation.

    Until the first `define_allocation` there is one allocation, named like the cluster, that
    holds every machine.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._places: dict[str, tuple[int, int]] = {}
        for d, domain in enumerate(cluster.domains):
            for i, machine in enumerate(domain.machines):
                self._places[machine.name] = (d, i)
        whole = [(1 << cluster.domain_size(d)) - 1 for d in range(len(cluster.domains))]
        self._owned: dict[str, list[int]] = {cluster.name: whole}
        self._implicit = True
        self._taken = [0] * len(whole)
        self._drained = [0] * len(whole)
        self._held: dict[tuple[int, int], Placement] = {}

    def _machine_mask(self, machine: str) -> tuple[int, int]:
        if machine not in self._places:
            raise ValueError(f"no machine {machine!r} in cluster {self.cluster.name}")
        domain, i = self._places[machine]
        n = self.cluster.family.devices_per_machine
        return domain, ((1 << n) - 1) << (i * n)

    def define_allocation(self, name: str, machines: Sequence[str]) -> None:
        """Set machines apart under a name. Raises ValueError, and changes nothing, when a
        machine is unknown, named twice or in another allocation, or the name is taken."""
        if self._implicit and self._held:
            raise ValueError("partitions lie outside any allocation")
        owned = {} if self._implicit else dict(self._owned)
        if name in owned:
            raise ValueError(f"allocation {name} is defined already")
        masks = [0] * len(self.cluster.domains)
        for machine in machines:
            domain, mask = self._machine_mask(machine)
            if masks[domain] & mask:
                raise ValueError(f"machine {machine} is named twice")
            for other, theirs in owned.items():
                if theirs[domain] & mask:
                    raise ValueError(f"machine {machine} is in allocation {other}")
            masks[domain] |= mask
        owned[name] = masks
        self._owned, self._implicit = owned, False

    def _free(self, name: str) -> list[int]:
        return [
            own & ~taken & ~drained
            for own, taken, drained in zip(
                self._owned[name], self._taken, self._drained, strict=True
            )
        ]

    def plan(self, request: Request) -> Placement | Refusal:
        """Where the request would go; the index stays as it is."""
        if request.allocation is not None and request.allocation not in self._owned:
            return Refusal(True, f"there is no allocation {request.allocation}")
        names = [request.allocation] if request.allocation is not None else list(self._owned)
        never = True
        rule = ""
        for name in names:
            shapes = self._shapes(name, request)
            if isinstance(shapes, str):
                rule = rule or shapes
                continue
            never = False
            free = self._free(name)
            best: tuple[int, tuple[Block, ...]] | None = None
            for blocks in shapes:
                if all(free[d] >> o & (1 << s) - 1 == (1 << s) - 1 for d, o, s in blocks):
                    cost = 0
                    for d, o, s in blocks:
                        while s < 64 and not (o & ~s) % (2 * s):
                            up = o & ~s
                            if free[d] >> up & (1 << 2 * s) - 1 != (1 << 2 * s) - 1:
                                break
                            o, s = up, 2 * s
                        cost += s
                    if best is None or cost < best[0]:
                        best = (cost, blocks)
            if best is not None:
                g = request.gcds
                each = sum(b.size for b in best[1]) // g
                gcds = tuple(
                    Block(d, o + i, each) for d, o, s in best[1] for i in range(0, s, each)
                )
                return Placement(name, best[1], gcds)
        total = sum(self.free(name) for name in names)
        if never:
            return Refusal(True, rule, total)
        return Refusal(False, "no free devices form a legal shape", total)

    def _shapes(self, name: str, request: Request) -> list[tuple[Block, ...]] | str:
        family, n = self.cluster.family, len(self.cluster.domains)
        size, gcds = request.size, request.gcds
        if request.blocks is not None:
            size = sum(b.size for b in request.blocks)
            if request.size not in (0, size):
                return f"the devices named are {size}, not {request.size}"
        if size <= 0 or gcds <= 0:
            return "a partition has at least one device and one GCD"
        most = family.max_domain_devices
        if size & (size - 1) and size % most:
            return f"a partition has a power of two of devices, or a multiple of {most}"
        if size > most:
            counts = [size // most]
        else:
            counts = [1 << i for i in range(size.bit_length()) if 1 << i <= size]
        if request.domains is not None:
            counts = [k for k in counts if k == request.domains]
        counts = [k for k in counts if k <= n and not gcds % k and not size % gcds]
        if not counts:
            return f"{size} devices cannot be {gcds} GCDs over that many link domains"
        owned = self._owned[name]
        out: list[tuple[Block, ...]] = []
        for k in counts:
            part = size // k
            for start in range(n):
                if k > 1 and self.cluster.topology is ClusterTopology.NONE:
                    continue
                if k == n and start:
                    continue
                for offset in range(0, most, part):
                    blocks = tuple(Block((start + i) % n, offset, part) for i in range(k))
                    if all(owned[d] >> o & (1 << s) - 1 == (1 << s) - 1 for d, o, s in blocks):
                        out.append(blocks)
        if request.blocks is not None:
            out = [b for b in out if sorted(b) == sorted(request.blocks)]
        return out or f"allocation {name} has no place of that shape"

    def take(self, placement: Placement) -> None:
        """Hold a placement's devices. Raises ValueError if one is taken or not its allocation's."""
        owned = self._owned.get(placement.allocation)
        if owned is None:
            raise ValueError(f"there is no allocation {placement.allocation}")
        for d, o, s in placement.blocks:
            mask = ((1 << s) - 1) << o
            if self._taken[d] & mask:
                raise ValueError(f"devices of link domain {d} at {o} are taken")
            if owned[d] & mask != mask:
                raise ValueError(f"devices of link domain {d} at {o} are not in the allocation")
        for d, o, s in placement.blocks:
            self._taken[d] |= ((1 << s) - 1) << o
        self._held[placement.blocks[0][:2]] = placement

    def allocate(self, request: Request) -> Placement | Refusal:
        """Plan and take."""
        found = self.plan(request)
        if isinstance(found, Placement):
            self.take(found)
        return found

    def release(self, placement: Placement) -> None:
        """Give a placement's devices back. Raises ValueError if it is not held."""
        if self._held.get(placement.blocks[0][:2]) != placement:
            raise ValueError("that placement is not held")
        del self._held[placement.blocks[0][:2]]
        for d, o, s in placement.blocks:
            self._taken[d] &= ~(((1 << s) - 1) << o)

    def drain(self, machine: str) -> None:
        """Let the machine take nothing new. Raises ValueError for an unknown one."""
        domain, mask = self._machine_mask(machine)
        self._drained[domain] |= mask

    def resume(self, machine: str) -> None:
        """Undo `drain`. Raises ValueError for an unknown one."""
        domain, mask = self._machine_mask(machine)
        self._drained[domain] &= ~mask

    def free(self, allocation: str | None = None) -> int:
        """Devices that are free and not drained."""
        names = self._owned if allocation is None else [allocation]
        return sum(mask.bit_count() for name in names for mask in self._free(name))

    def size(self, allocation: str | None = None) -> int:
        """Devices in an allocation, or in all of them."""
        names = self._owned if allocation is None else [allocation]
        return sum(mask.bit_count() for name in names for mask in self._owned[name])
