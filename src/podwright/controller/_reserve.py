"""Devices kept for the first in the waiting line, so that small requests do not starve large ones.

The one who waits first in an allocation gets a goal: the place that will be free soonest. What is
free of it is kept from everybody, what becomes free joins, and once all of it is there the waiter
starts. Nobody holds these devices: they are planned, and the plan can change. Where all who stand
in the way said when they end, a request that says that it ends before may use them meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from podwright.controller._cluster_index import IndexedCluster
from podwright.controller._reservation import Goal
from podwright.controller._spec import blocks_of
from podwright.fabric import Cluster, ClusterTopology
from podwright.placement import Block, Placement, Refusal, Request
from podwright.placement.move_plans import likely_end
from podwright.wire import PartitionSpec

if TYPE_CHECKING:
    from podwright.controller._core import Core
    from podwright.controller._records import PartitionRecord

MAX_CANDIDATES: Final = 4096  #: places looked at for one waiter; bounds the time that it takes


class Occupied(NamedTuple):
    """Devices that somebody has. end: when they may be free. known: somebody said so."""

    block: Block
    end: float
    known: bool
    name: str


def end_of(record: PartitionRecord, now: float) -> tuple[float, bool]:
    """When a partition may end, and whether somebody said so."""
    return likely_end(record.until, record.created_at, now)


def goal_for(core: Core, site: IndexedCluster, spec: PartitionSpec, allocation: str) -> Goal | None:
    """The place in an allocation that is free soonest, or None where machines are missing."""
    now = core.now()
    busy: dict[int, list[Occupied]] = {}
    for record in core.records():
        if record.cluster == site.cluster.name and record.allocation == allocation:
            end, known = end_of(record, now)
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
    part, there = spec.size // count, len(cluster.domains)
    rounds = there if cluster.topology is ClusterTopology.LOOPED and count < there else 0
    for first in range(max(rounds, there - count + 1)):
        run = [(first + i) % there for i in range(count)]
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


def slip(core: Core, site: IndexedCluster, request: Request, until: float) -> Placement | None:
    """Devices that are kept for a waiter who cannot start before `until`; taken on return."""
    now = core.now()
    for (cluster, allocation), kept in core.reservations.items():
        goal = kept.goal
        if cluster != site.cluster.name or request.allocation not in (None, allocation):
            continue
        if not goal.known or not now < until <= goal.starts_at:
            continue
        kept.lift()
        try:
            found = site.index.plan(_within(request, allocation))
            if not isinstance(found, Refusal):
                site.index.take(found)
                return found
        finally:
            kept.absorb()
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


def overlap(blocks: Sequence[Block], others: Sequence[Block]) -> bool:
    """Whether any device is in both."""
    return any(
        a.domain == b.domain and a.offset < b.offset + b.size and b.offset < a.offset + a.size
        for a in blocks
        for b in others
    )
