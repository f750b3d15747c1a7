"""The step that gives a partition other devices, once nothing of its launch runs any more.

One commit records that nobody gets the new devices before they are reset. Then they are joined.
A second commit gives them to the partition, and records that the old devices must be reset before
anybody gets them. After a crash, or where a machine fails, the partition has its old devices before
the second commit and the new ones after it. The reset of the others begins again. The lease stays:
its holder has confirmed that nothing runs.

Called with the partition's lock held.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from podwright.controller.hardware._partition_steps import left_behind_quarantines
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._journal import unless_written
from podwright.controller.state._machine_calls import MachineFault
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._pending_move import PendingMove
from podwright.controller.state._records import (
    QuarantineRecord,
    drop_quarantine,
    put,
    put_quarantine,
)


async def shift(
    state: ControllerState, entry: PartitionEntry, pending_move: PendingMove
) -> list[MachineFault]:
    """Move a partition. Returns the machines that did not do their part: then it has not moved."""
    record, cluster, target_placement = entry.known, pending_move.cluster, pending_move.target
    epoch = state.epochs.next()
    target_quarantine = left_behind_quarantines(cluster, record, target_placement.blocks, epoch)

    def stays() -> None:
        cluster.index.release(target_placement)
        quarantine(state, cluster, target_quarantine)

    with unless_written(lambda: cluster.index.release(target_placement)):
        await state.journal.commit([*map(put_quarantine, target_quarantine)])
    faults = await state.hardware.configure(
        entry.name, epoch, cluster.parts(target_placement.blocks), owner=record.owner
    )
    if faults:
        stays()
        return faults
    moved_record = msgspec.structs.replace(
        record, blocks=target_placement.blocks, gcds=target_placement.gcds, epoch=epoch, dirty=""
    )
    left_quarantine = left_behind_quarantines(cluster, record, record.blocks, record.epoch)
    with unless_written(stays):
        await state.journal.commit(
            [
                put(moved_record),
                *map(drop_quarantine, target_quarantine),
                *map(put_quarantine, left_quarantine),
            ]
        )
    cluster.index.release(record.placement)
    quarantine(state, cluster, left_quarantine)
    state.set(entry, moved_record)
    return []


def quarantine(
    state: ControllerState, cluster: IndexedCluster, quarantine_records: Sequence[QuarantineRecord]
) -> None:
    """Take devices that are free in the index: nobody gets them before they are reset."""
    for quarantined in quarantine_records:
        cluster.index.take(quarantined.placement)
        state.quarantine[quarantined.key] = quarantined
