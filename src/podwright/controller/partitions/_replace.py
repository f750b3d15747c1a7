"""Remove a partition and create another under its name, in one atomic step.

The new devices are taken before the old ones are released, so a request that is refused changes
nothing. Old devices that the new partition does not need stay taken until they are reset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podwright.controller.hardware import _steps as steps
from podwright.controller.partitions._partitions import make_record, place, whole_lease
from podwright.controller.requests._refusals import failed
from podwright.controller.requests._spec import CheckedSpec
from podwright.controller.state._caller import Caller
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._journal import unless_written
from podwright.controller.state._leases import HeldLease
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._records import LeaseRecord, put
from podwright.controller.state._reservation import DeviceClaim
from podwright.controller.state._states import REMOVING, move
from podwright.placement import Block, Placement


@dataclass(frozen=True)
class Successor:
    """A partition that takes another's name. caller: who requests it. draft: the lease on it.
    transient: the partition goes with that lease."""

    caller: Caller
    checked: CheckedSpec
    draft: LeaseRecord
    transient: bool


async def replace(state: ControllerState, entry: PartitionEntry, new: Successor) -> HeldLease:
    """The lease on the new partition. The entry's lock is held, and nobody has a lease on it.

    Raises as creation does; then the old partition stands as it did, unless its machines
    failed (then it is in ERROR) or those of the new one did (then it is removed).
    """
    old, old_cluster = entry.known, entry.cluster
    if old_cluster is not None:
        old_cluster.index.release(old.placement)
    try:
        claim = place(state, new.checked, owner=old.owner, instead_of=old)
    except BaseException:
        if old_cluster is not None:
            old_cluster.index.take(old.placement)
        raise
    try:
        return await _exchange(state, entry, new, claim)
    finally:
        state.admitted.discard(claim.admitted)


async def _exchange(
    state: ControllerState, entry: PartitionEntry, new: Successor, claim: DeviceClaim
) -> HeldLease:
    old, old_cluster, action = entry.known, entry.cluster, new.checked.action
    cluster, placement = claim.cluster, claim.placement
    rest = _rest(old_cluster, old.blocks, cluster, placement.blocks)
    leftovers = [Placement(old.allocation, (b,), (b,)) for b in rest]
    if old_cluster is not None:
        for leftover in leftovers:
            old_cluster.index.take(leftover)

    def let_go() -> None:
        if old_cluster is not None:
            for leftover in leftovers:
                old_cluster.index.release(leftover)

    def take_back() -> None:
        entry.cluster = old_cluster
        cluster.index.release(placement)
        let_go()
        if old_cluster is not None:
            old_cluster.index.take(old.placement)

    removing = move(old, REMOVING, epoch=state.epochs.next(), errors=())
    with unless_written(take_back):
        await state.journal.commit([put(removing)])
    state.set(entry, removing)
    faults = await steps.release_devices(state, entry)
    if faults:
        take_back()
        state.admitted.discard(claim.admitted)
        state.freed(cluster, placement.blocks, "")  # only now, or a waiter would get what is old's
        await steps.break_down(state, entry, faults)
        raise failed(
            old,
            [fault.reason for fault in faults],
            action,
            "remove it by force, or repair the machine and try again",
        )
    record = make_record(state, new.caller, new.checked, claim, transient=new.transient, owner=old)
    entry.cluster = cluster
    with unless_written(take_back):
        await steps.begin_create(state, entry, record, whole_lease(new.draft, record))
    let_go()
    state.freed(old_cluster, rest, "")
    (lease,) = entry.leases.values()
    faults = await steps.finish_create(state, entry)
    if faults:
        broken = entry.known
        await steps.remove(state, entry, force=True)
        raise failed(
            broken, broken.errors, action, "try again; the machine is left out until it answers"
        )
    return lease


def _rest(
    old_cluster: IndexedCluster | None,
    old: Sequence[Block],
    cluster: IndexedCluster,
    new: Sequence[Block],
) -> list[Block]:
    """The blocks of `old` that `new` does not cover, cut by halves."""
    if old_cluster is not cluster:
        return list(old)
    out: list[Block] = []
    todo = list(old)
    while todo:
        block = todo.pop()
        overlap = [b for b in new if _overlap(b, block)]
        if not overlap:
            out.append(block)
        elif not any(_covers(b, block) for b in overlap):
            half = block.size // 2
            todo.append(Block(block.domain, block.offset, half))
            todo.append(Block(block.domain, block.offset + half, block.size - half))
    return out


def _overlap(a: Block, b: Block) -> bool:
    return a.domain == b.domain and a.offset < b.offset + b.size and b.offset < a.offset + a.size


def _covers(a: Block, b: Block) -> bool:
    return a.domain == b.domain and a.offset <= b.offset and a.offset + a.size >= b.offset + b.size
