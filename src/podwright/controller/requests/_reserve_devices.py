"""Reserves devices for the first in the queue, so that small requests do not starve large ones.

The first waiter of an allocation gets a goal: the place that will be free soonest. Its free devices
are reserved, devices that become free join them, and the waiter starts once the place is complete.
A reservation is a plan that can change; no partition holds its devices. Nothing new starts on them,
also not what would end soon: a partition in the way may end earlier than announced, and then
nothing but the waiter is to be there.
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
from podwright.placement import Block
from podwright.placement.move_plans import likely_end_time
from podwright.wire import PartitionSpec

if TYPE_CHECKING:
    from podwright.controller.state._controller_state import ControllerState
    from podwright.controller.state._records import PartitionRecord

MAX_CANDIDATES: Final = 4096  #: places looked at for one waiter; bounds the time that it takes


class OccupiedBlock(NamedTuple):
    """Devices in use. end: when they may be free. known: their holder announced that time."""

    block: Block
    end: float
    known: bool
    name: str


def end_of(record: PartitionRecord, now: float, *, seen: bool = True) -> tuple[float, bool]:
    """When a partition may end, and whether that was announced. seen: announced ends count."""
    return likely_end_time(record.until if seen else 0.0, record.placed, now)


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
    occupied_by_domain = _occupied_blocks(state, cluster, owner, allocation, {})
    best_goal: Goal | None = None
    for blocks in islice(candidates(state, cluster, spec, allocation), MAX_CANDIDATES):
        goal = _make_goal(cluster, allocation, blocks, occupied_by_domain, now)
        if best_goal is None or (goal.starts_at, goal.busy) < (best_goal.starts_at, best_goal.busy):
            best_goal = goal
    return best_goal


def goal_at(
    state: ControllerState,
    cluster: IndexedCluster,
    owner: str,
    allocation: str,
    blocks: tuple[Block, ...],
) -> Goal:
    """A given place as it stands now. owner: see `goal_for`."""
    occupied_by_domain = _occupied_blocks(state, cluster, owner, allocation, {})
    return _make_goal(cluster, allocation, blocks, occupied_by_domain, state.now())


def retimed(state: ControllerState, goal: Goal, owner: str, end_times: Mapping[str, float]) -> Goal:
    """The same place, with the time and the partitions in the way as they are now.

    A time that was announced moves later only once it has passed. owner, end_times: see
    `guest_goal`.
    """
    occupied = _occupied_blocks(state, goal.cluster, owner, goal.allocation, end_times)
    current = _make_goal(goal.cluster, goal.allocation, goal.blocks, occupied, state.now())
    if goal.known and state.now() < goal.starts_at < current.starts_at:
        return replace(current, starts_at=goal.starts_at, known=True)
    return current


def guest_goal(
    state: ControllerState,
    cluster: IndexedCluster,
    owner: str,
    block_sizes: Sequence[int],
    allocation: str,
    end_times: Mapping[str, float],
) -> Goal | None:
    """The same for a scheduler's job: one block of each size, all of them in one goal.

    A scheduler's block of n devices lies at a multiple of n, counted over all link domains, so only
    such places are considered. block_sizes: the largest first; each block is chosen without those
    after it. end_times: when partitions end, in seconds of `ControllerState.now`, where schedulers
    said so.
    """
    now = state.now()
    occupied_by_domain = _occupied_blocks(state, cluster, owner, allocation, end_times)
    chosen_goals: list[Goal] = []
    for block_size in block_sizes:
        best_goal: Goal | None = None
        spec = PartitionSpec(name="", size=block_size, cluster=cluster.layout.name)
        for blocks in islice(candidates(state, cluster, spec, allocation), MAX_CANDIDATES):
            first_block, block_count = blocks[0], len(blocks)
            if first_block.offset % first_block.size or (
                block_count > 1 and first_block.domain % block_count
            ):
                continue
            if any(overlap(blocks, chosen_goal.blocks) for chosen_goal in chosen_goals):
                continue
            goal = _make_goal(cluster, allocation, blocks, occupied_by_domain, now)
            if best_goal is None or (goal.starts_at, goal.busy) < (
                best_goal.starts_at,
                best_goal.busy,
            ):
                best_goal = goal
        if best_goal is None:
            return None
        chosen_goals.append(best_goal)
    return Goal(
        cluster,
        allocation,
        tuple(block for goal in chosen_goals for block in goal.blocks),
        max(goal.starts_at for goal in chosen_goals),
        all(goal.known for goal in chosen_goals),
        sum(goal.busy for goal in chosen_goals),
        tuple(dict.fromkeys(name for goal in chosen_goals for name in goal.partitions)),
    )


def in_service(state: ControllerState, goal: Goal) -> bool:
    """Whether all devices of a goal are healthy, and no machine of it is down, drained, or in
    another allocation by now."""
    cluster = goal.cluster
    machines = set(cluster.allocations.get(goal.allocation, ())) - cluster.drained - state.down
    return machines.issuperset(cluster.parts(goal.blocks)) and _is_healthy(cluster, goal.blocks)


def _is_healthy(cluster: IndexedCluster, blocks: Sequence[Block]) -> bool:
    return not (cluster.unhealthy or cluster.unjoinable) or all(
        cluster.avoided(machine).isdisjoint(indices)
        for machine, indices in cluster.parts(blocks).items()
    )


def guest_key(account: str, guest: str) -> str:
    """How the server knows a scheduler. Two of one account are told apart by the guest's name, and
    no account can use the place of another's scheduler.
    """
    return f"{account}/{guest}"


@contextmanager
def reservations_lent_to(state: ControllerState, guest: str) -> Iterator[None]:
    """Make the devices that are kept for a scheduler's job available to its own requests.

    Which of its jobs starts first is the scheduler's decision. What the request does not take is
    kept again on return.
    """
    own_reservations = [
        candidate for candidate in state.reservations.values() if guest and candidate.guest == guest
    ]
    for reservation in own_reservations:
        reservation.lift()
    try:
        yield
    finally:
        for reservation in own_reservations:
            reservation.reserve_free_blocks()


def _occupied_blocks(
    state: ControllerState,
    cluster: IndexedCluster,
    owner: str,
    allocation: str,
    end_times: Mapping[str, float],
) -> dict[int, list[OccupiedBlock]]:
    """The devices in use, by link domain. owner, end_times: see `goal_for` and `guest_goal`."""
    now = state.now()
    occupied_by_domain: dict[int, list[OccupiedBlock]] = {}
    for entry in state.partitions.in_pool(cluster.layout.name, allocation):
        record = entry.known
        end_time, is_announced = end_of(
            record, now, seen=state.sight.user_sees_partition(owner, record)
        )
        if now < end_times.get(record.name, 0.0):
            end_time, is_announced = end_times[record.name], False
        for block in record.blocks:
            occupied_by_domain.setdefault(block.domain, []).append(
                OccupiedBlock(block, end_time, is_announced, record.name)
            )
    for quarantined in state.quarantine.values():
        if quarantined.cluster == cluster.layout.name:
            block = quarantined.block
            occupied_by_domain.setdefault(block.domain, []).append(
                OccupiedBlock(block, now + 60, False, "")
            )
    return occupied_by_domain


def candidates(
    state: ControllerState, cluster: IndexedCluster, spec: PartitionSpec, allocation: str
) -> Iterator[tuple[Block, ...]]:
    """The places of a shape in an allocation, were nothing taken, on machines in service."""
    layout = cluster.layout
    devices_per_machine, domain_limit = (
        layout.family.devices_per_machine,
        layout.family.max_domain_devices,
    )
    allocation_machines = cluster.allocations.get(allocation, ())
    usable_machines = {
        machine
        for machine in allocation_machines
        if machine not in state.down and machine not in cluster.drained
    }

    def fits(block: Block) -> bool:
        machines = layout.domains[block.domain].machines
        last_machine = (block.offset + block.size - 1) // devices_per_machine
        return (
            last_machine < len(machines)
            and all(
                machines[index].name in usable_machines
                for index in range(block.offset // devices_per_machine, last_machine + 1)
            )
            and _is_healthy(cluster, (block,))
        )

    if spec.profile:
        return  # what is kept is whole devices
    if spec.devices:
        named_blocks = blocks_of(spec.devices)
        if all(fits(block) for block in named_blocks):
            yield named_blocks
        return
    part_count = spec.num_ilds or max(1, spec.size // domain_limit)
    part_size, domain_count = spec.size // part_count, len(layout.domains)
    loop_starts = (
        domain_count
        if layout.topology is ClusterTopology.LOOPED and part_count < domain_count
        else 0
    )
    for first_domain in range(max(loop_starts, domain_count - part_count + 1)):
        domain_run = [(first_domain + step) % domain_count for step in range(part_count)]
        for offset in _legal_offsets(layout, first_domain, part_size):
            blocks = tuple(Block(domain, offset, part_size) for domain in domain_run)
            if all(fits(block) for block in blocks):
                yield blocks


def _legal_offsets(cluster: Cluster, domain: int, part_size: int) -> Iterator[int]:
    """Where a part of a partition may begin in a link domain."""
    devices_per_machine = cluster.family.devices_per_machine
    step = cluster.family.block_rule.step(part_size, devices_per_machine)
    for offset in range(0, cluster.domain_size(domain), step):
        if (
            part_size >= devices_per_machine
            or offset % devices_per_machine + part_size <= devices_per_machine
        ):
            yield offset


def _make_goal(
    cluster: IndexedCluster,
    allocation: str,
    blocks: tuple[Block, ...],
    occupied_by_domain: dict[int, list[OccupiedBlock]],
    now: float,
) -> Goal:
    starts_at, ends_announced, busy_count = now, True, 0
    partition_names: list[str] = []
    for domain, offset, size in blocks:
        for occupied in occupied_by_domain.get(domain, ()):
            overlap_start = max(offset, occupied.block.offset)
            overlap_end = min(offset + size, occupied.block.offset + occupied.block.size)
            if overlap_start < overlap_end:
                busy_count += overlap_end - overlap_start
                starts_at = max(starts_at, occupied.end)
                ends_announced = ends_announced and occupied.known
                partition_names.append(occupied.name)
    return Goal(
        cluster,
        allocation,
        blocks,
        starts_at,
        ends_announced,
        busy_count,
        tuple(dict.fromkeys(partition_names)),
    )


def overlap(blocks: Sequence[Block], other_blocks: Sequence[Block]) -> bool:
    """Whether two lists of blocks have a device in common."""
    return any(
        block.domain == other_block.domain
        and block.offset < other_block.offset + other_block.size
        and other_block.offset < block.offset + block.size
        for block in blocks
        for other_block in other_blocks
    )
