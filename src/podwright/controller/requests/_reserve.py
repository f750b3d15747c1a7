"""Reserves devices for the first in the queue, so that small requests do not starve large ones.

The first waiter of an allocation gets a goal: the place that will be free soonest. Its free devices
are reserved, devices that become free join them, and the waiter starts once the place is complete.
A reservation is a plan that can change; no partition holds its devices. If all partitions in the
way have announced when they end, a request that ends before may use the reserved devices
meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    from podwright.controller.state._controller_state import ControllerState
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
    state: ControllerState,
    cluster: IndexedCluster,
    owner: str,
    spec: PartitionSpec,
    allocation: str,
) -> Goal | None:
    """The place in an allocation that is free soonest, or None where machines are missing.

    owner: whose request it is; the ends that others said count only where he may know them.
    """
    now = state.now()
    busy = _occupied(state, cluster, owner, allocation, {})
    best: Goal | None = None
    for blocks in islice(candidates(state, cluster, spec, allocation), MAX_CANDIDATES):
        goal = _goal(cluster, allocation, blocks, busy, now)
        if best is None or (goal.starts_at, goal.busy) < (best.starts_at, best.busy):
            best = goal
    return best


def goal_at(
    state: ControllerState,
    cluster: IndexedCluster,
    owner: str,
    allocation: str,
    blocks: tuple[Block, ...],
) -> Goal:
    """A given place as it stands now. owner: see `goal_for`."""
    busy = _occupied(state, cluster, owner, allocation, {})
    return _goal(cluster, allocation, blocks, busy, state.now())


def guest_goal(
    state: ControllerState,
    cluster: IndexedCluster,
    owner: str,
    sizes: Sequence[int],
    allocation: str,
    end_times: Mapping[str, float],
) -> Goal | None:
    """The same for a scheduler's job: one block of each size, all of them in one goal.

    A scheduler's block of n devices lies at a multiple of n, counted over all link domains, so only
    such places are considered. sizes: the largest first; each block is chosen without those after
    it. end_times: when partitions end, in seconds of `ControllerState.now`, where schedulers said
    so.
    """
    now = state.now()
    busy = _occupied(state, cluster, owner, allocation, end_times)
    chosen: list[Goal] = []
    for size in sizes:
        best: Goal | None = None
        spec = PartitionSpec(name="", size=size, cluster=cluster.layout.name)
        for blocks in islice(candidates(state, cluster, spec, allocation), MAX_CANDIDATES):
            first, count = blocks[0], len(blocks)
            if first.offset % first.size or (count > 1 and first.domain % count):
                continue
            if any(overlap(blocks, other.blocks) for other in chosen):
                continue
            goal = _goal(cluster, allocation, blocks, busy, now)
            if best is None or (goal.starts_at, goal.busy) < (best.starts_at, best.busy):
                best = goal
        if best is None:
            return None
        chosen.append(best)
    return Goal(
        cluster,
        allocation,
        tuple(block for goal in chosen for block in goal.blocks),
        max(goal.starts_at for goal in chosen),
        all(goal.known for goal in chosen),
        sum(goal.busy for goal in chosen),
        tuple(dict.fromkeys(name for goal in chosen for name in goal.partitions)),
    )


def in_service(state: ControllerState, goal: Goal) -> bool:
    """Whether all devices of a goal are healthy, and no machine of it is down, drained, or in
    another allocation by now."""
    cluster = goal.cluster
    usable = set(cluster.allocations.get(goal.allocation, ())) - cluster.drained - state.down
    return usable.issuperset(cluster.parts(goal.blocks)) and _healthy(cluster, goal.blocks)


def _healthy(cluster: IndexedCluster, blocks: Sequence[Block]) -> bool:
    return not any(cluster.unhealthy.values()) or all(
        cluster.unhealthy.get(machine, frozenset()).isdisjoint(indices)
        for machine, indices in cluster.parts(blocks).items()
    )


def guest_key(account: str, guest: str) -> str:
    """How the server knows a scheduler. Two of one account are told apart by the guest's name, and
    no account can use the place of another's scheduler.
    """
    return f"{account}/{guest}"


@contextmanager
def lent_to(state: ControllerState, guest: str) -> Iterator[None]:
    """Make the devices that are kept for a scheduler's job available to its own requests.

    Which of its jobs starts first is the scheduler's decision. What the request does not take is
    kept again on return.
    """
    own = [r for r in state.reservations.values() if guest and r.guest == guest]
    for reservation in own:
        reservation.lift()
    try:
        yield
    finally:
        for reservation in own:
            reservation.absorb()


def _occupied(
    state: ControllerState,
    cluster: IndexedCluster,
    owner: str,
    allocation: str,
    end_times: Mapping[str, float],
) -> dict[int, list[Occupied]]:
    """The devices in use, by link domain. owner, end_times: see `goal_for` and `guest_goal`."""
    now = state.now()
    busy: dict[int, list[Occupied]] = {}
    for record in state.partitions.records():
        if record.cluster == cluster.layout.name and record.allocation == allocation:
            end, known = end_of(record, now, seen=state.sight.partition_to(owner, record))
            if now < end_times.get(record.name, 0.0):
                end, known = end_times[record.name], False
            for block in record.blocks:
                busy.setdefault(block.domain, []).append(Occupied(block, end, known, record.name))
    for quarantined in state.quarantine.values():
        if quarantined.cluster == cluster.layout.name:
            block = quarantined.block
            busy.setdefault(block.domain, []).append(Occupied(block, now + 60, False, ""))
    return busy


def candidates(
    state: ControllerState, cluster: IndexedCluster, spec: PartitionSpec, allocation: str
) -> Iterator[tuple[Block, ...]]:
    """The places of a shape in an allocation, were nothing taken, on machines in service."""
    layout = cluster.layout
    per, domain_limit = layout.family.devices_per_machine, layout.family.max_domain_devices
    own = cluster.allocations.get(allocation, ())
    usable = {m for m in own if m not in state.down and m not in cluster.drained}

    def fits(block: Block) -> bool:
        machines = layout.domains[block.domain].machines
        last = (block.offset + block.size - 1) // per
        return (
            last < len(machines)
            and all(
                machines[machine_index].name in usable
                for machine_index in range(block.offset // per, last + 1)
            )
            and _healthy(cluster, (block,))
        )

    if spec.profile:
        return  # what is kept is whole devices
    if spec.devices:
        named = blocks_of(spec.devices)
        if all(fits(block) for block in named):
            yield named
        return
    count = spec.num_ilds or max(1, spec.size // domain_limit)
    part, domain_count = spec.size // count, len(layout.domains)
    rounds = (
        domain_count if layout.topology is ClusterTopology.LOOPED and count < domain_count else 0
    )
    for first in range(max(rounds, domain_count - count + 1)):
        run = [(first + i) % domain_count for i in range(count)]
        for offset in _offsets(layout, first, part):
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
    state: ControllerState, cluster: IndexedCluster, owner: str, request: Request, until: float
) -> Placement | None:
    """Devices that are kept for a waiter who cannot start before `until`; taken on return.

    owner: whose request it is. When the waiter can start is told by what others said; so where
    partitions are private, only requests of the waiter's own owner slip in.
    """
    now = state.now()
    for (cluster_name, allocation), reservation in state.reservations.items():
        goal = reservation.goal
        if cluster_name != cluster.layout.name or request.allocation not in (None, allocation):
            continue
        if not goal.known or not now < until <= goal.starts_at:
            continue
        if "partitions" in state.sight.private and owner != reservation.owner:
            continue
        reservation.lift()
        try:
            placement = cluster.index.plan(_within(request, allocation))
            if not isinstance(placement, Refusal):
                cluster.index.take(placement)
                return placement
        finally:
            reservation.absorb()
    return None


def _within(request: Request, allocation: str) -> Request:
    return replace(request, allocation=allocation)


def _goal(
    cluster: IndexedCluster,
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
    return Goal(cluster, allocation, blocks, starts, known, count, tuple(dict.fromkeys(names)))


def overlap(blocks: Sequence[Block], other_blocks: Sequence[Block]) -> bool:
    """Whether two lists of blocks have a device in common."""
    return any(
        a.domain == b.domain and a.offset < b.offset + b.size and b.offset < a.offset + a.size
        for a in blocks
        for b in other_blocks
    )
