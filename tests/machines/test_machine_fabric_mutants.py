"""The fault kit over drivers of one machine's fabrics with one defect each: all are caught."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from podwright.agents import FabricDevice, FabricDriver, FabricJournal, MemoryFabricJournal
from podwright.agents.fabric import FabricReading, OrderedFabric
from podwright.agents.gpu import FabricManager, ImexChannels, PartitionNote
from podwright.agents.gpu._fabric_manager import SupportedPartition
from podwright.agents.gpu._imex_channel import ChannelFiles
from podwright.errors import Internal
from podwright.testing import ContractBroken, check_fabric_driver
from tests.machines.machine_rigs import GPUS, MACHINE, ImexRig, ManagerRig, MemoryNotes

Devices = frozenset[FabricDevice]
#: Lives that a defect may survive.
SEEDS = range(60)


async def _live(rig: Callable[[int], ManagerRig | ImexRig]) -> None:
    for seed in SEEDS:
        await check_fabric_driver(rig(seed), seed)


def driver(
    rig: ManagerRig,
    journal: FabricJournal,
    hardware: type[FabricManager] = FabricManager,
    ordered: type[OrderedFabric] = OrderedFabric,
) -> FabricDriver:
    """A driver of these parts."""
    return ordered(hardware(rig.fmpm, GPUS, rig.notes, MACHINE), journal, rig.timing)


def deactivates_what_overlaps(rig: ManagerRig, journal: FabricJournal) -> FabricDriver:
    """The defect of an earlier driver: a join deactivates any partition that is in its way."""

    class Robber(FabricManager):
        def read(self, devices: Any, machines: Any = ()) -> FabricReading:
            for entry in self.supported():
                note = self._notes.entries().get(entry.id)
                if entry.active and note is None and entry.gpus & {d.index for d in devices}:
                    self._fmpm(["-d", str(entry.id)])
            return super().read(devices, machines)

    return driver(rig, journal, Robber)


def notes_after_activation(rig: ManagerRig, journal: FabricJournal) -> FabricDriver:
    """A partition is written down once it is active."""

    class Late(FabricManager):
        def _exchange(
            self,
            partition: str,
            listed: Sequence[SupportedPartition],
            own: set[int],
            gpus: frozenset[int],
        ) -> None:
            notes, self._notes = self._notes, MemoryNotes()
            try:
                super()._exchange(partition, listed, own, gpus)
            finally:
                written, self._notes = self._notes, notes
            for number, note in written.entries().items():
                self._notes.write(number, note)
            self._forget(own - written.entries().keys())

    return driver(rig, journal, Late)


def keeps_the_note_of_a_refusal(rig: ManagerRig, journal: FabricJournal) -> FabricDriver:
    """What Fabric Manager refused to activate stays written down as ours."""

    class Claiming(FabricManager):
        def _activate(self, number: int, *, new: bool, idle: bool) -> None:
            super()._activate(number, new=False, idle=idle)

        def _exchange(self, partition: str, listed: Any, own: set[int], gpus: Any) -> None:
            target = self._matching(gpus, listed)
            super()._exchange(partition, [target._replace(active=False)], own, gpus)

    return driver(rig, journal, Claiming)


def sends_again(rig: ManagerRig, journal: FabricJournal) -> FabricDriver:
    """A request without an answer is sent again at once."""

    def insisting(words: Sequence[str]) -> str:
        try:
            return rig.fmpm(words)
        except Internal as error:
            if "does not end" not in error.problem:
                raise
            return rig.fmpm(words)

    hardware = FabricManager(insisting, GPUS, rig.notes, MACHINE)
    return OrderedFabric(hardware, journal, rig.timing)


def believes(rig: ManagerRig, journal: FabricJournal) -> FabricDriver:
    """What Fabric Manager says is done is not read back."""

    class Believing(OrderedFabric):
        def _confirm_outcome(self, intent: Any, expected: Mapping[str, Devices]) -> None:
            """Nothing."""

    return driver(rig, journal, ordered=Believing)


def forgets_at_its_word(rig: ManagerRig, journal: FabricJournal) -> FabricDriver:
    """A note goes as soon as Fabric Manager says that the partition is inactive."""

    class Trusting(FabricManager):
        def _forget(self, numbers: Collection[int], successor: int | None = None) -> None:
            for number in numbers:
                self._notes.remove(number)

    return driver(rig, journal, Trusting)


def matches_by_order(rig: ManagerRig, journal: FabricJournal) -> FabricDriver:
    """GPUs are counted in the order in which the list has them."""

    class Counting(FabricManager):
        def supported(self) -> list[SupportedPartition]:
            return [entry._replace(id=place) for place, entry in enumerate(super().supported())]

    return driver(rig, journal, Counting)


def forgets_its_journal(rig: ManagerRig, journal: FabricJournal) -> FabricDriver:
    """A restarted driver knows of no epoch."""
    return driver(rig, MemoryFabricJournal())


def forgets_other_members(rig: ManagerRig, journal: FabricJournal) -> FabricDriver:
    """A join activates the new GPUs alone."""

    class Dropping(FabricManager):
        def add(self, partition: str, devices: Devices) -> None:
            gpus = frozenset(device.index for device in devices)
            self._exchange(partition, self.supported(), self._own(partition), gpus)

    return driver(rig, journal, Dropping)


@pytest.mark.parametrize(
    "make",
    [
        deactivates_what_overlaps,
        notes_after_activation,
        keeps_the_note_of_a_refusal,
        sends_again,
        believes,
        forgets_at_its_word,
        matches_by_order,
        forgets_its_journal,
        forgets_other_members,
    ],
)
async def test_a_defect_in_fabric_manager_is_caught(
    make: Callable[[ManagerRig, FabricJournal], FabricDriver],
) -> None:
    with pytest.raises(ContractBroken):
        await _live(lambda seed: ManagerRig(seed, make))


def imex_without_notes(rig: ImexRig, journal: FabricJournal) -> FabricDriver:
    """A channel is made before it is written down."""

    class Late(MemoryNotes):
        def write(self, number: int, note: PartitionNote) -> None:
            path = rig.channels().path(number)
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            if not Path(path).exists():
                rig._create(path, 235, number)
            rig.notes.write(number, note)

        def entries(self) -> Mapping[int, PartitionNote]:
            return rig.notes.entries()

        def remove(self, number: int) -> None:
            rig.notes.remove(number)

    files = ChannelFiles(f"{rig.root}/", rig._create, rig._unlink)
    return OrderedFabric(
        ImexChannels(GPUS, Late(), MACHINE, channel_files=files), journal, rig.timing
    )


def imex_believes(rig: ImexRig, journal: FabricJournal) -> FabricDriver:
    """A channel that was removed is not looked at again."""

    class Believing(ImexChannels):
        def remove(self, partition: str, devices: Devices) -> None:
            super().remove(partition, devices)
            number = self.number(partition)
            note = rig.notes.found.get(number)
            if note is not None and {d.index for d in devices} >= {int(u[-4:]) for u in note.gpus}:
                rig.notes.remove(number)

    files = ChannelFiles(f"{rig.root}/", rig._create, rig._unlink)
    return OrderedFabric(
        Believing(GPUS, rig.notes, MACHINE, channel_files=files), journal, rig.timing
    )


@pytest.mark.parametrize("make", [imex_without_notes, imex_believes])
async def test_a_defect_in_imex_is_caught(
    make: Callable[[ImexRig, FabricJournal], FabricDriver], tmp_path: Path
) -> None:
    with pytest.raises(ContractBroken):
        await _live(lambda seed: ImexRig(seed, tmp_path, make))
