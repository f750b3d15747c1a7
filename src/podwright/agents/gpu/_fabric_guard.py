"""A guard over a fabric that belongs to one machine: Fabric Manager, IMEX channels.

Such a fabric is driven by the contract of all fabrics (`OrderedFabric`): it takes only devices that
are free or the partition's own, writes each change down before it, and reads it back after it. This
guard calls that contract in the machine's thread, under the epoch of the machine's change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from podwright.agents._fabric_driver_interface import FabricDevice, FabricJournal
from podwright.agents.fabric import FabricHardware, FabricTiming, OrderedFabric
from podwright.agents.gpu._guards import HeldPartition
from podwright.hosts.gpus import Gpu


class MachineFabric(FabricHardware, Protocol):
    """The fabric of one machine. machine: its name. All calls raise PodwrightError."""

    machine: str

    def devices(self, gpus: Sequence[Gpu]) -> frozenset[FabricDevice]:
        """Return these GPUs as the fabric's devices, without those that the fabric does not
        join.
        """
        ...

    def check(self, devices: frozenset[FabricDevice]) -> None:
        """Refuse a set that can never be joined, before anything is changed."""
        ...

    def give(self, partition: str, owner: str) -> None:
        """Give the partition's resources on this machine to this user; empty: to everybody."""
        ...

    def keep(self, partitions: Sequence[HeldPartition]) -> Mapping[str, str]:
        """See `Upkeep.keep`."""
        ...


class FabricGuard:
    """A Guard, an Upkeep and an EpochGuard. journal: this machine's own, durable."""

    def __init__(
        self, fabric: MachineFabric, journal: FabricJournal, timing: FabricTiming | None = None
    ) -> None:
        self._hardware = fabric
        self._driver = OrderedFabric(fabric, journal, timing or FabricTiming(patience=10.0))
        self._epoch = 0
        #: The machine's own record as `keep` last received it; None before the first call.
        self._recorded: dict[str, frozenset[FabricDevice]] | None = None

    def under(self, epoch: int) -> None:
        """See `EpochGuard.under`."""
        self._epoch = epoch

    def check(self, gpus: Sequence[Gpu]) -> None:
        """See `Guard.check`."""
        if devices := self._hardware.devices(gpus):
            self._hardware.check(devices)

    def join(self, partition: str, owner: str, gpus: Sequence[Gpu]) -> None:
        """See `Guard.join`."""
        if devices := self._hardware.devices(gpus):
            asyncio.run(self._join_devices(partition, devices))
            self._hardware.give(partition, owner)

    def leave(self, gpus: Sequence[Gpu]) -> None:
        """See `Guard.leave`."""
        if devices := self._hardware.devices(gpus):
            asyncio.run(self._driver.leave(self._epoch, self._fabric_parts(devices)))

    def keep(self, partitions: Sequence[HeldPartition]) -> Mapping[str, str]:
        """See `Upkeep.keep`."""
        self._recorded = {
            partition.partition: devices
            for partition in partitions
            if (devices := self._hardware.devices(partition.gpus))
        }
        return self._hardware.keep(partitions)

    async def _join_devices(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """Take out what a killed change left behind, then join.

        A change may have been killed after it reached the fabric and before the machine recorded
        it. Then the fabric has a partition of Podwright's that the machine's record does not have.
        Only such a remainder is taken out. Before the first call of `keep` the record is not known,
        so nothing is.
        """
        if self._recorded is not None:
            expected_devices = devices | self._recorded.get(partition, frozenset())
            reading = await self._driver.read()
            for fabric_partition, member_devices in reading.partitions.items():
                is_leftover = (
                    fabric_partition not in self._recorded
                    and not member_devices.isdisjoint(devices)
                )
                surplus_devices = (
                    member_devices - expected_devices
                    if fabric_partition == partition
                    else member_devices
                    if is_leftover
                    else ()
                )
                if surplus_devices:
                    await self._driver.leave(self._epoch, self._fabric_parts(surplus_devices))
        await self._driver.join(partition, self._epoch, self._fabric_parts(devices))

    def _fabric_parts(self, devices: Iterable[FabricDevice]) -> dict[str, list[int]]:
        return {self._hardware.machine: sorted(device.index for device in devices)}
