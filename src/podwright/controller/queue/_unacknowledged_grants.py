"""What waiters were given, until their clients acknowledge it.

The record of a waiter that is served names what it was given, and is written in the commit that
makes the partition or the lease. So the next server knows both or neither. A client that
acknowledges keeps what it was given. That is in the record, too, before the client hears of it, so
that no restart takes back what somebody uses. The record goes a while later, since an answer may
get lost and be requested again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from podwright.controller.partitions import _lease_lifetime as ends
from podwright.controller.partitions import _repeated_requests as repeats
from podwright.controller.queue._waiter import Waiter, WaiterRecord
from podwright.controller.state._caller import Caller
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._records import LEASE, WAITER, LeaseRecord, decode
from podwright.controller.state._request_ids import RememberedRequest, last_partition_in
from podwright.errors import NotFound
from podwright.store import Change, Put
from podwright.wire import OperationState


class ServingWaiter:
    """A waiter that is being served: a `_request_ids.Pending`.

    given: its record as it was written with the partition or the lease; None: it was not yet.
    """

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter
        self.given: WaiterRecord | None = None

    def added(self, changes: Sequence[Change]) -> Sequence[Change]:
        """The changes of a commit. With the partition or the lease comes the waiter's record."""
        if self.given is not None or (record := self._served_record(changes)) is None:
            return changes
        self.given = record
        return [*changes, put_waiter(record)]

    def _served_record(self, changes: Sequence[Change]) -> WaiterRecord | None:
        waiter_record, partition_name = self._waiter.record, self._waiter.spec.name
        lease = None
        if waiter_record.create is None:
            lease = _lease_in(changes)
            if lease is None:
                return None
            partition_name = lease.partition
        partition = last_partition_in(changes, partition_name)
        if lease is None and partition is None:
            return None
        return msgspec.structs.replace(
            waiter_record,
            partition=partition_name,
            created_at=partition.created_at if partition else 0.0,
            created=partition is not None and partition.operation is OperationState.CREATING,
            lease=lease.id if lease else "",
        )


def _lease_in(changes: Sequence[Change]) -> LeaseRecord | None:
    for change in changes:
        if isinstance(change, Put) and change.kind == LEASE:
            return decode(LeaseRecord, change.body)
    return None


def put_waiter(waiter_record: WaiterRecord) -> Put:
    """The change that writes a waiter down."""
    return Put(WAITER, waiter_record.id, msgspec.json.encode(waiter_record))


class UnacknowledgedWaiters:
    """Waiters that were given something that their clients have not acknowledged yet."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        #: By the partition's name, and by the lease's id.
        self._by_name: dict[str, Waiter] = {}

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def add(self, waiter: Waiter) -> None:
        """A waiter was served. One whose client has acknowledged that is left out."""
        for name in (waiter.partition, waiter.lease) if waiter.owed else ():
            if name:
                self._by_name[name] = waiter

    def drop(self, waiter: Waiter) -> None:
        """A waiter's client acknowledged, or what it was given is given back."""
        for name in (waiter.partition, waiter.lease):
            if self._by_name.get(name) is waiter:
                del self._by_name[name]

    async def used(self, caller: Caller, given_name: str) -> None:
        """A call on this partition or lease: where it is its waiter's, that acknowledges."""
        waiter = self._by_name.get(given_name)
        if waiter is not None and caller.name == waiter.record.name:
            await self.acknowledge(waiter)

    async def acknowledge(self, waiter: Waiter) -> None:
        """The client has what it was given. Durable on return, so that a restart keeps it."""
        if not waiter.owed or waiter.cancelled:
            return
        waiter.seen = self._state.now()  # nothing is given back while this is written
        record = msgspec.structs.replace(waiter.record, acknowledged=True)
        await self._state.journal.commit([put_waiter(record)])
        waiter.record = record
        self.drop(waiter)


def restore_created(state: ControllerState, waiter: Waiter) -> bool:
    """After a restart: whether a waiter that wanted a partition was served; it then has that.

    A record of an older build does not say so. Where the partition is there, its owner may have
    been told of it, so it counts as acknowledged.
    """
    waiter_record = waiter.record
    if waiter_record.create is None or (waiter_record.names_given and not waiter_record.partition):
        return False
    partition_entry = state.partitions.get(waiter_record.partition or waiter.spec.name)
    partition = partition_entry.record if partition_entry is not None else None
    if not waiter_record.partition:
        if (
            partition is None
            or partition.owner != waiter_record.name
            or partition.placed < waiter_record.since
        ):
            return False
        waiter.record = msgspec.structs.replace(
            waiter_record,
            partition=partition.name,
            created_at=partition.created_at,
            created=True,
            acknowledged=True,
        )
        state.journal.later(put_waiter(waiter.record))
    elif partition is None or partition.created_at != waiter_record.created_at:
        waiter.fail(
            NotFound(
                f"partition {waiter_record.partition} was made for it, and has been removed since",
                operation=waiter.action,
                would_work="ask anew if it is still needed",
                partition=waiter_record.partition,
            )
        )
        return True
    waiter.give(partition.name, "", created=True)
    return True


async def restore_lease(state: ControllerState, waiter: Waiter) -> bool:
    """The same for one that was given a lease. False where that lease is over: it waits again.

    Raises WrongState where the devices broke meanwhile, and Fenced where the lease is over although
    its client had it.
    """
    waiter_record = waiter.record
    if waiter_record.acknowledged:
        if waiter_record.lease not in state.leases:
            raise ends.over(waiter_record.lease, waiter.action)
        waiter.give(waiter_record.partition, waiter_record.lease, created=waiter_record.created)
        return True
    remembered = RememberedRequest(
        method="Acquire", name=waiter_record.partition, at=state.now(), lease=waiter_record.lease
    )
    acquired = await repeats.acquired_before(state, remembered)
    if acquired is None:
        waiter.record = msgspec.structs.replace(
            waiter_record, partition="", created_at=0.0, created=False, lease=""
        )
        state.journal.later(put_waiter(waiter.record))
        return False
    partition_entry, lease = acquired
    waiter.give(partition_entry.name, lease.record.id, created=waiter_record.created)
    return True
