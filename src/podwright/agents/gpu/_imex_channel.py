"""The IMEX channel of a partition, which permits sharing memory between machines over NVLink.

A channel is a device file. Its number must be the same on all machines of a partition, and no other
partition on these machines may have it. So the number follows from the partition's name alone. When
a machine happens to use that number already, the partition is refused, because it would share the
channel otherwise. (This is our choice: where NMX-M divides the fabric too, equal numbers of
partitions on other machines do no harm.)

A note with the channel's GPUs is written before the channel is made. So the channel is found again
when the GPUs are released, whichever process was killed in between. A file without a note belongs
to another party.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from podwright.agents._fabric_driver import FabricDevice
from podwright.agents.fabric import FabricReading
from podwright.agents.gpu._guards import HeldPartition, user_number
from podwright.agents.gpu._machine_notes import PartitionNote, PartitionNotes
from podwright.errors import Internal, WrongState
from podwright.hosts.gpus import Gpu

#: The default number of channels of the driver (NVreg_ImexChannelCount); channel 0 is everybody's.
CHANNELS = 2048
_FOLDER = "dev/nvidia-caps-imex-channels"
_MAJOR = "nvidia-caps-imex-channels"


def _mknod(path: str, major: int, minor: int) -> None:
    os.mknod(path, stat.S_IFCHR, os.makedev(major, minor))


class ChannelFiles(NamedTuple):
    """Makes and removes the device files of channels. Both calls raise OSError.

    root: the folder that contains /dev and /proc. make: makes a device file (path, major, minor).
    """

    root: str = "/"
    make: Callable[[str, int, int], None] = _mknod
    remove: Callable[[str], None] = os.unlink


class ImexChannels:
    """A MachineFabric. gpus: all devices of the machine, in their order. channels: the driver's
    number of channels.
    """

    kind = "IMEX"

    def __init__(
        self,
        gpus: Sequence[Gpu],
        notes: PartitionNotes,
        machine: str = "here",
        *,
        files: ChannelFiles | None = None,
        channels: int = CHANNELS,
    ) -> None:
        self.machine = machine
        self._uuids = tuple(gpu.uuid for gpu in gpus)
        self._index_of = {uuid: index for index, uuid in enumerate(self._uuids)}
        self._notes = notes
        self._files = files or ChannelFiles()
        self._channels = channels

    def number(self, partition: str) -> int:
        """Return the channel of a partition, from 1 on."""
        return 1 + zlib.crc32(partition.encode()) % (self._channels - 1)

    def path(self, number: int) -> str:
        """Return the device file of a channel."""
        return os.path.join(self._files.root, _FOLDER, f"channel{number}")

    # -- the contract of all fabrics ---------------------------------------------------------------

    def settle(self) -> None:
        """See `FabricHardware.settle`. The kernel makes a file at once or not at all."""

    def read(self, devices: Iterable[FabricDevice]) -> FabricReading:
        """See `FabricHardware.read`. The two records are the notes and the device files."""
        partitions: dict[str, frozenset[FabricDevice]] = {}
        doubts: dict[str, str] = {}
        unmatched: dict[str, str] = {}
        disputed: dict[FabricDevice, str] = {}
        for number, note in self._notes.entries().items():
            name = note.partition
            present = [uuid for uuid in note.gpus if uuid in self._index_of]
            members = frozenset(
                FabricDevice(self.machine, self._index_of[uuid]) for uuid in present
            )
            if len(present) < len(note.gpus):
                missing_gpu = min(set(note.gpus) - set(present))
                unmatched[name] = (
                    f"partition {name} has GPU {missing_gpu}, which this machine has not"
                )
            if problem := self._problem(number):
                doubts[name] = problem
                disputed.update(dict.fromkeys(members, name))
            partitions[name] = members
        free = frozenset(FabricDevice(self.machine, index) for index in self._index_of.values())
        return FabricReading(
            partitions,
            free=free - frozenset().union(*partitions.values()),
            doubts=doubts,
            unmatched=unmatched,
            disputed=disputed,
        )

    def add(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.add`."""
        number, major = self.number(partition), self._major()
        path, note = self.path(number), self._notes.entries().get(number)
        if note is not None and note.partition != partition:
            raise self._conflict(partition, number, f"partition {note.partition}'s")
        if note is None and os.path.lexists(path):
            raise self._conflict(partition, number, "there already, and not Podwright's")
        uuids = {self._uuids[device.index] for device in devices} | set(note.gpus if note else ())
        self._notes.write(number, PartitionNote(partition, tuple(sorted(uuids))))
        try:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            if self._problem(number) and os.path.lexists(path):
                self._files.remove(path)  # our file, which is another device by now
            if not os.path.lexists(path):
                self._files.make(path, major, number)
                os.chmod(path, 0)
        except OSError as error:
            raise Internal(f"IMEX channel {number} cannot be made: {error.strerror}") from None

    def remove(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.remove`. The channel goes with the last GPU."""
        leaving = {self._uuids[device.index] for device in devices}
        for number, note in self._notes.entries().items():
            if note.partition != partition:
                continue
            if rest := tuple(uuid for uuid in note.gpus if uuid not in leaving):
                self._notes.write(number, PartitionNote(partition, rest))
                continue
            try:
                if os.path.lexists(self.path(number)):
                    self._files.remove(self.path(number))
            except OSError as error:
                raise Internal(f"IMEX channel {number} stays: {error.strerror}") from None
            if not os.path.lexists(self.path(number)):
                self._notes.remove(number)

    # -- the guard's part --------------------------------------------------------------------------

    def devices(self, gpus: Sequence[Gpu]) -> frozenset[FabricDevice]:
        """See `MachineFabric.devices`."""
        return frozenset(FabricDevice(self.machine, self._index_of[gpu.uuid]) for gpu in gpus)

    def check(self, devices: frozenset[FabricDevice]) -> None:
        """See `MachineFabric.check`: this machine's driver has channels."""
        self._major()

    def give(self, partition: str, owner: str) -> None:
        """See `MachineFabric.give`: the file is the owner's, mode 0600."""
        uid, path = user_number(owner), self.path(self.number(partition))
        try:
            os.chmod(path, 0)
            os.chown(path, uid, -1)
            os.chmod(path, 0o600)
        except OSError as error:
            raise Internal(f"{path} cannot be given to {owner}: {error.strerror}") from None

    def keep(self, partitions: Sequence[HeldPartition]) -> Mapping[str, str]:
        """See `MachineFabric.keep`. A restart of the machine loses the channels."""
        return {
            gpu.uuid: f"the IMEX channel of partition {entry.partition} is lost: reset it"
            for entry in partitions
            if self._problem(self.number(entry.partition))
            for gpu in entry.gpus
        }

    # -- inside ------------------------------------------------------------------------------------

    def _problem(self, number: int) -> str:
        """Return how a channel differs from those that this driver makes; empty: it does not."""
        path = self.path(number)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return f"there is no IMEX channel {number}"
        except OSError as error:
            return f"IMEX channel {number} cannot be read: {error.strerror}"
        expected = os.makedev(self._major(), number)
        if stat.S_ISCHR(status.st_mode) and status.st_rdev != expected:
            return f"{path} is another device"
        return ""

    def _conflict(self, partition: str, number: int, whose: str) -> WrongState:
        return WrongState(
            f"IMEX channel {number} is {whose} on this machine",
            operation=f"a channel for partition {partition}",
            would_work="choose another name for the partition",
        )

    def _major(self) -> int:
        with open(os.path.join(self._files.root, "proc/devices"), encoding="ascii") as file:
            for line in file:
                words = line.split()
                if len(words) == 2 and words[1] == _MAJOR:
                    return int(words[0])
        raise Internal(
            "the driver of this machine has no IMEX channels",
            would_work="use an agent without --guard imex, or GPUs of an NVLink rack",
        )
