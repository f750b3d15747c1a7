"""The state of the controller in memory, which is authoritative while it runs.

Everything here changes without waiting; what must be durable first is in `_task_probe`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from podwright.agents import Driver
from podwright.controller.state._caller import Caller, Role
from podwright.controller.state._claimed_devices import Admission
from podwright.controller.state._cluster_index import ClusterIndex, IndexedCluster
from podwright.controller.state._device_epochs import DeviceEpochs
from podwright.controller.state._fence_index import FenceIndex
from podwright.controller.state._journal import Journal
from podwright.controller.state._leases import HeldLease, LeaseIndex
from podwright.controller.state._machine_calls import MachineCalls
from podwright.controller.state._partition_index import (
    PartitionEntry,
    PartitionIndex,
    holders_of,
    without,
)
from podwright.controller.state._pending_move import PendingMove
from podwright.controller.state._records import (
    LeaseRecord,
    PartitionRecord,
    QuarantineRecord,
    QuotaRecord,
)
from podwright.controller.state._reservation import Reservation
from podwright.controller.state._visibility import Visibility
from podwright.errors import NotFound
from podwright.fabric import Cluster
from podwright.placement import Block
from podwright.store import Store
from podwright.wire import ReadyState

if TYPE_CHECKING:
    from podwright.controller.state._own_host import OwnHost

MAX_AUTO_RESETS: Final = 3  #: our choice: the guides name the counter, not its limit
_NAMED: Final = 5  #: partitions that a refusal names


class ControllerState:
    """All state of the controller, and the operations on it."""

    def __init__(
        self,
        store: Store,
        clusters: Sequence[Cluster],
        drivers: Mapping[str, Driver],
        allocations: Mapping[str, Mapping[str, Sequence[str]]],
        *,
        driver_timeout: float,
    ) -> None:
        self.store = store
        self.journal = Journal(store)
        self.inventory = ClusterIndex(clusters, allocations)
        self.hardware = MachineCalls(drivers, timeout=driver_timeout, on_silence=self.mark_down)
        self.partitions = PartitionIndex()
        self.leases = LeaseIndex()
        #: How many live leases there are, by cluster and state.
        self.leases_by_cluster: Counter[tuple[str, str]] = Counter()
        self.fences = FenceIndex(self.partitions)
        self.epochs = DeviceEpochs()
        #: The server's own host, if it may examine the processes there.
        self.own_host: OwnHost | None = None
        self.quarantine: dict[str, QuarantineRecord] = {}
        self.down: set[str] = set()
        self.tasks: set[asyncio.Task[Any]] = set()
        #: By user and allocation.
        self.quotas: dict[tuple[str, str], QuotaRecord] = {}
        #: Of partitions whose devices are taken, and whose records are not durable yet.
        self.admitted: set[Admission] = set()
        #: Told of what the server does by itself: what, about what, whose, how.
        self.record_event: Callable[[str, str, str, str], None] = lambda *_: None
        #: By lease: what launches are asked to move.
        self.moves: dict[str, PendingMove] = {}
        #: The reservations for the first waiters of the queue, by cluster and allocation.
        self.reservations: dict[tuple[str, str], Reservation] = {}
        #: Told of devices that are free, and of the partition whose lease ended or that is gone.
        self.freed: Callable[[IndexedCluster | None, Sequence[Block], str], None] = lambda *_: None
        #: Who may know of what.
        self.sight = Visibility()

    # -- time and tasks ----------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since 1970 by the store's clock, which never runs back: for orders and terms."""
        return self.store.now()

    def wall(self) -> float:
        """Seconds since 1970 by the system's clock: for display, never for an order."""
        return self.store.wall()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a task of the controller's own."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    # -- partitions --------------------------------------------------------------------------

    def set(self, partition_entry: PartitionEntry, new_record: PartitionRecord) -> None:
        """A new record, durable or derivable from what is."""
        old_record = partition_entry.record
        self.partitions.set_record(partition_entry, new_record)
        redivided = (
            old_record is not None
            and old_record.gcds != new_record.gcds
            and old_record.blocks == new_record.blocks
        )
        if old_record is not None and redivided and partition_entry.cluster is not None:
            partition_entry.cluster.index.release(old_record.placement)
            partition_entry.cluster.index.take(new_record.placement)
        if new_record.ready is ReadyState.ERROR:
            partition_entry.retry_at = self.now() + (2 << min(new_record.auto_resets, 8))

    def forget(
        self, partition_entry: PartitionEntry, new_quarantines: Sequence[QuarantineRecord] = ()
    ) -> None:
        """Forget a removed partition; its devices are free except those in quarantine."""
        record = partition_entry.known
        if partition_entry.cluster is not None:
            partition_entry.cluster.index.release(record.placement)
            for quarantine_record in new_quarantines:
                partition_entry.cluster.index.take(quarantine_record.placement)
                self.quarantine[quarantine_record.key] = quarantine_record
        self.drop_entry(partition_entry)
        self.freed(partition_entry.cluster, record.blocks, partition_entry.name)

    def drop_entry(self, partition_entry: PartitionEntry) -> None:
        """Remove a partition from memory, and leave its devices as they are."""
        self.fences.remove(partition_entry, list(partition_entry.fences))
        self.partitions.remove(partition_entry)

    def find(self, caller: Caller, name: str) -> PartitionEntry | None:
        """The partition of this name, if there is one that the caller may know of."""
        entry = self.partitions.get(name)
        return entry if entry is not None and self.sight.partition(caller, entry) else None

    def find_lease(self, caller: Caller, lease_id: str) -> HeldLease | None:
        """The live lease of this id, if there is one that the caller may know of."""
        lease = self.leases.get(lease_id)
        if lease is None:
            return None
        entry = self.partitions.get(lease.record.partition)
        return lease if entry is not None and self.sight.leases(caller, entry) else None

    def find_fenced(self, caller: Caller, lease_id: str) -> PartitionEntry | None:
        """The partition on which the lease of this id left a fence that the caller may know of."""
        entry = self.fences.get(lease_id)
        return entry if entry is not None and self.sight.leases(caller, entry) else None

    async def lock(self, partition_name: str, action: str, caller: Caller) -> PartitionEntry:
        """A partition with its lock held, which the caller releases.

        Raises NotFound, at once for one that the caller may not know of.
        """
        while (entry := self.find(caller, partition_name)) is not None:
            await entry.lock.acquire()
            if not entry.removed and self.find(caller, partition_name) is entry:
                return entry
            entry.lock.release()
        raise self.missing(partition_name, action, caller)

    def missing(
        self, partition_name: str, action: str, caller: Caller, would_work: str = ""
    ) -> NotFound:
        """The error for a partition that the caller does not know of; it names those that exist."""
        if not would_work:
            names, count = self.known_names(caller)
            known_names = list(islice(names, _NAMED))
            listed_names = ", ".join(known_names) + (
                f" and {count - _NAMED} more" if count > _NAMED else ""
            )
            would_work = f"there are: {listed_names}" if known_names else "there are none yet"
        return NotFound(
            f"there is no partition {partition_name}",
            operation=action,
            would_work=would_work,
            partition=partition_name,
        )

    def known_names(self, caller: Caller, after: str = "") -> tuple[Iterator[str], int]:
        """The names of partitions that a caller may know of, in order, behind one; and how many
        there are in all."""
        if self.sight.all_partitions(caller):
            return self.partitions.names.after(after), len(self.partitions.names)
        own = [
            name
            for name in self.own_names(caller)
            if (entry := self.partitions.get(name)) is not None
            and entry.record is not None
            and self.sight.partition(caller, entry)
        ]
        return iter(own[bisect_right(own, after) :]), len(own)

    def own_names(self, caller: Caller) -> list[str]:
        """The names of all partitions that may be a caller's, in order."""
        names = self.partitions.of_person(caller.name)
        if caller.role is not Role.SCHEDULER:
            return names
        in_closed = {
            entry.name
            for name, cluster in self.inventory.clusters.items()
            for allocation, scheduler in cluster.closed.items()
            if scheduler == caller.name
            for entry in self.partitions.in_pool(name, allocation)
        }
        return sorted(in_closed.union(names))

    # -- leases ------------------------------------------------------------------------------

    def add_lease(self, partition_entry: PartitionEntry, record: LeaseRecord) -> HeldLease:
        """Add a lease that expires a full ttl from now."""
        lease = HeldLease(record, self.now() + record.ttl)
        partition_entry.leases = {**partition_entry.leases, record.id: lease}
        self.leases.add(lease)
        self.leases_by_cluster[_cluster_name(partition_entry), "HELD"] += 1
        self.partitions.note_holders(partition_entry, holders_of(record), 1)
        return lease

    def drop_leases(self, partition_entry: PartitionEntry, leases: Iterable[HeldLease]) -> None:
        """Forget leases of a partition; whoever waits for it may try."""
        count = len(partition_entry.leases)
        for lease in leases:
            lease.ending = True
            self.leases.remove(lease.record.id)
            dropped = partition_entry.leases.get(lease.record.id)
            if dropped is None:
                continue
            partition_entry.leases = without(partition_entry.leases, lease.record.id)
            self.leases_by_cluster[_cluster_name(partition_entry), "HELD"] -= 1
            if not partition_entry.removed:
                self.partitions.note_holders(partition_entry, holders_of(dropped.record), -1)
        if len(partition_entry.leases) < count:
            self.freed(None, (), partition_entry.name)

    def drop_fences(self, partition_entry: PartitionEntry, lease_ids: Iterable[str]) -> None:
        """Forget fences of a partition."""
        self.fences.remove(partition_entry, lease_ids)
        self.freed(None, (), partition_entry.name)

    # -- machines ----------------------------------------------------------------------------

    def mark_down(self, machine: str, *, announce: bool = True) -> None:
        """Place nothing on a machine until it answers again. announce: record an event."""
        cluster = self.inventory.by_machine.get(machine)
        if cluster is not None and machine not in self.down:
            self.down.add(machine)
            cluster.touch_machine(machine)
            cluster.index.drain(machine)
            if announce:
                self.record_event("MachineDown", machine, "", "it does not answer")
            self.freed(None, (), "")

    def mark_up(self, machine: str, *, announce: bool = True) -> None:
        """Use a machine again: it answers and holds nothing stray. announce: record an event."""
        if machine in self.down:
            self.down.discard(machine)
            cluster = self.inventory.by_machine[machine]
            cluster.touch_machine(machine)
            if machine not in cluster.drained:
                cluster.index.resume(machine)
            if announce:
                self.record_event("MachineUp", machine, "", "it answers again")
            self.freed(None, (), "")

    # -- what is reserved --------------------------------------------------------------------

    def lift(self, cluster: IndexedCluster) -> None:
        """Keep nothing of a cluster for waiters, nor for launches that were to move, before its
        allocations change. `freed` follows."""
        for lease_id, move in list(self.moves.items()):
            if move.cluster is cluster:
                cluster.index.release(move.target)
                del self.moves[lease_id]
                if (lease := self.leases.get(lease_id)) is not None:
                    lease.move = ""
        for key, reservation in list(self.reservations.items()):
            if reservation.goal.cluster is cluster:
                reservation.lift()
                del self.reservations[key]


def _cluster_name(entry: PartitionEntry) -> str:
    return entry.cluster.layout.name if entry.cluster is not None else ""
