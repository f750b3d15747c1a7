"""Which shapes a family allows: sizes, splits over link domains, GCDs. What is free plays no part.

Sources: V-IPU guide, terminology (sizes, GCDs; the family's own rules are data in `fabric`). That
parts lie at the same offset of neighbouring link domains is our choice, where the guide is silent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from podwright.fabric import Cluster, ClusterTopology, Family
from podwright.ground.plural import counted
from podwright.placement._placement_types import Block, Request


class Shape(NamedTuple):
    """A shape: `domains` link domains, 2**order devices in each, GCDs of `gcd` devices."""

    domains: int
    order: int
    gcd: int

    @property
    def size(self) -> int:
        """The number of devices."""
        return self.domains << self.order


class IllegalShape(Exception):
    """No hardware of this kind has the shape. of_size: the size alone is already illegal."""

    def __init__(self, rule: str, *, of_size: bool = False) -> None:
        super().__init__(rule)
        self.rule = rule
        self.of_size = of_size


def _listing(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))


def _check_size(family: Family, size: int) -> None:
    legal_sizes, devices_per_domain = family.partition_sizes_in_domain, family.max_domain_devices
    if size not in legal_sizes and (size <= devices_per_domain or size % devices_per_domain):
        noun = family.device_noun
        rule = (
            f"a partition has {_listing(legal_sizes)} {noun}s, or a multiple of "
            f"{devices_per_domain}"
        )
        raise IllegalShape(rule, of_size=True)


def _check_gcds(family: Family, size: int, gcds: int) -> None:
    noun = family.device_noun
    if gcds <= 0:
        raise IllegalShape("a partition has at least one GCD")
    if size % gcds:
        raise IllegalShape(f"{size} {noun}s do not divide evenly into {gcds} GCDs")
    if size // gcds not in family.gcd_sizes:
        raise IllegalShape(
            f"a GCD lies in one link domain and has {_listing(family.gcd_sizes)} {noun}s, "
            f"but {size} in {gcds} make {size // gcds}"
        )


def _domain_counts(
    cluster: Cluster, size: int, gcds: int, requested_domains: int | None
) -> list[int]:
    devices_per_domain, cluster_domains = cluster.family.max_domain_devices, len(cluster.domains)
    if requested_domains is not None and requested_domains <= 0:
        raise IllegalShape("a partition lies in at least one link domain")
    if size > devices_per_domain:
        domain_counts = [size // devices_per_domain]
    elif size < cluster.family.devices_per_machine:
        domain_counts = [1]
    else:
        domain_counts = [1 << exponent for exponent in range(size.bit_length())]
    if requested_domains is not None and requested_domains not in domain_counts:
        if size > devices_per_domain:
            raise IllegalShape(
                f"more than {devices_per_domain} {cluster.family.device_noun}s take whole link "
                f"domains: {size} take {domain_counts[0]}"
            )
        if domain_counts == [1]:
            raise IllegalShape(f"a partition of {size} lies in one machine")
        raise IllegalShape(
            f"{size} do not divide over {requested_domains} link domains into aligned blocks"
        )
    domain_counts = [count for count in domain_counts if requested_domains in (None, count)]
    even_counts = [count for count in domain_counts if gcds % count == 0]
    if not even_counts:
        raise IllegalShape(
            f"a GCD lies in one link domain: {gcds} do not divide over {domain_counts[0]}"
        )
    fitting_counts = [count for count in even_counts if count <= cluster_domains]
    if not fitting_counts:
        raise IllegalShape(
            f"cluster {cluster.name} has {counted(cluster_domains, 'link domain')}, not "
            f"{even_counts[0]}",
            of_size=requested_domains is None,
        )
    if cluster.topology is ClusterTopology.NONE:
        if fitting_counts[0] > 1:
            raise IllegalShape(
                f"no links join the link domains of cluster {cluster.name}",
                of_size=requested_domains is None,
            )
        return fitting_counts[:1]
    return fitting_counts


def shapes(cluster: Cluster, size: int, domains: int | None, gcds: int) -> tuple[Shape, ...]:
    """Return the shapes that fulfil a request, fewest link domains first. Raises IllegalShape."""
    family = cluster.family
    if size <= 0:
        raise IllegalShape("a partition has at least one device", of_size=True)
    _check_size(family, size)
    _check_gcds(family, size, gcds)
    domain_counts = _domain_counts(cluster, size, gcds, domains)
    return tuple(
        Shape(count, (size // count).bit_length() - 1, size // gcds) for count in domain_counts
    )


def sizes(cluster: Cluster, domains: int | None, gcds: int) -> Iterator[int]:
    """Yield every size that `shapes` accepts with these link domains and GCDs, smallest first."""
    family = cluster.family
    devices_per_domain = family.max_domain_devices
    sizes_in_domain = (size for size in family.partition_sizes_in_domain if size <= cluster.size)
    sizes_over_domains = (
        devices_per_domain * count for count in range(2, min(gcds, len(cluster.domains)) + 1)
    )
    for size in (*sizes_in_domain, *sizes_over_domains):
        try:
            shapes(cluster, size, domains, gcds)
        except IllegalShape:
            continue
        yield size


def named_blocks(cluster: Cluster, request: Request) -> tuple[Shape, tuple[Block, ...]]:
    """Return the shape of the blocks that a request names, and the blocks in the order of the loop.

    Blocks that touch count as one. Raises IllegalShape.
    """
    merged: list[Block] = []
    for block in sorted(request.blocks or ()):
        domain, offset, size = block
        if not 0 <= domain < len(cluster.domains):
            raise IllegalShape(f"cluster {cluster.name} has no link domain {domain}")
        if size <= 0 or offset < 0 or offset + size > cluster.domain_size(domain):
            raise IllegalShape(
                f"link domain {domain} has no devices {offset} to {offset + size - 1}, "
                f"only 0 to {cluster.domain_size(domain) - 1}"
            )
        last_block = merged[-1] if merged else None
        if (
            last_block is not None
            and last_block.domain == domain
            and last_block.offset + last_block.size >= offset
        ):
            if last_block.offset + last_block.size > offset:
                raise IllegalShape(f"device {offset} of link domain {domain} is named twice")
            merged[-1] = Block(domain, last_block.offset, last_block.size + size)
        else:
            merged.append(Block(domain, offset, size))
    device_count = sum(block.size for block in merged)
    if request.size not in (0, device_count):
        raise IllegalShape(f"{device_count} devices are named where {request.size} are asked for")
    domain_count = len({block.domain for block in merged})
    if request.domains not in (None, domain_count):
        raise IllegalShape(
            f"the devices named lie in {counted(domain_count, 'link domain')}, not "
            f"{request.domains}"
        )
    (shape,) = shapes(cluster, device_count, domain_count, request.gcds)
    block_size = 1 << shape.order
    if len({(block.offset, block.size) for block in merged}) != 1 or merged[0].offset % block_size:
        raise IllegalShape(
            f"in each link domain the devices are one aligned block of {block_size}, "
            "everywhere at the same offset"
        )
    return shape, tuple(_in_loop_order(cluster, merged))


def _in_loop_order(cluster: Cluster, blocks: list[Block]) -> list[Block]:
    block_count, domain_count = len(blocks), len(cluster.domains)
    if cluster.topology is not ClusterTopology.LOOPED or block_count == domain_count:
        return blocks
    blocks_by_domain = {block.domain: block for block in blocks}
    for start_domain in blocks_by_domain:
        domain_run = [(start_domain + step) % domain_count for step in range(block_count)]
        if blocks_by_domain.keys() == set(domain_run):
            return [blocks_by_domain[domain] for domain in domain_run]
    raise IllegalShape(
        f"link domains {_listing(tuple(sorted(blocks_by_domain)))} do not lie side by side"
    )
