"""Remove a partition and create another under its name, in one atomic step.

The new devices are taken before the old ones are released, so a request that is refused changes
nothing. Old devices that the new partition does not need stay taken until they are reset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podwright.controller.hardware import _partition_steps as steps
from podwright.controller.partitions._partition_lifecycle import make_record, whole_lease
from podwright.controller.requests._device_claims import DeviceClaim, place
from podwright.controller.requests._refusals import failed
from podwright.controller.requests._spec import CheckedSpec
from podwright.controller.state._caller import Caller
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._journal import unless_written
from podwright.controller.state._leases import HeldLease
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._partition_states import REMOVING, move
from podwright.controller.state._records import LeaseRecord, put
from podwright.placement import Block, Placement


@dataclass(frozen=True)
class Successor:
    """A partition that takes another's name. caller: who requests it. draft: the lease on it.
    transient: the partition goes with that lease."""

    caller: Caller
    checked: CheckedSpec
    draft: LeaseRecord
    transient: bool


async def replace(
    state: ControllerState, partition_entry: PartitionEntry, successor: Successor
) -> HeldLease:
    """The lease on the new partition. The entry's lock is held, and nobody has a lease on it.

    Raises as creation does; then the old partition stands as it did, unless its machines
    failed (then it is in ERROR) or those of the new one did (then it is removed).
    """
    old_record, old_cluster = partition_entry.known, partition_entry.cluster
    if old_cluster is not None:
        old_cluster.index.release(old_record.placement)
    try:
        claim = place(state, successor.checked, owner=old_record.owner, instead_of=old_record)
    except BaseException:
        if old_cluster is not None:
            old_cluster.index.take(old_record.placement)
        raise
    try:
        return await _exchange_partitions(state, partition_entry, successor, claim)
    finally:
        state.admitted.discard(claim.admitted)


async def _exchange_partitions(
    state: ControllerState,
    partition_entry: PartitionEntry,
    successor: Successor,
    claim: DeviceClaim,
) -> HeldLease:
    old_record, old_cluster, action = (
        partition_entry.known,
        partition_entry.cluster,
        successor.checked.action,
    )
    new_cluster, new_placement = claim.cluster, claim.placement
    leftover_blocks = _uncovered_blocks(
        old_cluster, old_record.blocks, new_cluster, new_placement.blocks
    )
    leftovers = [Placement(old_record.allocation, (block,), (block,)) for block in leftover_blocks]
    if old_cluster is not None:
        for leftover in leftovers:
            old_cluster.index.take(leftover)

    def let_go() -> None:
        if old_cluster is not None:
            for leftover in leftovers:
                old_cluster.index.release(leftover)

    def take_back() -> None:
        partition_entry.cluster = old_cluster
        new_cluster.index.release(new_placement)
        let_go()
        if old_cluster is not None:
            old_cluster.index.take(old_record.placement)

    removing_record = move(old_record, REMOVING, epoch=state.epochs.next(), errors=())
    with unless_written(take_back):
        await state.journal.commit([put(removing_record)])
    state.set(partition_entry, removing_record)
    faults = await steps.release_devices(state, partition_entry)
    if faults:
        take_back()
        state.admitted.discard(claim.admitted)
        # The devices become free only now. A waiter could otherwise get those of the old partition.
        state.freed(new_cluster, new_placement.blocks, "")
        await steps.mark_partition_broken(state, partition_entry, faults)
        raise failed(
            old_record,
            [fault.reason for fault in faults],
            action,
            "remove it by force, or repair the machine and try again",
        )
    new_record = make_record(
        state,
        successor.caller,
        claim,
        transient=successor.transient,
        owner_record=old_record,
    )
    partition_entry.cluster = new_cluster
    with unless_written(take_back):
        await steps.begin_create(
            state, partition_entry, new_record, whole_lease(successor.draft, new_record)
        )
    let_go()
    state.freed(old_cluster, leftover_blocks, "")
    (lease,) = partition_entry.leases.values()
    faults = await steps.finish_create(state, partition_entry)
    if faults:
        failed_record = partition_entry.known
        await steps.remove(state, partition_entry, force=True)
        raise failed(
            failed_record,
            failed_record.errors,
            action,
            "try again; the machine is left out until it answers",
        )
    return lease


def _uncovered_blocks(
    old_cluster: IndexedCluster | None,
    old_blocks: Sequence[Block],
    new_cluster: IndexedCluster,
    new_blocks: Sequence[Block],
) -> list[Block]:
    """The blocks of `old_blocks` that `new_blocks` does not cover, cut by halves."""
    if old_cluster is not new_cluster:
        return list(old_blocks)
    uncovered: list[Block] = []
    unchecked = list(old_blocks)
    while unchecked:
        block = unchecked.pop()
        overlapping = [new_block for new_block in new_blocks if _blocks_overlap(new_block, block)]
        if not overlapping:
            uncovered.append(block)
        elif not any(_covers(new_block, block) for new_block in overlapping):
            size = block.size // 2
            unchecked.append(Block(block.domain, block.offset, size))
            unchecked.append(Block(block.domain, block.offset + size, block.size - size))
    return uncovered


def _blocks_overlap(block: Block, other_block: Block) -> bool:
    return (
        block.domain == other_block.domain
        and block.offset < other_block.offset + other_block.size
        and other_block.offset < block.offset + block.size
    )


def _covers(outer: Block, inner: Block) -> bool:
    return (
        outer.domain == inner.domain
        and outer.offset <= inner.offset
        and outer.offset + outer.size >= inner.offset + inner.size
    )
