"""Moving a partition to healthy devices when its own have failed (V-IPU 1.18 protocol: on an
error or a failing reset, where its creator allowed it).

One commit says that the partition is being created on its new devices and that the old ones are
in quarantine: after a crash at any moment recovery finishes the one and the reset of the other.
The partition's leases end, so the next renewal of their holder is refused. The reset cuts its
launch off from the old devices. If a machine could not do that against the holder's will, nothing
is moved.
"""

from __future__ import annotations

from podwright.controller.hardware import _partition_steps as steps
from podwright.controller.hardware._partition_steps import left_behind_quarantines
from podwright.controller.moves._move_planner import shape_of
from podwright.controller.moves._swap_partition_devices import quarantine
from podwright.controller.state._controller_state import MAX_AUTO_RESETS, ControllerState
from podwright.controller.state._journal import unless_written
from podwright.controller.state._leases import ending
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._partition_states import BROKEN, CREATING, move, state_of
from podwright.controller.state._process_cutoff import would_cut_off
from podwright.controller.state._records import drop_lease, put, put_quarantine

RETRY_AFTER_S = 5.0  #: seconds until room is looked for again


def may_move(state: ControllerState, entry: PartitionEntry, now: float) -> bool:
    """Whether a partition should move, since resetting its devices does not help."""
    record = entry.record
    return (
        record is not None
        and record.relocatable
        and not record.transient
        and entry.cluster is not None
        and not entry.fences
        and all(would_cut_off(state, entry, lease) for lease in entry.leases.values())
        and state_of(record) == BROKEN
        and now >= entry.retry_at
        and (record.auto_resets >= MAX_AUTO_RESETS or not state.down.isdisjoint(entry.machines))
    )


async def relocate(state: ControllerState, entry: PartitionEntry) -> bool:
    """Move a partition whose lock is held. Returns False if there was no room for it."""
    record, cluster = entry.known, entry.cluster
    assert cluster is not None
    target_placement = cluster.index.find(shape_of(record))
    if target_placement is None:
        entry.retry_at = state.now() + RETRY_AFTER_S
        return False
    cluster.index.take(target_placement)
    left_quarantine = left_behind_quarantines(cluster, record, record.blocks, record.epoch)
    ending_leases = list(entry.leases.values())
    moved_record = move(
        record,
        CREATING,
        blocks=target_placement.blocks,
        gcds=target_placement.gcds,
        epoch=state.epochs.next(),
        errors=(),
        dirty="",
        auto_resets=0,
    )
    with ending(ending_leases), unless_written(lambda: cluster.index.release(target_placement)):
        await state.journal.commit(
            [
                put(moved_record),
                *map(put_quarantine, left_quarantine),
                *(drop_lease(lease.record.id) for lease in ending_leases),
            ]
        )
    cluster.index.release(record.placement)
    quarantine(state, cluster, left_quarantine)
    state.set(entry, moved_record)
    state.drop_leases(entry, ending_leases)
    reason = "; ".join(record.errors) or "its devices failed"
    state.record_event("Relocate", record.name, record.owner, reason)
    await steps.finish_create(state, entry)
    return True
