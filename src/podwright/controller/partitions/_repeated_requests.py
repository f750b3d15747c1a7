"""What to answer to a request that was done before: its effect as it stands now."""

from __future__ import annotations

from podwright.controller.hardware import _steps as steps
from podwright.controller.requests._refusals import failed
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._leases import HeldLease
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._request_ids import Remembered
from podwright.errors import NotFound
from podwright.wire import Empty, ReadyState


async def made_before(state: ControllerState, known: Remembered, *, wait: bool) -> PartitionEntry:
    """The partition that was created or reset. Raises NotFound when it has gone since."""
    entry = state.partitions.get(known.name)
    if entry is not None and wait:
        await _settled(entry)
    if entry is None or entry.record is None or entry.record.created_at != known.created_at:
        raise NotFound(
            f"partition {known.name} was there, and has been removed since",
            operation=f"{known.method} {known.name}",
            would_work="ask anew if it is still needed",
            partition=known.name,
        )
    return entry


async def removed_before(state: ControllerState, known: Remembered, *, wait: bool) -> Empty | None:
    """Nothing to say: it is gone. None when machines stood in the way, and it is still there."""
    entry = state.partitions.get(known.name)
    if entry is not None and wait:
        await _settled(entry)
    record = entry.record if entry is not None else None
    if record is None or record.created_at != known.created_at:
        return Empty()
    return None if record.ready is ReadyState.ERROR else Empty()


async def acquired_before(
    state: ControllerState, known: Remembered
) -> tuple[PartitionEntry, HeldLease] | None:
    """The lease that was given, as nobody else may have its devices; None when it is over.

    Raises WrongState when the devices broke meanwhile; then the lease is over, too.
    """
    lease = state.leases.get(known.lease)
    entry = state.partitions.get(lease.record.partition) if lease is not None else None
    if lease is None or entry is None:
        return None
    await entry.lock.acquire()
    try:
        if lease.ending or entry.record is None:
            return None
        if entry.record.ready is not ReadyState.ACTIVE:
            record = entry.record
            await steps.end_leases(state, entry, [lease])
            raise failed(record, record.errors, "acquire", "try again, or use another partition")
        if entry.record.epoch > lease.record.epoch:
            # Machines may be ahead of the lease, as a step that was interrupted is done again
            # under a new epoch. Only who asks here can have heard of it: he gets a new one.
            await steps.end_leases(state, entry, [lease])
            return None
        lease.expires = state.now() + lease.record.ttl
        return entry, lease
    finally:
        entry.lock.release()


async def _settled(entry: PartitionEntry) -> None:
    """Wait for the step that the partition is in."""
    await entry.lock.acquire()
    entry.lock.release()
