"""Which shapes a family allows: sizes, splits over link domains, GCDs. What is free plays no part.

Sources: V-IPU guide, terminology (sizes, GCDs; the family's own rules are data in `fabric`). That
parts lie at the same offset of neighbouring link domains is our choice, where the guide is silent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from podwright.fabric import Cluster, ClusterTopology, Family
from podwright.placement._values import Block, Request


class Shape(NamedTuple):
    """A shape: `domains` link domains, 2**order devices in each, GCDs of `gcd` devices."""

    domains: int
    order: int
    gcd: int

    @property
    def size(self) -> int:
        """The number of devices."""
        return self.domains << self.order


class Illegal(Exception):
    """No hardware of this kind has the shape. of_size: the size alone is already illegal."""

    def __init__(self, rule: str, *, of_size: bool = False) -> None:
        super().__init__(rule)
        self.rule = rule
        self.of_size = of_size


def _listing(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))


def _check_size(family: Family, size: int) -> None:
    legal, domain_limit = family.partition_sizes_in_domain, family.max_domain_devices
    if size not in legal and (size <= domain_limit or size % domain_limit):
        noun = family.device_noun
        rule = f"a partition has {_listing(legal)} {noun}s, or a multiple of {domain_limit}"
        raise Illegal(rule, of_size=True)


def _check_gcds(family: Family, size: int, gcds: int) -> None:
    noun = family.device_noun
    if gcds <= 0:
        raise Illegal("a partition has at least one GCD")
    if size % gcds:
        raise Illegal(f"{size} {noun}s do not divide evenly into {gcds} GCDs")
    if size // gcds not in family.gcd_sizes:
        raise Illegal(
            f"a GCD lies in one link domain and has {_listing(family.gcd_sizes)} {noun}s, "
            f"but {size} in {gcds} make {size // gcds}"
        )


def _domain_counts(cluster: Cluster, size: int, gcds: int, requested: int | None) -> list[int]:
    domain_size, domain_limit = cluster.family.max_domain_devices, len(cluster.domains)
    if requested is not None and requested <= 0:
        raise Illegal("a partition lies in at least one link domain")
    if size > domain_size:
        counts = [size // domain_size]
    elif size < cluster.family.devices_per_machine:
        counts = [1]
    else:
        counts = [1 << i for i in range(size.bit_length())]
    if requested is not None and requested not in counts:
        if size > domain_size:
            raise Illegal(
                f"more than {domain_size} {cluster.family.device_noun}s take whole link domains: "
                f"{size} take {counts[0]}"
            )
        if counts == [1]:
            raise Illegal(f"a partition of {size} lies in one machine")
        raise Illegal(f"{size} do not divide over {requested} link domains into aligned blocks")
    counts = [count for count in counts if requested in (None, count)]
    even = [count for count in counts if gcds % count == 0]
    if not even:
        raise Illegal(f"a GCD lies in one link domain: {gcds} do not divide over {counts[0]}")
    fit = [count for count in even if count <= domain_limit]
    if not fit:
        raise Illegal(
            f"cluster {cluster.name} has {domain_limit} link domains, not {even[0]}",
            of_size=requested is None,
        )
    if cluster.topology is ClusterTopology.NONE:
        if fit[0] > 1:
            raise Illegal(
                f"no links join the link domains of cluster {cluster.name}",
                of_size=requested is None,
            )
        return fit[:1]
    return fit


def shapes(cluster: Cluster, size: int, domains: int | None, gcds: int) -> tuple[Shape, ...]:
    """Return the shapes that fulfil a request, fewest link domains first. Raises Illegal."""
    family = cluster.family
    if size <= 0:
        raise Illegal("a partition has at least one device", of_size=True)
    _check_size(family, size)
    _check_gcds(family, size, gcds)
    counts = _domain_counts(cluster, size, gcds, domains)
    return tuple(Shape(k, (size // k).bit_length() - 1, size // gcds) for k in counts)


def sizes(cluster: Cluster, domains: int | None, gcds: int) -> Iterator[int]:
    """Yield every size that `shapes` accepts with these link domains and GCDs, smallest first."""
    family = cluster.family
    domain_limit = family.max_domain_devices
    small = (size for size in family.partition_sizes_in_domain if size <= cluster.size)
    large = (domain_limit * k for k in range(2, min(gcds, len(cluster.domains)) + 1))
    for size in (*small, *large):
        try:
            shapes(cluster, size, domains, gcds)
        except Illegal:
            continue
        yield size


def named_blocks(cluster: Cluster, request: Request) -> tuple[Shape, tuple[Block, ...]]:
    """Return the shape of the blocks that a request names, and the blocks in the order of the loop.

    Blocks that touch count as one. Raises Illegal.
    """
    merged: list[Block] = []
    for block in sorted(request.blocks or ()):
        domain, offset, size = block
        if not 0 <= domain < len(cluster.domains):
            raise Illegal(f"cluster {cluster.name} has no link domain {domain}")
        if size <= 0 or offset < 0 or offset + size > cluster.domain_size(domain):
            raise Illegal(
                f"link domain {domain} has no devices {offset} to {offset + size - 1}, "
                f"only 0 to {cluster.domain_size(domain) - 1}"
            )
        last = merged[-1] if merged else None
        if last is not None and last.domain == domain and last.offset + last.size >= offset:
            if last.offset + last.size > offset:
                raise Illegal(f"device {offset} of link domain {domain} is named twice")
            merged[-1] = Block(domain, last.offset, last.size + size)
        else:
            merged.append(Block(domain, offset, size))
    total = sum(block.size for block in merged)
    if request.size not in (0, total):
        raise Illegal(f"{total} devices are named where {request.size} are asked for")
    count = len({block.domain for block in merged})
    if request.domains not in (None, count):
        raise Illegal(f"the devices named lie in {count} link domains, not {request.domains}")
    (shape,) = shapes(cluster, total, count, request.gcds)
    part = 1 << shape.order
    if len({(block.offset, block.size) for block in merged}) != 1 or merged[0].offset % part:
        raise Illegal(
            f"in each link domain the devices are one aligned block of {part}, "
            "everywhere at the same offset"
        )
    return shape, tuple(_in_loop_order(cluster, merged))


def _in_loop_order(cluster: Cluster, blocks: list[Block]) -> list[Block]:
    count, counts = len(blocks), len(cluster.domains)
    if cluster.topology is not ClusterTopology.LOOPED or count == counts:
        return blocks
    by_domain = {block.domain: block for block in blocks}
    for start in by_domain:
        run = [(start + i) % counts for i in range(count)]
        if by_domain.keys() == set(run):
            return [by_domain[domain] for domain in run]
    raise Illegal(f"link domains {_listing(tuple(sorted(by_domain)))} do not lie side by side")
