"""The state of the controller in memory, which is authoritative while it runs.

Everything here changes without waiting; what must be durable first is in `_task_probe`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from podwright.agents import Driver, attached_name
from podwright.controller.state._admission import Admission
from podwright.controller.state._caller import Caller
from podwright.controller.state._cluster_index import ClusterIndex, IndexedCluster
from podwright.controller.state._journal import Journal
from podwright.controller.state._leases import Expiries, HeldLease
from podwright.controller.state._machine_calls import MachineCalls, Parts
from podwright.controller.state._pending_move import PendingMove
from podwright.controller.state._records import (
    FenceRecord,
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
from podwright.wire import JobInfo, ReadyState

if TYPE_CHECKING:
    from podwright.controller.state._own_host import OwnHost

AUTO_RESETS: Final = 3  #: our choice: the guides name the counter, not its limit
EPOCH_SHIFT: Final = 28  #: device epochs per server epoch; below 2**53 for 32 million restarts


class Entry:
    """A partition in memory. `lock` is held by whoever takes it through a step.

    record: None until it is durable, and again when it is gone. retry_at: when the server may
    reset it by itself. machines: where its devices are, as `Core.on` has it. makers: who may know
    of it before it is durable: its owner to be, and who requested it.
    """

    __slots__ = (
        "fences", "leases", "lock", "machines", "makers", "name", "record", "removed", "retry_at",
        "site",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        site: IndexedCluster | None,
        record: PartitionRecord | None = None,
        makers: tuple[str, ...] = (),
    ) -> None:
        self.makers = makers
        self.name = name
        self.site = site
        self.record = record
        self.lock = asyncio.Lock()
        self.leases: dict[str, HeldLease] = {}
        #: What leases left behind that are over, by their ids (`_fences`).
        self.fences: dict[str, FenceRecord] = {}
        self.machines: tuple[str, ...] = ()
        self.removed = False
        self.retry_at = 0.0

    @property
    def known(self) -> PartitionRecord:
        """The record of a partition whose lock is held and that was not removed."""
        assert self.record is not None
        return self.record

    def parts(self, mask: int | None = None) -> dict[str, list[int]]:
        """Its devices by machine: all of them, or those in a mask over the routing order."""
        if self.site is None:
            return {}
        record = self.known
        if mask is None:
            return self.site.parts(record.blocks)
        return self.site.parts(self.site.span(record.gcds, mask))

    def joins(self, parts: Parts) -> dict[str, Parts]:
        """Some of its devices as the fabric joins them: by the fabric's name of the partition.

        Devices of a pool are joined for each host apart, since two hosts in one zone would reach
        each other's devices. All others are joined under the partition's own name.
        """
        hosts = self.known.hosts
        if not hosts:
            return {self.name: parts}
        share = self.known.size // len(hosts)
        joins: dict[str, Parts] = {}
        for place, host in enumerate(hosts):
            attached = self.parts(((1 << share) - 1) << place * share)
            chosen = {
                machine: [index for index in indices if index in parts.get(machine, ())]
                for machine, indices in attached.items()
            }
            if own := {machine: indices for machine, indices in chosen.items() if indices}:
                joins[attached_name(self.name, host)] = own
        return joins


class Core:
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
        self.partitions: dict[str, Entry] = {}
        #: By machine: the partitions that have devices there.
        self._on: dict[str, dict[Entry, None]] = {}
        self.leases: dict[str, HeldLease] = {}
        self.expiries = Expiries()
        #: The partition of each fence, by its lease's id, and the machines that have cut it off.
        self.fences: dict[str, Entry] = {}
        self.cut: dict[str, set[str]] = {}
        #: The server's own host, if it may examine the processes there.
        self.own_host: OwnHost | None = None
        self.quarantine: dict[str, QuarantineRecord] = {}
        self.broken: set[str] = set()
        self.down: set[str] = set()
        self.tasks: set[asyncio.Task[Any]] = set()
        #: By user and allocation.
        #: By scheduler: when it last told of its queue, and that.
        self.queues: OrderedDict[str, tuple[float, list[JobInfo]]] = OrderedDict()
        #: By cluster, what its last test found of its cables: cluster, machine and problem.
        self.miscabled: dict[str, list[tuple[str, str, str]]] = {}
        #: By machine: why it does not accept this server, where it answers and refuses.
        self.strangers: dict[str, str] = {}
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
        self._epoch = 0
        #: How far the epochs of the devices had come when this store first met them.
        self.epoch_floor = 0

    # -- numbers and time --------------------------------------------------------------------

    def lift(self, site: IndexedCluster) -> None:
        """Keep nothing of a cluster for waiters, nor for launches that were to move, before its
        allocations change. `freed` follows."""
        for name, pending in list(self.moves.items()):
            if pending.site is site:
                site.index.release(pending.target)
                del self.moves[name]
                if (lease := self.leases.get(name)) is not None:
                    lease.move = ""
        for pool, reservation in list(self.reservations.items()):
            if reservation.goal.site is site:
                reservation.lift()
                del self.reservations[pool]

    def begin_epoch(self, server_epoch: int) -> None:
        """Device epochs grow with the server's, so that no counter has to be written down."""
        self._epoch = (server_epoch << EPOCH_SHIFT) + self.epoch_floor

    def raise_floor(self, seen: int) -> bool:
        """Devices that have seen this epoch come to us. Returns whether that must be kept."""
        if seen < self._epoch:
            return False
        self._epoch += seen - self.epoch_floor
        self.epoch_floor = seen
        return True

    def next_epoch(self) -> int:
        """A device epoch higher than all before."""
        self._epoch += 1
        return self._epoch

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

    def records(self) -> Iterable[PartitionRecord]:
        """All partitions that are durable."""
        return (entry.record for entry in self.partitions.values() if entry.record is not None)

    def set(self, entry: Entry, record: PartitionRecord) -> None:
        """A new record, durable or derivable from what is."""
        old = entry.record
        entry.record = record
        if old is None or not entry.machines or old.blocks is not record.blocks:
            self._put_on(entry, tuple(entry.parts()))
        divided = old is not None and old.gcds != record.gcds and old.blocks == record.blocks
        if old is not None and divided and entry.site is not None:
            entry.site.index.release(old.placement)
            entry.site.index.take(record.placement)
        if record.ready is ReadyState.ERROR:
            entry.retry_at = self.now() + (2 << min(record.auto_resets, 8))
            self.broken.add(entry.name)
        elif self.broken:
            self.broken.discard(entry.name)

    def forget(self, entry: Entry, left: Sequence[QuarantineRecord] = ()) -> None:
        """Forget a removed partition; its devices are free except those in quarantine."""
        record = entry.known
        if entry.site is not None:
            entry.site.index.release(record.placement)
            for quarantined in left:
                entry.site.index.take(quarantined.placement)
                self.quarantine[quarantined.key] = quarantined
        self.drop_entry(entry)
        self.freed(entry.site, record.blocks, entry.name)

    def drop_entry(self, entry: Entry) -> None:
        """Remove a partition from memory, and leave its devices as they are."""
        self._put_on(entry, ())
        entry.record = None
        entry.removed = True
        self.broken.discard(entry.name)
        for fence in entry.fences:
            del self.fences[fence], self.cut[fence]
        entry.fences = {}
        if self.partitions.get(entry.name) is entry:
            del self.partitions[entry.name]

    def _put_on(self, entry: Entry, machines: tuple[str, ...]) -> None:
        for machine in entry.machines:
            del self._on[machine][entry]
        for machine in machines:
            self._on.setdefault(machine, {})[entry] = None
        entry.machines = machines

    def on(self, machine: str) -> list[Entry]:
        """The partitions that have devices in a machine. It costs what they are, not what all
        are: every machine is looked at again and again."""
        return list(self._on.get(machine, ()))

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
        entry.leases[record.id] = self.leases[record.id] = lease
        self.expiries.add(lease, self.leases)
        return lease

    def drop_leases(self, entry: Entry, leases: Iterable[HeldLease]) -> None:
        """Forget leases of a partition; whoever waits for it may try."""
        lease_count = len(entry.leases)
        for lease in leases:
            lease.ending = True
            entry.leases.pop(lease.record.id, None)
            self.leases.pop(lease.record.id, None)
        if len(entry.leases) < lease_count:
            self.freed(None, (), entry.name)

    def add_fence(self, entry: Entry, fence: FenceRecord) -> None:
        """Add the fence of an ended lease; nobody gets its devices yet."""
        entry.fences[fence.id] = fence
        self.fences[fence.id] = entry
        self.cut[fence.id] = set()

    def drop_fences(self, entry: Entry, ids: Iterable[str]) -> None:
        """Forget fences of a partition."""
        for name in ids:
            del entry.fences[name], self.fences[name], self.cut[name]
        self.freed(None, (), entry.name)

    # -- machines ----------------------------------------------------------------------------

    def mark_down(self, machine: str, *, announce: bool = True) -> None:
        """Place nothing on a machine until it answers again. announce: record an event."""
        site = self.inventory.by_machine.get(machine)
        if site is not None and machine not in self.down:
            self.down.add(machine)
            site.index.drain(machine)
            if announce:
                self.record_event("MachineDown", machine, "", "it does not answer")
            self.freed(None, (), "")

    def mark_up(self, machine: str, *, announce: bool = True) -> None:
        """Use a machine again: it answers and holds nothing stray. announce: record an event."""
        if machine in self.down:
            self.down.discard(machine)
            site = self.inventory.by_machine[machine]
            if machine not in site.drained:
                site.index.resume(machine)
            if announce:
                self.record_event("MachineUp", machine, "", "it answers again")
            self.freed(None, (), "")

    def owners(self, machine: str) -> dict[int, str]:
        """Index -> partition, for all devices of a machine that a partition holds."""
        return {
            index: entry.name
            for entry in self._on.get(machine, ())
            for index in entry.parts().get(machine, ())
        }
