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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from podwright.agents._fabric_driver_interface import FabricDevice
from podwright.agents.fabric import FabricReading
from podwright.agents.gpu._fabric_note_files import PartitionNote, PartitionNotes
from podwright.agents.gpu._guards import HeldPartition, uid_of_user
from podwright.errors import Internal, WrongState
from podwright.hosts.gpus import Gpu

#: The default number of channels of the driver (NVreg_ImexChannelCount); channel 0 is everybody's.
DEFAULT_CHANNEL_COUNT = 2048
_CHANNEL_FOLDER = "dev/nvidia-caps-imex-channels"
_PROC_DEVICES_NAME = "nvidia-caps-imex-channels"


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
    """A MachineFabric. gpus: all devices of the machine, in their order. channel_count: the
    driver's number of channels.
    """

    kind = "IMEX"

    def __init__(
        self,
        gpus: Sequence[Gpu],
        notes: PartitionNotes,
        machine: str = "here",
        *,
        channel_files: ChannelFiles | None = None,
        channel_count: int = DEFAULT_CHANNEL_COUNT,
    ) -> None:
        self.machine = machine
        self._uuids = tuple(gpu.uuid for gpu in gpus)
        self._index_of = {uuid: index for index, uuid in enumerate(self._uuids)}
        self._notes = notes
        self._files = channel_files or ChannelFiles()
        self._channels = channel_count

    def number(self, partition: str) -> int:
        """Return the channel of a partition, from 1 on."""
        return 1 + zlib.crc32(partition.encode()) % (self._channels - 1)

    def path(self, channel_number: int) -> str:
        """Return the device file of a channel."""
        return os.path.join(self._files.root, _CHANNEL_FOLDER, f"channel{channel_number}")

    # -- the contract of all fabrics ---------------------------------------------------------------

    def settle(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.settle`. The kernel makes a file at once or not at all."""

    def read(
        self, devices: Iterable[FabricDevice], machines: Collection[str] = ()
    ) -> FabricReading:
        """See `FabricHardware.read`. The two records are the notes and the device files."""
        partitions: dict[str, frozenset[FabricDevice]] = {}
        doubt_texts: dict[str, str] = {}
        unmatched_texts: dict[str, str] = {}
        disputed_devices: dict[FabricDevice, str] = {}
        for channel_number, note in self._notes.entries().items():
            partition_name = note.partition
            present_uuids = [uuid for uuid in note.gpus if uuid in self._index_of]
            member_devices = frozenset(
                FabricDevice(self.machine, self._index_of[uuid]) for uuid in present_uuids
            )
            if len(present_uuids) < len(note.gpus):
                missing_gpu = min(set(note.gpus) - set(present_uuids))
                unmatched_texts[partition_name] = (
                    f"partition {partition_name} has GPU {missing_gpu}, which this machine has not"
                )
            if file_problem := self._channel_problem(channel_number):
                doubt_texts[partition_name] = file_problem
                disputed_devices.update(dict.fromkeys(member_devices, partition_name))
            partitions[partition_name] = member_devices
        all_devices = frozenset(
            FabricDevice(self.machine, index) for index in self._index_of.values()
        )
        return FabricReading(
            partitions,
            free=all_devices - frozenset().union(*partitions.values()),
            doubts=doubt_texts,
            unmatched=unmatched_texts,
            disputed=disputed_devices,
        )

    def add(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.add`."""
        channel_number, major_number = self.number(partition), self._driver_major()
        channel_path, note = self.path(channel_number), self._notes.entries().get(channel_number)
        if note is not None and note.partition != partition:
            raise self._conflict(partition, channel_number, f"partition {note.partition}'s")
        if note is None and os.path.lexists(channel_path):
            raise self._conflict(partition, channel_number, "there already, and not Podwright's")
        uuids = {self._uuids[device.index] for device in devices} | set(note.gpus if note else ())
        self._notes.write(channel_number, PartitionNote(partition, tuple(sorted(uuids))))
        try:
            os.makedirs(os.path.dirname(channel_path), mode=0o755, exist_ok=True)
            if self._channel_problem(channel_number) and os.path.lexists(channel_path):
                self._files.remove(channel_path)  # our file, which is another device by now
            if not os.path.lexists(channel_path):
                self._files.make(channel_path, major_number, channel_number)
                os.chmod(channel_path, 0)
        except OSError as error:
            raise Internal(
                f"IMEX channel {channel_number} cannot be made: {error.strerror}"
            ) from None

    def remove(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.remove`. The channel goes with the last GPU."""
        leaving_uuids = {self._uuids[device.index] for device in devices}
        for channel_number, note in self._notes.entries().items():
            if note.partition != partition:
                continue
            if remaining_uuids := tuple(uuid for uuid in note.gpus if uuid not in leaving_uuids):
                self._notes.write(channel_number, PartitionNote(partition, remaining_uuids))
                continue
            try:
                if os.path.lexists(self.path(channel_number)):
                    self._files.remove(self.path(channel_number))
            except OSError as error:
                raise Internal(f"IMEX channel {channel_number} stays: {error.strerror}") from None
            if not os.path.lexists(self.path(channel_number)):
                self._notes.remove(channel_number)

    # -- the guard's part --------------------------------------------------------------------------

    def devices(self, gpus: Sequence[Gpu]) -> frozenset[FabricDevice]:
        """See `MachineFabric.devices`."""
        return frozenset(FabricDevice(self.machine, self._index_of[gpu.uuid]) for gpu in gpus)

    def check(self, devices: frozenset[FabricDevice]) -> None:
        """See `MachineFabric.check`: this machine's driver has channels."""
        self._driver_major()

    def give(self, partition: str, owner: str) -> None:
        """See `MachineFabric.give`: the file is the owner's, mode 0600."""
        uid, path = uid_of_user(owner), self.path(self.number(partition))
        try:
            os.chmod(path, 0)
            os.chown(path, uid, -1)
            os.chmod(path, 0o600)
        except OSError as error:
            raise Internal(f"{path} cannot be given to {owner}: {error.strerror}") from None

    def keep(self, partitions: Sequence[HeldPartition]) -> Mapping[str, str]:
        """See `MachineFabric.keep`. A restart of the machine loses the channels."""
        return {
            gpu.uuid: f"the IMEX channel of partition {partition.partition} is lost: reset it"
            for partition in partitions
            if self._channel_problem(self.number(partition.partition))
            for gpu in partition.gpus
        }

    # -- inside ------------------------------------------------------------------------------------

    def _channel_problem(self, channel_number: int) -> str:
        """Return how a channel differs from those that this driver makes; empty: it does not."""
        path = self.path(channel_number)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return f"there is no IMEX channel {channel_number}"
        except OSError as error:
            return f"IMEX channel {channel_number} cannot be read: {error.strerror}"
        device = os.makedev(self._driver_major(), channel_number)
        if stat.S_ISCHR(status.st_mode) and status.st_rdev != device:
            return f"{path} is another device"
        return ""

    def _conflict(self, partition: str, channel_number: int, owner_text: str) -> WrongState:
        return WrongState(
            f"IMEX channel {channel_number} is {owner_text} on this machine",
            operation=f"a channel for partition {partition}",
            would_work="choose another name for the partition",
        )

    def _driver_major(self) -> int:
        with open(os.path.join(self._files.root, "proc/devices"), encoding="ascii") as file:
            for line in file:
                columns = line.split()
                if len(columns) == 2 and columns[1] == _PROC_DEVICES_NAME:
                    return int(columns[0])
        raise Internal(
            "the driver of this machine has no IMEX channels",
            would_work="use an agent without --guard imex, or GPUs of an NVLink rack",
        )
