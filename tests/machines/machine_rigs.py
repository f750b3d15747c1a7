"""One machine's own fabrics for the fault kit: Fabric Manager, and IMEX channels."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from podwright.agents import FabricDevice, FabricDriver, FabricJournal
from podwright.agents.fabric import FabricTiming, OrderedFabric
from podwright.agents.gpu import FabricManager, ImexChannels, PartitionNote
from podwright.agents.gpu._imex_channel import ChannelFiles
from podwright.errors import Internal
from podwright.hosts.gpus import Gpu
from podwright.testing import FabricFault, FabricTruth, Killed, RequestGate, VirtualTime

Devices = frozenset[FabricDevice]
MACHINE = "n1"
GPUS = tuple(
    Gpu(
        i,
        "nvidia",
        f"GPU-{i:04}",
        "NVIDIA H100",
        "h100",
        f"0000:{i + 1:02x}:00.0",
        80,
        module=i + 1,
    )
    for i in range(5)
)
#: Every set of GPUs, so that a life is not bound by the sets of one board.
SETS = [s for size in range(1, 6) for s in itertools.combinations(range(5), size)]


class MemoryNotes:
    """PartitionNotes that outlive a driver, as a disk does."""

    def __init__(self) -> None:
        self.found: dict[int, PartitionNote] = {}

    def entries(self) -> Mapping[int, PartitionNote]:
        """See `PartitionNotes.entries`."""
        return dict(self.found)

    def write(self, number: int, note: PartitionNote) -> None:
        """See `PartitionNotes.write`."""
        self.found[number] = note

    def remove(self, number: int) -> None:
        """See `PartitionNotes.remove`."""
        self.found.pop(number, None)


class MachineRig:
    """What both rigs have: faults, kills, a gate and virtual time."""

    #: What this kind of fabric can have.
    faults: frozenset[FabricFault]

    def __init__(self, seed: int) -> None:
        self.machines = {MACHINE: len(GPUS)}
        self.random = Random(seed)
        self.time = VirtualTime()
        self.timing = FabricTiming(25.0, self.time.clock, self.time.sleep)
        self.notes = MemoryNotes()
        self.injected: set[FabricFault] = set()
        self.problems: list[str] = []
        self._gate: RequestGate | None = None

    def violations(self) -> Sequence[str]:
        """See `FabricRig.violations`."""
        return self.problems

    def gate(self) -> RequestGate:
        """See `FabricRig.gate`."""
        self._gate = RequestGate()
        return self._gate

    def inject(self, fault: FabricFault, random: Random) -> bool:
        """See `FabricRig.inject`."""
        if fault in self.faults:
            self.injected.add(fault)
        return fault in self.faults

    def heal(self) -> None:
        """See `FabricRig.heal`."""
        self.injected.clear()
        self._gate = None

    def comes(self, fault: FabricFault) -> bool:
        """Return whether this fault happens to the present request."""
        present = fault in self.injected
        self.injected.discard(fault)
        return present

    def pass_gate(self) -> None:
        """Let a changing request arrive at the gate."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.pass_through()
        if self.comes(FabricFault.KILL_BEFORE):
            raise Killed


