"""The fault kit: random calls and faults from a seed, which every driver of a fabric must survive.

A run plays the controller. It joins devices and takes them out under growing epochs, while the rig
injects faults. After each call that succeeds, the rig's truth must be exactly what the calls
wanted. A call that fails is repeated or undone until it succeeds, as the controller does. At every
moment no device is in two partitions, and no other party's partition has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from podwright.agents import FabricDevice, FabricDriver, FabricJournal, MemoryFabricJournal
from podwright.errors import Fenced, PodwrightError, WrongState
from podwright.testing._fabric_rig import (
    ContractBroken,
    DataPlane,
    FabricFault,
    FabricRig,
    Killed,
)

#: The number of calls in a run, and how often a call may fail after the faults have ended.
_STEPS_PER_RUN, _TRIES_PER_CALL = 14, 4
#: The seconds for which a call is watched that should wait for its turn. A driver that breaks the
#: contract ends the call sooner; a driver that keeps it takes this long and goes on.
_GLANCE_SECONDS = 0.02


@dataclass
class FabricRun:
    """What happened in one run. injected: how often each fault was injected."""

    seed: int
    calls: int = 0
    failures: int = 0
    kills: int = 0
    injected: dict[FabricFault, int] = field(default_factory=dict)


class _KillingJournal:
    """The driver's journal, which can end the driver's process before or after a note is
    durable.
    """

    def __init__(self) -> None:
        self._journal = MemoryFabricJournal()
        self.kill_at: str = ""

    def entries(self) -> Mapping[str, bytes]:
        return self._journal.entries()

    async def write(self, changes: Mapping[str, bytes | None]) -> None:
        kill_moment, self.kill_at = self.kill_at, ""
        if kill_moment == "before":
            raise Killed
        await self._journal.write(changes)
        if kill_moment == "after":
            raise Killed

    def write_later(self, changes: Mapping[str, bytes | None]) -> None:
        if not self.kill_at:  # a process that is about to die may lose this note
            self._journal.write_later(changes)


async def check_fabric_driver(rig: FabricRig, seed: int) -> FabricRun:
    """Do one run. Raises ContractBroken, which names the seed. A rig serves one run only."""
    life = _ControllerLife(rig, seed)
    try:
        await life.play()
    except ContractBroken as error:
        raise ContractBroken(f"seed {seed}, call {life.run.calls}: {error}") from None
    return life.run


class _ControllerLife:
    def __init__(self, rig: FabricRig, seed: int) -> None:
        self._rig = rig
        self._random = Random(seed)
        self.run = FabricRun(seed)
        self._journal = _KillingJournal()
        journal: FabricJournal = self._journal
        self._driver: FabricDriver = rig.driver(journal)
        self._epoch = 10
        self._wanted: dict[str, frozenset[FabricDevice]] = {}
        self._devices = [
            FabricDevice(machine, device_index)
            for machine, device_count in rig.machines.items()
            for device_index in range(device_count)
        ]

    async def play(self) -> None:
        """Make all calls of a run."""
        actions = (
            self._join_devices,
            self._join_devices,
            self._leave_partition,
            self._check_theft_refused,
            self._check_stale_epoch,
            self._check_abandoned_call,
        )
        for _ in range(_STEPS_PER_RUN):
            await self._random.choice(actions)()
            self._rig.heal()
            self._compare_with_truth("once the faults have ended")
        all_devices = frozenset().union(*self._wanted.values()) if self._wanted else frozenset()
        if all_devices:
            await self._call_until_done("", all_devices, with_faults=False)
        self._compare_with_truth("at the end")
        reading = await self._driver.read()
        if partitions := dict(reading.partitions):
            raise ContractBroken(f"read() shows {partitions}, and nothing is joined")

    # -- what a controller does ----------------------------------------------------------------

    async def _join_devices(self) -> None:
        partition = self._random.choice(["a", "b", "c"])
        if chosen_devices := self._sample_devices(self._free_devices()):
            await self._call_until_done(partition, chosen_devices, with_faults=True)

    async def _leave_partition(self) -> None:
        if self._wanted:
            members = self._wanted[self._random.choice(sorted(self._wanted))]
            await self._call_until_done("", self._sample_devices(sorted(members)), with_faults=True)

    async def _check_theft_refused(self) -> None:
        """Check that a join is refused for a device of another partition, Podwright's or
        foreign.
        """
        known_partitions = [*self._wanted.values(), *self._rig.foreign().values()]
        partitions = [members for members in known_partitions if members]
        if not partitions:
            return
        victim_members = self._random.choice(sorted(partitions, key=sorted))
        stolen_device = self._random.choice(sorted(victim_members))
        self._maybe_inject(_HARMLESS_FAULTS)
        truth_before = self._rig.truth()
        self._epoch += 1
        try:
            await self._call("thief", self._epoch, frozenset([stolen_device]))
        except PodwrightError:
            self._check_no_violation()
        else:
            raise ContractBroken(
                f"joining {stolen_device}, which another partition has, ended well"
            )
        if self._rig.truth() != truth_before:
            raise ContractBroken(
                f"joining {stolen_device}, which another partition has, changed something"
            )

    async def _check_stale_epoch(self) -> None:
        """Check that a call under an old epoch changes nothing."""
        if not self._wanted:
            return
        members = self._wanted[self._random.choice(sorted(self._wanted))]
        partition = self._random.choice(["", "stale"])
        self._rig.heal()
        try:
            await self._call(partition, 1, self._sample_devices(sorted(members)))
        except Fenced:
            return
        except WrongState:
            return
        raise ContractBroken("a call under an old epoch ended well, and would change something")

    async def _check_abandoned_call(self) -> None:
        """Check that a call waits for the end of an earlier call whose caller gave up."""
        partition_names = [
            partition for partition, members in self._wanted.items() if len(members) > 1
        ]
        gate = self._rig.gate() if partition_names else None
        if gate is None:
            return
        first_device, second_device = self._random.sample(
            sorted(self._wanted[partition_names[0]]), 2
        )
        self._epoch += 2
        earlier_call = asyncio.ensure_future(
            self._call("", self._epoch - 1, frozenset([first_device]))
        )
        gate_wait = asyncio.ensure_future(asyncio.to_thread(gate.reached.wait, 60))
        await asyncio.wait({earlier_call, gate_wait}, return_when=asyncio.FIRST_COMPLETED)
        earlier_call.cancel()
        later_call = asyncio.ensure_future(self._call("", self._epoch, frozenset([second_device])))
        await asyncio.wait({later_call}, timeout=_GLANCE_SECONDS)
        gate.open()
        outcomes = await asyncio.gather(earlier_call, later_call, gate_wait, return_exceptions=True)
        if isinstance(outcomes[1], BaseException):
            raise ContractBroken(f"a call after one that was given up failed: {outcomes[1]!r}")
        # The request that was on its way may take effect after the caller gave up.
        await self._driver.read()
        self._forget({first_device, second_device})
        self._compare_with_truth("after a caller gave up on an earlier call")

    # -- calls -----------------------------------------------------------------------------------

    async def _call_until_done(
        self, partition: str, devices: frozenset[FabricDevice], *, with_faults: bool
    ) -> None:
        """Repeat a call, or undo it, until it succeeds. No faults are injected from the third
        attempt on.
        """
        for attempt in range(2 + _TRIES_PER_CALL):
            if with_faults and attempt < 2:
                self._maybe_inject(tuple(FabricFault))
            else:
                self._rig.heal()
            available_devices = (
                devices & frozenset(self._free_devices()) if partition and attempt == 0 else devices
            )
            if not available_devices:
                return
            self._epoch += 1
            try:
                await self._call(partition, self._epoch, available_devices)
            except Killed:
                self.run.kills += 1
                self._driver = self._rig.driver(self._journal)
                problem = "the process was killed"
            except PodwrightError as error:
                self.run.failures += 1
                problem = error.message
            else:
                self._note_call_done(partition, available_devices)
                self._compare_with_truth("after a call that ended well")
                return
            self._check_no_violation()
            devices = available_devices
            if partition and (self._random.random() < 0.5 or self._taken_by_others(devices)):
                partition = ""  # the controller does so when it gives a partition up
        raise ContractBroken(f"no call ends well although the faults have ended: {problem}")

    async def _call(self, partition: str, epoch: int, devices: frozenset[FabricDevice]) -> None:
        self.run.calls += 1
        indices_by_machine: dict[str, list[int]] = {}
        for device in sorted(devices):
            indices_by_machine.setdefault(device.machine, []).append(device.index)
        try:
            if partition:
                await self._driver.join(partition, epoch, indices_by_machine)
            else:
                await self._driver.leave(epoch, indices_by_machine)
        except PodwrightError:
            raise
        except Exception as error:
            raise ContractBroken(
                f"a call raises {error!r}, which is not a PodwrightError"
            ) from error

    def _note_call_done(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        self._forget(devices)
        if partition:
            self._wanted[partition] = self._wanted.get(partition, frozenset()) | devices

    def _forget(self, devices: set[FabricDevice] | frozenset[FabricDevice]) -> None:
        remaining_members = {
            partition: members - devices for partition, members in self._wanted.items()
        }
        self._wanted = {
            partition: members for partition, members in remaining_members.items() if members
        }

    # -- what must hold --------------------------------------------------------------------------

    def _compare_with_truth(self, moment: str) -> None:
        self._check_no_violation()
        actual_members = {
            partition: members for partition, members in self._rig.truth().ours.items() if members
        }
        if actual_members != self._wanted:
            raise ContractBroken(
                f"{moment} there is {actual_members}, and there should be {self._wanted}"
            )
        if isinstance(self._rig, DataPlane):
            self._probe_reachability(moment, self._rig)

    def _probe_reachability(self, moment: str, data_plane: DataPlane) -> None:
        """Check that peers in a partition reach each other, and no device outside it."""
        for members in self._wanted.values():
            for device in members:
                for other_device in self._devices:
                    if other_device == device:
                        continue
                    is_reached = data_plane.reaches(device, other_device)
                    if is_reached != (other_device in members):
                        verb = "reaches" if is_reached else "does not reach"
                        raise ContractBroken(f"{moment} {device} {verb} {other_device}")

    def _check_no_violation(self) -> None:
        truth = self._rig.truth()
        partition_of: dict[FabricDevice, str] = {}
        for partition, members in [*truth.ours.items(), *truth.foreign.items()]:
            for device in members:
                if device in partition_of:
                    raise ContractBroken(
                        f"{device} is in partitions {partition_of[device]} and {partition}"
                    )
                partition_of[device] = partition
        if violations := self._rig.violations():
            raise ContractBroken("; ".join(violations))
        if dict(truth.foreign) != dict(self._rig.foreign()):
            raise ContractBroken(
                f"partitions of others were {dict(self._rig.foreign())} and are {truth.foreign}"
            )

    def _maybe_inject(self, faults: tuple[FabricFault, ...]) -> None:
        if self._random.random() < 0.25:
            return
        fault = self._random.choice(faults)
        if fault in _KILL_FAULTS and self._random.random() < 0.3:
            self._journal.kill_at = "before" if fault is FabricFault.KILL_BEFORE else "after"
        elif not self._rig.inject(fault, self._random):
            return
        self.run.injected[fault] = self.run.injected.get(fault, 0) + 1

    def _free_devices(self) -> list[FabricDevice]:
        occupied = frozenset().union(*self._wanted.values(), *self._rig.foreign().values())
        return [device for device in self._devices if device not in occupied]

    def _taken_by_others(self, devices: frozenset[FabricDevice]) -> bool:
        return any(devices & members for members in self._rig.foreign().values())

    def _sample_devices(self, devices: list[FabricDevice]) -> frozenset[FabricDevice]:
        count = self._random.randint(1, min(4, len(devices))) if devices else 0
        return frozenset(self._random.sample(devices, count))


_KILL_FAULTS = (FabricFault.KILL_BEFORE, FabricFault.KILL_AFTER)
_HARMLESS_FAULTS = (FabricFault.NULL_FIELDS, FabricFault.REORDERED, FabricFault.MISSING_MACHINE)
