"""The state of the controller in memory, which is authoritative while it runs.

Everything here changes without waiting; what must be durable first is in `_task_probe`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from podwright.agents import Driver
from podwright.controller.state._admission import Admission
from podwright.controller.state._caller import Caller
from podwright.controller.state._cluster_index import ClusterIndex, IndexedCluster
from podwright.controller.state._device_epochs import DeviceEpochs
from podwright.controller.state._fence_index import FenceIndex
from podwright.controller.state._journal import Journal
from podwright.controller.state._leases import HeldLease, LeaseIndex
from podwright.controller.state._machine_calls import MachineCalls
from podwright.controller.state._partition_index import Entry, PartitionIndex
from podwright.controller.state._pending_move import PendingMove
from podwright.controller.state._records import (
    LeaseRecord,
    PartitionRecord,
    QuarantineRecord,
    QuotaRecord,
)
from podwright.controller.state._reservation import Reservation
from podwright.controller.state._sight import Sight
from podwright.errors import NotFound
from podwright.fabric import Cluster
from podwright.placement import Block
from podwright.store import Store
from podwright.wire import ReadyState

if TYPE_CHECKING:
    from podwright.controller.state._own_host import OwnHost

AUTO_RESETS: Final = 3  #: our choice: the guides name the counter, not its limit


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
        self.hardware = MachineCalls(drivers, timeout=driver_timeout, silence=self.mark_down)
        self.partitions = PartitionIndex()
        self.leases = LeaseIndex()
        self.fences = FenceIndex()
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
        self.sight = Sight()

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

    def set(self, entry: Entry, record: PartitionRecord) -> None:
        """A new record, durable or derivable from what is."""
        old = entry.record
        self.partitions.set_record(entry, record)
        divided = old is not None and old.gcds != record.gcds and old.blocks == record.blocks
        if old is not None and divided and entry.cluster is not None:
            entry.cluster.index.release(old.placement)
            entry.cluster.index.take(record.placement)
        if record.ready is ReadyState.ERROR:
            entry.retry_at = self.now() + (2 << min(record.auto_resets, 8))

    def forget(self, entry: Entry, left: Sequence[QuarantineRecord] = ()) -> None:
        """Forget a removed partition; its devices are free except those in quarantine."""
        record = entry.known
        if entry.cluster is not None:
            entry.cluster.index.release(record.placement)
            for quarantined in left:
                entry.cluster.index.take(quarantined.placement)
                self.quarantine[quarantined.key] = quarantined
        self.drop_entry(entry)
        self.freed(entry.cluster, record.blocks, entry.name)

    def drop_entry(self, entry: Entry) -> None:
        """Remove a partition from memory, and leave its devices as they are."""
        self.partitions.remove(entry)
        self.fences.remove(entry, list(entry.fences))

    def find(self, caller: Caller, name: str) -> Entry | None:
        """The partition of this name, if there is one that the caller may know of."""
        entry = self.partitions.get(name)
        return entry if entry is not None and self.sight.partition(caller, entry) else None

    def find_lease(self, caller: Caller, name: str) -> HeldLease | None:
        """The live lease of this id, if there is one that the caller may know of."""
        lease = self.leases.get(name)
        if lease is None:
            return None
        entry = self.partitions.get(lease.record.partition)
        return lease if entry is not None and self.sight.leases(caller, entry) else None

    def find_fenced(self, caller: Caller, name: str) -> Entry | None:
        """The partition on which the lease of this id left a fence that the caller may know of."""
        entry = self.fences.get(name)
        return entry if entry is not None and self.sight.leases(caller, entry) else None

    async def lock(self, name: str, action: str, caller: Caller) -> Entry:
        """A partition with its lock held, which the caller releases.

        Raises NotFound, at once for one that the caller may not know of.
        """
        while (entry := self.find(caller, name)) is not None:
            await entry.lock.acquire()
            if not entry.removed and self.find(caller, name) is entry:
                return entry
            entry.lock.release()
        raise self.missing(name, action, caller)

    def missing(self, name: str, action: str, caller: Caller, would_work: str = "") -> NotFound:
        """The error for a partition that the caller does not know of; it names those that exist."""
        if not would_work:
            known = sorted(
                entry.name
                for entry in self.partitions.values()
                if entry.record is not None and self.sight.partition(caller, entry)
            )
            listed = ", ".join(known[:5]) + (f" and {len(known) - 5} more" if known[5:] else "")
            would_work = f"there are: {listed}" if known else "there are none yet"
        return NotFound(
            f"there is no partition {name}", operation=action, would_work=would_work, partition=name
        )

    # -- leases ------------------------------------------------------------------------------

    def add_lease(self, entry: Entry, record: LeaseRecord) -> HeldLease:
        """Add a lease that expires a full ttl from now."""
        lease = HeldLease(record, self.now() + record.ttl)
        entry.leases[record.id] = lease
        self.leases.add(lease)
        return lease

    def drop_leases(self, entry: Entry, leases: Iterable[HeldLease]) -> None:
        """Forget leases of a partition; whoever waits for it may try."""
        lease_count = len(entry.leases)
        for lease in leases:
            lease.ending = True
            entry.leases.pop(lease.record.id, None)
            self.leases.remove(lease.record.id)
        if len(entry.leases) < lease_count:
            self.freed(None, (), entry.name)

    def drop_fences(self, entry: Entry, ids: Iterable[str]) -> None:
        """Forget fences of a partition."""
        self.fences.remove(entry, ids)
        self.freed(None, (), entry.name)

    # -- machines ----------------------------------------------------------------------------

    def mark_down(self, machine: str, *, announce: bool = True) -> None:
        """Place nothing on a machine until it answers again. announce: record an event."""
        cluster = self.inventory.by_machine.get(machine)
        if cluster is not None and machine not in self.down:
            self.down.add(machine)
            cluster.index.drain(machine)
            if announce:
                self.record_event("MachineDown", machine, "", "it does not answer")
            self.freed(None, (), "")

    def mark_up(self, machine: str, *, announce: bool = True) -> None:
        """Use a machine again: it answers and holds nothing stray. announce: record an event."""
        if machine in self.down:
            self.down.discard(machine)
            cluster = self.inventory.by_machine[machine]
            if machine not in cluster.drained:
                cluster.index.resume(machine)
            if announce:
                self.record_event("MachineUp", machine, "", "it answers again")
            self.freed(None, (), "")

    # -- what is reserved --------------------------------------------------------------------

    def lift(self, cluster: IndexedCluster) -> None:
        """Keep nothing of a cluster for waiters, nor for launches that were to move, before its
        allocations change. `freed` follows."""
        for name, pending in list(self.moves.items()):
            if pending.cluster is cluster:
                cluster.index.release(pending.target)
                del self.moves[name]
                if (lease := self.leases.get(name)) is not None:
                    lease.move = ""
        for pool, reservation in list(self.reservations.items()):
            if reservation.goal.cluster is cluster:
                reservation.lift()
                del self.reservations[pool]
