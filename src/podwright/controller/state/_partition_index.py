"""Partitions in memory: by name, by the machines that they are on, and those in error."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from podwright.agents import attached_name
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._leases import HeldLease
from podwright.controller.state._machine_calls import DevicesByMachine
from podwright.controller.state._read_only_mapping import ReadOnlyMapping
from podwright.controller.state._records import FenceRecord, PartitionRecord
from podwright.wire import ReadyState


class PartitionEntry:
    """A partition in memory. `lock` is held by whoever takes it through a step.

    record: None until it is durable, and again when it is gone. retry_at: when the server may
    reset it by itself. machines: where its devices are, as `PartitionIndex.on` has it. makers:
    who may know of it before it is durable: its owner to be, and who requested it.
    """

    __slots__ = (
        "cluster", "fences", "leases", "lock", "machines", "makers", "name", "record", "removed",
        "retry_at",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        cluster: IndexedCluster | None,
        record: PartitionRecord | None = None,
        makers: tuple[str, ...] = (),
    ) -> None:
        self.makers = makers
        self.name = name
        self.cluster = cluster
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

    def parts(self, device_mask: int | None = None) -> dict[str, list[int]]:
        """Its devices by machine: all of them, or those in a mask over the routing order."""
        if self.cluster is None:
            return {}
        record = self.known
        if device_mask is None:
            return self.cluster.parts(record.blocks)
        return self.cluster.parts(self.cluster.span(record.gcds, device_mask))

    def joins(self, devices_by_machine: DevicesByMachine) -> dict[str, DevicesByMachine]:
        """Some of its devices as the fabric joins them: by the fabric's name of the partition.

        Devices of a pool are joined for each host apart, since two hosts in one zone would reach
        each other's devices. All others are joined under the partition's own name.
        """
        hosts = self.known.hosts
        if not hosts:
            return {self.name: devices_by_machine}
        host_share = self.known.size // len(hosts)
        joins_by_name: dict[str, DevicesByMachine] = {}
        for host_index, host in enumerate(hosts):
            attached_devices = self.parts(((1 << host_share) - 1) << host_index * host_share)
            chosen_devices = {
                machine: [
                    device_index
                    for device_index in device_indices
                    if device_index in devices_by_machine.get(machine, ())
                ]
                for machine, device_indices in attached_devices.items()
            }
            if host_devices := {
                machine: device_indices
                for machine, device_indices in chosen_devices.items()
                if device_indices
            }:
                joins_by_name[attached_name(self.name, host)] = host_devices
        return joins_by_name


class PartitionIndex(ReadOnlyMapping[PartitionEntry]):
    """All partitions by name, also those whose first record is being written down.

    `on`, `owners` and `broken` follow from the records. Only `set_record` and `remove` change a
    record, and they change what follows from it without waiting. So whoever does not wait sees all
    of it as of one moment. A partition without a record is on no machine, although its devices are
    taken already.
    """

    def __init__(self) -> None:
        super().__init__()
        self._on: dict[str, dict[PartitionEntry, None]] = {}
        self._broken: set[str] = set()

    @property
    def broken(self) -> AbstractSet[str]:
        """The names of those in error."""
        return self._broken

    def records(self) -> Iterable[PartitionRecord]:
        """All partitions that are durable."""
        return (
            partition_entry.record
            for partition_entry in self.values()
            if partition_entry.record is not None
        )

    def on(self, machine: str) -> list[PartitionEntry]:
        """The partitions that have devices in a machine. It costs what they are, not what all
        are: every machine is looked at again and again."""
        return list(self._on.get(machine, ()))

    def owners(self, machine: str) -> dict[int, str]:
        """Index -> partition, for all devices of a machine that a partition has."""
        return {
            device_index: partition_entry.name
            for partition_entry in self._on.get(machine, ())
            for device_index in partition_entry.parts().get(machine, ())
        }

    def add(self, entry: PartitionEntry) -> None:
        """Give a partition its name. One that is being removed may have had it."""
        self._by_name[entry.name] = entry

    def set_record(self, partition_entry: PartitionEntry, record: PartitionRecord) -> None:
        """Replace a partition's record, which is durable or derivable from what is."""
        old_record, partition_entry.record = partition_entry.record, record
        if (
            old_record is None
            or not partition_entry.machines
            or old_record.blocks is not record.blocks
        ):
            self._move_to_machines(partition_entry, tuple(partition_entry.parts()))
        if record.ready is ReadyState.ERROR:
            self._broken.add(partition_entry.name)
        elif self._broken:
            self._broken.discard(partition_entry.name)

    def remove(self, entry: PartitionEntry) -> None:
        """Remove a partition. Another that has its name by now stays."""
        self._move_to_machines(entry, ())
        entry.record = None
        entry.removed = True
        self._broken.discard(entry.name)
        if self._by_name.get(entry.name) is entry:
            del self._by_name[entry.name]

    def _move_to_machines(self, partition_entry: PartitionEntry, machines: tuple[str, ...]) -> None:
        for machine in partition_entry.machines:
            del self._on[machine][partition_entry]
        for machine in machines:
            self._on.setdefault(machine, {})[partition_entry] = None
        partition_entry.machines = machines