class ManagerRig(MachineRig):
    """A FabricRig over Fabric Manager: five GPUs, of which any set can be a partition."""

    faults = frozenset(FabricFault) - {
        FabricFault.HALF_DONE,
        FabricFault.MISSING_MACHINE,
        FabricFault.STALE_TAG,
    }

    def __init__(
        self, seed: int, make: Callable[[ManagerRig, FabricJournal], FabricDriver] | None = None
    ) -> None:
        super().__init__(seed)
        self.active: set[int] = set()
        self._strangers: dict[int, str] = {}
        self._late: list[tuple[str, int]] = []
        self._make = make or manager_driver

    def driver(self, journal: FabricJournal) -> FabricDriver:
        """See `FabricRig.driver`."""
        self.injected -= {FabricFault.KILL_BEFORE, FabricFault.KILL_AFTER}
        return self._make(self, journal)

    def truth(self) -> FabricTruth:
        """See `FabricRig.truth`. Active partitions that are neither noted nor a stranger's are
        foreign.
        """
        ours: dict[str, Devices] = {}
        foreign: dict[str, Devices] = {}
        for number in self.active:
            note = self.notes.found.get(number)
            if number in self._strangers or note is None:
                foreign[self._strangers.get(number, f"nobody's {number}")] = devices(SETS[number])
            else:
                ours[note.partition] = ours.get(note.partition, frozenset()) | devices(SETS[number])
        return FabricTruth(ours, foreign)

    def reaches(self, device: FabricDevice, peer: FabricDevice) -> bool:
        """See `DataPlane.reaches`: the switches forward only inside an active partition."""
        return any({device.index, peer.index} <= set(SETS[number]) for number in self.active)

    def foreign(self) -> Mapping[str, Devices]:
        """See `FabricRig.foreign`."""
        return {name: devices(SETS[number]) for number, name in self._strangers.items()}

    def inject(self, fault: FabricFault, random: Random) -> bool:
        """See `FabricRig.inject`."""
        if fault is FabricFault.FOREIGN_PARTITION:
            return self._take(random)
        return super().inject(fault, random)

    def heal(self) -> None:
        """See `FabricRig.heal`."""
        super().heal()
        self._catch_up()

    def fmpm(self, words: Sequence[str]) -> str:
        """Act as the command. The daemon behind it carries out one request after the other."""
        self._catch_up()
        option = words[0]
        if option == "-l":
            return self._list()
        if option not in ("-a", "-d"):
            raise Internal("fmpm --set-activated-list failed: fmReturn: -2")
        number = int(words[1])
        self.pass_gate()
        if self.comes(FabricFault.OTHER_WRITER):
            self._take(self.random)
        if self.comes(FabricFault.LIE):
            return ""
        if self.comes(FabricFault.REFUSED):
            raise Internal(f"fmpm {option} failed: Failed. fmReturn: -10")
        if self.comes(FabricFault.SLOW):
            self._late.append((option, number))
            raise Internal("fmpm does not end within 60 s")
        self._change(option, number)
        if self.comes(FabricFault.KILL_AFTER):
            raise Killed
        if self.comes(FabricFault.DROPPED_ANSWER):
            raise Internal("fmpm does not end within 60 s")
        return ""

    def _change(self, option: str, number: int) -> None:
        if (number in self.active) == (option == "-a"):
            self.problems.append(f"{option} {number} was sent, and is so already")
        if option == "-d":
            self.active.discard(number)
            return
        if any(set(SETS[number]) & set(SETS[other]) for other in self.active):
            raise Internal("fmpm -a failed: Failed to activate partition. fmReturn: -7")
        self.active.add(number)

    def _catch_up(self) -> None:
        late, self._late = self._late, []
        for option, number in late:
            try:
                self._change(option, number)
            except Internal:
                continue  # nobody waits for the answer any more

    def _list(self) -> str:
        nulls = FabricFault.NULL_FIELDS in self.injected
        entries: list[dict[str, Any]] = [
            {
                "partitionId": number,
                "isActive": int(number in self.active),
                "gpuInfo": [
                    {
                        "physicalId": gpu + 1,
                        "uuid": "" if nulls else GPUS[gpu].uuid,
                        "pciBusId": "" if nulls else f"0000{GPUS[gpu].bus}",
                    }
                    for gpu in members
                ],
            }
            for number, members in enumerate(SETS)
        ]
        if FabricFault.REORDERED in self.injected:
            self.random.shuffle(entries)
            for entry in entries:
                self.random.shuffle(entry["gpuInfo"])
        return json.dumps({"partitionInfo": entries})

    def _take(self, random: Random) -> bool:
        """Let another party activate a partition of one or two GPUs that nobody has.

        A GPU that is free only during an exchange is not taken: Fabric Manager exchanges two sets
        in two requests, and no driver can keep others out between them.
        """
        joined = {gpu for number in {*self.active, *self.notes.found} for gpu in SETS[number]}
        free = [gpu for gpu in range(len(GPUS)) if gpu not in joined]
        if len(free) < 3 or len(self._strangers) > 1:
            return False
        number = SETS.index(tuple(sorted(random.sample(free, random.randint(1, 2)))))
        self.active.add(number)
        self._strangers[number] = f"stranger{number}"
        return True


