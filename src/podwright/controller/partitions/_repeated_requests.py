"""What to answer to a request that was done before: its effect as it stands now."""

from __future__ import annotations

from podwright.controller.hardware import _partition_steps as steps
from podwright.controller.requests._refusals import failed
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._leases import HeldLease
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._request_ids import RememberedRequest
from podwright.errors import NotFound
from podwright.wire import Empty, ReadyState


async def created_before(
    state: ControllerState, remembered: RememberedRequest, *, wait: bool
) -> PartitionEntry:
    """The partition that was created or reset. Raises NotFound when it has gone since."""
    partition_entry = state.partitions.get(remembered.name)
    if partition_entry is not None and wait:
        await _wait_for_step(partition_entry)
    if (
        partition_entry is None
        or partition_entry.record is None
        or partition_entry.record.created_at != remembered.created_at
    ):
        raise NotFound(
            f"partition {remembered.name} was there, and has been removed since",
            operation=f"{remembered.method} {remembered.name}",
            would_work="ask anew if it is still needed",
            partition=remembered.name,
        )
    return partition_entry


async def removed_before(
    state: ControllerState, remembered: RememberedRequest, *, wait: bool
) -> Empty | None:
    """Nothing to say: it is gone. None when machines stood in the way, and it is still there."""
    entry = state.partitions.get(remembered.name)
    if entry is not None and wait:
        await _wait_for_step(entry)
    record = entry.record if entry is not None else None
    if record is None or record.created_at != remembered.created_at:
        return Empty()
    return None if record.ready is ReadyState.ERROR else Empty()


async def acquired_before(
    state: ControllerState, remembered: RememberedRequest
) -> tuple[PartitionEntry, HeldLease] | None:
    """The lease that was given, as nobody else may have its devices; None when it is over.

    Raises WrongState when the devices broke meanwhile; then the lease is over, too.
    """
    lease = state.leases.get(remembered.lease)
    partition_entry = state.partitions.get(lease.record.partition) if lease is not None else None
    if lease is None or partition_entry is None:
        return None
    await partition_entry.lock.acquire()
    try:
        if lease.ending or partition_entry.record is None:
            return None
        if partition_entry.record.ready is not ReadyState.ACTIVE:
            partition_record = partition_entry.record
            await steps.end_leases(state, partition_entry, [lease])
            raise failed(
                partition_record,
                partition_record.errors,
                "acquire",
                "try again, or use another partition",
            )
        if partition_entry.record.epoch > lease.record.epoch:
            # Machines may be ahead of the lease, as a step that was interrupted is done again
            # under a new epoch. Only who asks here can have heard of it: he gets a new one.
            await steps.end_leases(state, partition_entry, [lease])
            return None
        lease.expires = state.now() + lease.record.ttl
        return partition_entry, lease
    finally:
        partition_entry.lock.release()


async def _wait_for_step(partition_entry: PartitionEntry) -> None:
    await partition_entry.lock.acquire()
    partition_entry.lock.release()
