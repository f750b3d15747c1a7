"""Reserves devices for the first in the queue, so that small requests do not starve large ones.

The first waiter of an allocation gets a goal: the place that will be free soonest. Its free devices
are reserved, devices that become free join them, and the waiter starts once the place is complete.
A reservation is a plan that can change; no partition holds its devices. If all partitions in the
way have announced when they end, a request that ends before may use the reserved devices
meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from podwright.controller.requests._spec import blocks_of
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._reservation import Goal
from podwright.fabric import Cluster, ClusterTopology
from podwright.placement import Block, Placement, Refusal, Request
from podwright.placement.move_plans import likely_end
from podwright.wire import PartitionSpec

if TYPE_CHECKING:
    from podwright.controller.state._core import Core
    from podwright.controller.state._records import PartitionRecord

MAX_CANDIDATES: Final = 4096  #: places looked at for one waiter; bounds the time that it takes


class Occupied(NamedTuple):
    """Devices in use. end: when they may be free. known: their holder announced that time."""

    block: Block
    end: float
    known: bool
    name: str


def end_of(record: PartitionRecord, now: float, *, seen: bool = True) -> tuple[float, bool]:
    """When a partition may end, and whether that was announced. seen: announced ends count."""
    return likely_end(record.until if seen else 0.0, record.placed, now)


def goal_for(
    core: Core, site: IndexedCluster, owner: str, spec: PartitionSpec, allocation: str
) -> Goal | None:
    """The place in an allocation that is free soonest, or None where machines are missing.

    owner: whose request it is; the ends that others said count only where he may know them.
    """
    now = core.now()
    busy: dict[int, list[Occupied]] = {}
    for record in core.records():
        if record.cluster == site.cluster.name and record.allocation == allocation:
            end, known = end_of(record, now, seen=core.sight.partition_to(owner, record))
            for block in record.blocks:
                busy.setdefault(block.domain, []).append(Occupied(block, end, known, record.name))
    for quarantined in core.quarantine.values():
        if quarantined.cluster == site.cluster.name:
            block = quarantined.block
            busy.setdefault(block.domain, []).append(Occupied(block, now + 60, False, ""))
    best: Goal | None = None
    for blocks in islice(candidates(core, site, spec, allocation), MAX_CANDIDATES):
        goal = _goal(site, allocation, blocks, busy, now)
        if best is None or (goal.starts_at, goal.busy) < (best.starts_at, best.busy):
            best = goal
    return best


def candidates(
    core: Core, site: IndexedCluster, spec: PartitionSpec, allocation: str
) -> Iterator[tuple[Block, ...]]:
    """The places of a shape in an allocation, were nothing taken, on machines in service."""
    cluster = site.cluster
    per, most = cluster.family.devices_per_machine, cluster.family.max_domain_devices
    own = site.allocations.get(allocation, ())
    usable = {m for m in own if m not in core.down and m not in site.drained}

    def fits(block: Block) -> bool:
        machines = cluster.domains[block.domain].machines
        last = (block.offset + block.size - 1) // per
        return last < len(machines) and all(
            machines[at].name in usable for at in range(block.offset // per, last + 1)
        )

    if spec.profile:
        return  # what is kept is whole devices
    if spec.devices:
        named = blocks_of(spec.devices)
        if all(fits(block) for block in named):
            yield named
        return
    count = spec.num_ilds or max(1, spec.size // most)
    part, domain_count = spec.size // count, len(cluster.domains)
    rounds = (
        domain_count if cluster.topology is ClusterTopology.LOOPED and count < domain_count else 0
    )
    for first in range(max(rounds, domain_count - count + 1)):
        run = [(first + i) % domain_count for i in range(count)]
        for offset in _offsets(cluster, first, part):
            blocks = tuple(Block(domain, offset, part) for domain in run)
            if all(fits(block) for block in blocks):
                yield blocks


def _offsets(cluster: Cluster, domain: int, part: int) -> Iterator[int]:
    """Where a part of a partition may begin in a link domain."""
    per = cluster.family.devices_per_machine
    step = cluster.family.block_rule.step(part, per)
    for offset in range(0, cluster.domain_size(domain), step):
        if part >= per or offset % per + part <= per:
            yield offset


def slip(
    core: Core, site: IndexedCluster, owner: str, request: Request, until: float
) -> Placement | None:
    """Devices that are kept for a waiter who cannot start before `until`; taken on return.

    owner: whose request it is. When the waiter can start is told by what others said; so where
    partitions are private, only requests of the waiter's own owner slip in.
    """
    now = core.now()
    for (cluster, allocation), reservation in core.reservations.items():
        goal = reservation.goal
        if cluster != site.cluster.name or request.allocation not in (None, allocation):
            continue
        if not goal.known or not now < until <= goal.starts_at:
            continue
        if "partitions" in core.sight.private and owner != reservation.owner:
            continue
        reservation.lift()
        try:
            placement = site.index.plan(_within(request, allocation))
            if not isinstance(placement, Refusal):
                site.index.take(placement)
                return placement
        finally:
            reservation.absorb()
    return None


def _within(request: Request, allocation: str) -> Request:
    return replace(request, allocation=allocation)


def _goal(
    site: IndexedCluster,
    allocation: str,
    blocks: tuple[Block, ...],
    busy: dict[int, list[Occupied]],
    now: float,
) -> Goal:
    starts, known, count = now, True, 0
    names: list[str] = []
    for domain, offset, size in blocks:
        for other in busy.get(domain, ()):
            first = max(offset, other.block.offset)
            last = min(offset + size, other.block.offset + other.block.size)
            if first < last:
                count += last - first
                starts = max(starts, other.end)
                known = known and other.known
                names.append(other.name)
    return Goal(site, allocation, blocks, starts, known, count, tuple(dict.fromkeys(names)))


def overlap(blocks: Sequence[Block], other_blocks: Sequence[Block]) -> bool:
    """Whether two lists of blocks have a device in common."""
    return any(
        a.domain == b.domain and a.offset < b.offset + b.size and b.offset < a.offset + a.size
        for a in blocks
        for b in other_blocks
    )