class ImexRig(MachineRig):
    """A FabricRig over the device files of IMEX channels, below a folder of the test's.

    Files have no owner, and a request for one ends at once, so fewer faults can happen here.
    """

    faults = frozenset(
        (
            FabricFault.LIE,
            FabricFault.DROPPED_ANSWER,
            FabricFault.REFUSED,
            FabricFault.KILL_BEFORE,
            FabricFault.KILL_AFTER,
        )
    )

    def __init__(
        self,
        seed: int,
        folder: Path,
        make: Callable[[ImexRig, FabricJournal], FabricDriver] | None = None,
    ) -> None:
        super().__init__(seed)
        self.root = folder / str(seed)
        (self.root / "proc").mkdir(parents=True)
        (self.root / "proc/devices").write_text("235 nvidia-caps-imex-channels\n")
        self._make = make or imex_driver

    def driver(self, journal: FabricJournal) -> FabricDriver:
        """See `FabricRig.driver`."""
        self.injected.clear()
        return self._make(self, journal)

    def channels(self) -> ImexChannels:
        """The hardware, in the rig's folder."""
        files = ChannelFiles(f"{self.root}/", self._create, self._unlink)
        return ImexChannels(GPUS, self.notes, MACHINE, channel_files=files)

    def truth(self) -> FabricTruth:
        """See `FabricRig.truth`."""
        folder = self.root / "dev/nvidia-caps-imex-channels"
        ours: dict[str, Devices] = {}
        foreign: dict[str, Devices] = {}
        for name in os.listdir(folder) if folder.exists() else ():
            note = self.notes.found.get(int(name.removeprefix("channel")))
            if note is None:
                foreign[name] = frozenset()
            else:
                ours[note.partition] = devices(int(uuid[-4:]) for uuid in note.gpus)
        return FabricTruth(ours, foreign)

    def foreign(self) -> Mapping[str, Devices]:
        """See `FabricRig.foreign`."""
        return {}

    def _create(self, path: str, major: int, number: int) -> None:
        self._request(lambda: Path(path).write_text(str(number)))

    def _unlink(self, path: str) -> None:
        self._request(lambda: os.unlink(path))

    def _request(self, change: Callable[[], object]) -> None:
        self.pass_gate()
        if self.comes(FabricFault.LIE):
            return
        if self.comes(FabricFault.REFUSED):
            raise OSError(1, "Operation not permitted")
        change()
        if self.comes(FabricFault.KILL_AFTER):
            raise Killed
        if self.comes(FabricFault.DROPPED_ANSWER):
            raise OSError(5, "Input/output error")


def devices(indices: Sequence[int] | Any) -> Devices:
    """Devices of the machine."""
    return frozenset(FabricDevice(MACHINE, index) for index in indices)


def manager_driver(rig: ManagerRig, journal: FabricJournal) -> FabricDriver:
    """The product's own driver of Fabric Manager."""
    return OrderedFabric(FabricManager(rig.fmpm, GPUS, rig.notes, MACHINE), journal, rig.timing)


def imex_driver(rig: ImexRig, journal: FabricJournal) -> FabricDriver:
    """The product's own driver of IMEX channels."""
    return OrderedFabric(rig.channels(), journal, rig.timing)
