"""One pod's book: which job holds which block.

The server's partitions are the durable truth. The book is a copy of them in memory, together with
the changes that are under way. It is compared with the server's list every few seconds. So it
learns of machines that failed, of partitions that an administrator removed, and of what an earlier
process of the guest left behind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from podwright.guests.shared._device_positions import PodPlaces
from podwright.guests.shared._vipu_server_client import GuestServer
from podwright.placement.buddy_blocks import BuddyBlocks, block
from podwright.wire import PartitionInfo

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True, kw_only=True)
class Holding(ABC, Generic[K]):
    """A block that a job holds: 2**order devices from `start` on the line.

    created: its partition exists. changed: when the holding last changed, by the book's clock.
    moved: the devices that it has now, as bits, after the server moved it; 0: it was not moved.
    """

    job: K
    start: int
    order: int
    created: bool = False
    changed: int = 0
    moved: int = 0

    @property
    def size(self) -> int:
        """Devices."""
        return 1 << self.order

    @property
    def bits(self) -> int:
        """Its devices, one bit for each place on the line."""
        return self.moved or block(self.start, self.order)

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of its partition."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The start of the job that it is for, as the partition carries it: the durable record."""


H = TypeVar("H", bound=Holding[Any])


class Book(ABC, Generic[K, H]):
    """All holdings of one pod. cluster, allocation: where its devices are."""

    #: Does the guest start jobs by what it was told is free, and ask for their devices later.
    starts_by_counts = False

    def __init__(self, cluster: str, allocation: str = "") -> None:
        self.cluster, self.allocation = cluster, allocation
        self.holdings: dict[K, H] = {}
        self.line = PodPlaces([])
        self.blocks = BuddyBlocks(0)
        self.broken: set[K] = set()  #: jobs that hold devices of a machine that is down
        self.unusable = 0  #: devices that nobody can have now
        self.out_of_service = 0  #: devices of machines that are down or drained
        self.closed = 0  #: blocks that are being emptied for a large job
        self.closed_for: K | None = None  #: that job
        self.own_place = 0  #: devices that the server keeps for a job of this guest
        self.others_places = 0  #: devices that the server keeps for others, in use or not
        self.moves: dict[K, int] = {}  #: the devices to which jobs are to move, as bits
        #: Whether the guest may have started jobs by an older count.
        self.unsettled = False
        self.resetting = 0  #: the unusable ones that a reset will free
        self._emptied = False  # whether moves empty the closed blocks
        self._alone = False  # is it the only one that may have them
        self._clock = 0
        self._released: dict[K, int] = {}

    # -- what each guest implements -----------------------------------------------------------

    @abstractmethod
    def job_of(self, partition: str) -> K | None:
        """The job that a partition's name says; None for others."""

    @abstractmethod
    def adopted(self, info: PartitionInfo, start: int, order: int) -> H | None:
        """The holding of a partition that an earlier run made; None: it is not a job's."""

    # -- changes -----------------------------------------------------------------------------

    def find(self, order: int, job_group: K | None = None) -> int | None:
        """The place where a block of 2**order devices is free; None where none is.

        job_group: what the job is a part of. Blocks that are closed for that group are free for it.

        What was started before the guest knew of a block that is closed finds its place as if
        nothing were; where that is in the way, nobody moves, and nothing is closed.
        """
        if self.unsettled and job_group is None:
            self.blocks.free = self.unheld()
            first_place = self.blocks.find(order)
            if first_place is not None and block(first_place, order) & self._reserved_devices():
                self.moves = {}
                self.close(0)
            else:
                self.count()
            return first_place
        is_reserved = job_group is not None and job_group == self.closed_for
        if is_reserved:
            self.blocks.free |= self.closed & self.unheld()
        first_place = self.blocks.find(order)
        if is_reserved:
            self.blocks.free &= ~self.closed
        return first_place

    def add(self, holding: H) -> H:
        """Record that the block belongs to the holding's job. Returns the holding."""
        holding.changed = self.tick()
        self.holdings[holding.job] = holding
        self.blocks.take(holding.start, holding.order)
        return holding

    def release(self, job: K) -> None:
        """The job holds nothing, and moves nowhere."""
        self.moves.pop(job, None)
        if self.holdings.pop(job, None) is not None:
            self._released[job] = self.tick()
            self.count()

    def close(self, device_bits: int, job: K | None = None, *, alone: bool = False) -> None:
        """Give these devices to nobody until all of them are free. alone: give them to that job's
        parts only, also then. device_bits: 0: none are closed."""
        self.closed, self.closed_for, self._alone = device_bits, job, alone
        self._emptied, self.unsettled = False, bool(device_bits) and self.starts_by_counts
        self.count()

    def empty(self, device_bits: int, job: K, moves: Iterable[tuple[K, int]]) -> None:
        """The same, of a block that those who hold it are to leave. moves: who, and the order of
        its block, as `plan_moves` says it: where each goes is closed to all others as well."""
        self.close(device_bits, job)
        self._emptied = self.unsettled = True
        for moving_job, order in moves:
            place = self.blocks.find(order)
            assert place is not None
            self.blocks.take(place, order)
            self.moves[moving_job] = block(place, order)

    def keep(self, own_bits: int, others_bits: int) -> bool:
        """Record the places that the server keeps, as bits. Returns whether they have changed."""
        if (own_bits, others_bits) == (self.own_place, self.others_places):
            return False
        self.own_place, self.others_places = own_bits, others_bits
        self.count()
        return True

    def stay(self) -> None:
        """Call all moves off, and open the block that they were to empty."""
        self.moves, self.unsettled = {}, False
        if self.emptied:
            self.close(0)
        else:
            self.count()

    @property
    def emptied(self) -> bool:
        """Whether what is closed is emptied by moves, and not only waited for."""
        return bool(self._emptied and self.closed)

    def tick(self) -> int:
        """The book's clock, moved on."""
        self._clock += 1
        return self._clock

    def count(self) -> None:
        """Compute which devices are free from those that are held, away and closed."""
        bits = self.unheld()
        if not self.closed & ~bits and not self._alone:
            self.closed, self.closed_for = 0, None  # all of it is free: it counts again
        self.blocks.free = bits & ~self._reserved_devices()

    def unheld(self) -> int:
        """Devices that nobody holds and that are kept for no other guest, as bits. Those that are
        closed are among them."""
        return self.blocks.capacity & ~self.unusable & ~self.others_places & ~self.held_devices()

    def _reserved_devices(self) -> int:
        device_bits = self.closed
        for target_bits in self.moves.values():
            device_bits |= target_bits
        return device_bits

    def held_devices(self) -> int:
        """Devices that jobs hold, as bits."""
        bits = 0
        for holding in self.holdings.values():
            bits |= holding.bits
        return bits

    # -- what the server says ----------------------------------------------------------------

    async def refresh(self, server: GuestServer) -> None:
        """Take over the server's state, except for holdings that changed while it was asked."""
        began_at = self.tick()
        devices = await server.devices(self.cluster, self.allocation)
        pod_places = PodPlaces(devices)
        bits_by_partition: dict[str, int] = {}
        unusable_bits = resetting_bits = away_bits = 0
        broken_jobs: set[K] = set()
        for device in devices:
            device_bit = 1 << pod_places.place(device)
            away_bits |= device_bit if device.state in ("DOWN", "DRAINED") else 0
            if device.partition:
                bits_by_partition[device.partition] = (
                    bits_by_partition.get(device.partition, 0) | device_bit
                )
                job = self.job_of(device.partition)
                if job is not None and device.state in ("DOWN", "DRAINED"):
                    broken_jobs.add(job)
            elif device.state != "FREE" and not (
                device.state == "RESERVED" and self.own_place & device_bit
            ):
                unusable_bits |= device_bit
                resetting_bits |= device_bit if device.state == "RESETTING" else 0
        unknown_partitions = {}
        for name, device_bits in bits_by_partition.items():
            job = self.job_of(name)
            if job is None or not (job in self.holdings or self._released.get(job, 0) > began_at):
                unknown_partitions[name] = device_bits
        if pod_places.capacity != self.blocks.capacity:
            self.line, self.blocks = pod_places, BuddyBlocks(pod_places.capacity)
        if unknown_partitions:
            partition_infos = await server.partitions(self.cluster, self.allocation)
            for info in partition_infos:
                device_bits = unknown_partitions.get(info.name, 0)
                if device_bits and not self._adopt_partition(info, device_bits, began_at):
                    unusable_bits |= device_bits
        for holding in list(self.holdings.values()):
            if not holding.created or holding.changed >= began_at:
                continue
            if holding.name not in bits_by_partition:
                del self.holdings[holding.job]
                self.moves.pop(holding.job, None)
            else:
                placed_bits = bits_by_partition[holding.name]
                holding.moved = (
                    placed_bits if placed_bits != block(holding.start, holding.order) else 0
                )
                if self.moves.get(holding.job) == placed_bits:
                    del self.moves[holding.job]  # it is there
        self._released = {
            job: released_at
            for job, released_at in self._released.items()
            if released_at > began_at
        }
        self.broken = broken_jobs & self.holdings.keys()
        self.unusable, self.resetting = unusable_bits, resetting_bits
        self.out_of_service = away_bits
        self.count()

    def _adopt_partition(
        self, partition_info: PartitionInfo, device_bits: int, began_at: int
    ) -> bool:
        """Record an unknown partition, if it is a job's. False: it is not a job's."""
        job = self.job_of(partition_info.name)
        place, order = (
            (device_bits & -device_bits).bit_length() - 1,
            device_bits.bit_count().bit_length() - 1,
        )
        holding = self.adopted(partition_info, place, order)
        if job is None or holding is None or holding.job != job:
            return False
        if job in self.holdings or self._released.get(job, 0) > began_at:
            return True
        if device_bits != block(place, order) or place % (1 << order):
            return False
        self.add(holding)
        return True
