"""A controller's calls on the fabric of a rig, and what must be true after each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from podwright.agents import FabricDevice, FabricDriver, MemoryFabricJournal
from podwright.errors import Fenced, PodwrightError
from podwright.testing._fabric_rig import (
    ContractBroken,
    DataPlane,
    FabricCondition,
    FabricFault,
    FabricRig,
    Killed,
)

#: How often a call may fail after the faults have ended.
_TRIES_PER_CALL = 4


@dataclass
class FabricRun:
    """What happened in one run. injected, conditions: how often each was brought about."""

    seed: int
    calls: int = 0
    failures: int = 0
    kills: int = 0
    injected: dict[FabricFault, int] = field(default_factory=dict)
    conditions: dict[FabricCondition, int] = field(default_factory=dict)


class KillingJournal:
    """The driver's journal, which can end the driver's process before or after a note is durable.

    notes: those of the server before. replaced: another server has taken over.
    """

    def __init__(self, notes: MemoryFabricJournal | None = None) -> None:
        self.notes = notes or MemoryFabricJournal()
        self.kill_at = ""
        self.replaced = False

    def entries(self) -> Mapping[str, bytes]:
        """See `FabricJournal.entries`."""
        return self.notes.entries()

    async def write(self, changes: Mapping[str, bytes | None]) -> None:
        """See `FabricJournal.write`."""
        if self.replaced:
            raise Fenced("another server has taken this store over")
        moment, self.kill_at = self.kill_at, ""
        if moment == "before":
            raise Killed
        await self.notes.write(changes)
        if moment == "after":
            raise Killed

    def write_later(self, changes: Mapping[str, bytes | None]) -> None:
        """See `FabricJournal.write_later`."""
        if not self.kill_at and not self.replaced:  # a process that is about to die may lose it
            self.notes.write_later(changes)


class ControllerLife:
    """A controller's calls on one fabric. wanted: what they should have joined."""

    def __init__(self, rig: FabricRig, seed: int) -> None:
        self.rig = rig
        self.random = Random(seed)
        self.run = FabricRun(seed)
        self.journal = KillingJournal()
        self.driver: FabricDriver = rig.driver(self.journal)
        self._epoch = 10
        self.wanted: dict[str, frozenset[FabricDevice]] = {}
        self._devices = [
            FabricDevice(machine, index)
            for machine, count in rig.machines.items()
            for index in range(count)
        ]

    # -- calls -----------------------------------------------------------------------------------

    async def call_until_done(
        self, partition: str, devices: frozenset[FabricDevice], *, with_faults: bool
    ) -> None:
        """Repeat a call, or undo it, until it succeeds. No faults are injected from the third
        attempt on.
        """
        for attempt in range(2 + _TRIES_PER_CALL):
            if with_faults and attempt < 2:
                self.maybe_inject(tuple(FabricFault))
            else:
                self.rig.heal()
            available_devices = (
                devices & frozenset(self.free_devices()) if partition and attempt == 0 else devices
            )
            if not available_devices:
                return
            self._epoch += 1
            try:
                await self.call(partition, self._epoch, available_devices)
            except Killed:
                self.run.kills += 1
                self.driver = self.rig.driver(self.journal)
                problem = "the process was killed"
            except PodwrightError as error:
                self.run.failures += 1
                problem = error.message
            else:
                self.note_call_done(partition, available_devices)
                self.compare_with_truth("after a call that ended well")
                return
            self.check_no_violation()
            devices = available_devices
            if partition and (self.random.random() < 0.5 or self._taken_by_others(devices)):
                partition = ""  # the controller does so when it gives a partition up
        raise ContractBroken(f"no call ends well although the faults have ended: {problem}")

    def next_epoch(self) -> int:
        """Return an epoch that is newer than all before."""
        self._epoch += 1
        return self._epoch

    def take_over(self) -> None:
        """Let another server drive the fabric from now on, by the same notes."""
        self.journal = KillingJournal(self.journal.notes)
        self.driver = self.rig.driver(self.journal)

    async def call(
        self,
        partition: str,
        epoch: int,
        devices: frozenset[FabricDevice],
        *,
        driver: FabricDriver | None = None,
    ) -> None:
        """Make one call of this server, or of another one's driver."""
        driver = driver or self.driver
        self.run.calls += 1
        indices_by_machine: dict[str, list[int]] = {}
        for device in sorted(devices):
            indices_by_machine.setdefault(device.machine, []).append(device.index)
        try:
            if partition:
                await driver.join(partition, epoch, indices_by_machine)
            else:
                await driver.leave(epoch, indices_by_machine)
        except PodwrightError:
            raise
        except Exception as error:
            raise ContractBroken(
                f"a call raises {error!r}, which is not a PodwrightError"
            ) from error

    def note_call_done(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """Remember the outcome of a call that ended well."""
        self._forget(devices)
        if partition:
            self.wanted[partition] = self.wanted.get(partition, frozenset()) | devices

    def _forget(self, devices: set[FabricDevice] | frozenset[FabricDevice]) -> None:
        remaining_members = {
            partition: members - devices for partition, members in self.wanted.items()
        }
        self.wanted = {
            partition: members for partition, members in remaining_members.items() if members
        }

    # -- what must hold --------------------------------------------------------------------------

    def compare_with_truth(self, moment: str) -> None:
        """Check that exactly the wanted devices are joined."""
        self.check_no_violation()
        actual_members = {
            partition: members for partition, members in self.rig.truth().ours.items() if members
        }
        if actual_members != self.wanted:
            raise ContractBroken(
                f"{moment} there is {actual_members}, and there should be {self.wanted}"
            )
        if isinstance(self.rig, DataPlane):
            self._probe_reachability(moment, self.rig)

    def _probe_reachability(self, moment: str, data_plane: DataPlane) -> None:
        """Check that peers in a partition reach each other, and no device outside it."""
        for members in self.wanted.values():
            for device in members:
                for other_device in self._devices:
                    if other_device == device:
                        continue
                    is_reached = data_plane.reaches(device, other_device)
                    if is_reached != (other_device in members):
                        verb = "reaches" if is_reached else "does not reach"
                        raise ContractBroken(f"{moment} {device} {verb} {other_device}")

    def check_no_violation(self) -> None:
        truth = self.rig.truth()
        partition_of: dict[FabricDevice, str] = {}
        for partition, members in [*truth.ours.items(), *truth.foreign.items()]:
            for device in members:
                if device in partition_of:
                    raise ContractBroken(
                        f"{device} is in partitions {partition_of[device]} and {partition}"
                    )
                partition_of[device] = partition
        if violations := self.rig.violations():
            raise ContractBroken("; ".join(violations))
        if dict(truth.foreign) != dict(self.rig.foreign()):
            raise ContractBroken(
                f"partitions of others were {dict(self.rig.foreign())} and are {truth.foreign}"
            )

    def maybe_inject(self, faults: tuple[FabricFault, ...]) -> None:
        if self.random.random() < 0.25:
            return
        fault = self.random.choice(faults)
        if fault in _KILL_FAULTS and self.random.random() < 0.3:
            self.journal.kill_at = "before" if fault is FabricFault.KILL_BEFORE else "after"
        elif not self.rig.inject(fault, self.random):
            return
        self.run.injected[fault] = self.run.injected.get(fault, 0) + 1

    def free_devices(self) -> list[FabricDevice]:
        """Return the devices that neither Podwright nor anybody else has joined."""
        occupied = frozenset().union(*self.wanted.values(), *self.rig.foreign().values())
        return [device for device in self._devices if device not in occupied]

    def _taken_by_others(self, devices: frozenset[FabricDevice]) -> bool:
        return any(devices & members for members in self.rig.foreign().values())

    def sample_devices(self, devices: list[FabricDevice]) -> frozenset[FabricDevice]:
        """Return one to four of these devices; none of none."""
        count = self.random.randint(1, min(4, len(devices))) if devices else 0
        return frozenset(self.random.sample(devices, count))


_KILL_FAULTS = (FabricFault.KILL_BEFORE, FabricFault.KILL_AFTER)
HARMLESS_FAULTS = (FabricFault.NULL_FIELDS, FabricFault.REORDERED, FabricFault.MISSING_MACHINE)
