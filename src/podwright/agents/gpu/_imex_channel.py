"""The IMEX channel of a partition: the right to share memory between machines over NVLink.

A channel is a device file whose number must be the same on all machines of a partition, and no
other partition's. So it follows from the partition's name alone; where by chance a machine has
that number already, the partition is refused rather than left to share it. (Our choice: where
NMX-M divides the fabric too, equal numbers of partitions on other machines do no harm.)

Each channel that is made is first written down beside its GPUs, so that it is found again when
they are released, whoever was killed in between.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from podwright.agents.gpu._guards import user_number
from podwright.errors import Internal, WrongState
from podwright.hosts.gpus import Gpu

#: Channels that the driver has unless told otherwise (NVreg_ImexChannelCount); 0 is everybody's.
CHANNELS = 2048
_FOLDER = "dev/nvidia-caps-imex-channels"
_MAJOR = "nvidia-caps-imex-channels"


class _Channel(msgspec.Struct, frozen=True):
    """What is written down of one."""

    partition: str
    gpus: tuple[str, ...]


class Imex:
    """A Guard. state: a folder of ours. make: makes a device file (path, major, minor)."""

    def __init__(
        self,
        state: Path,
        root: str = "/",
        *,
        make: Callable[[str, int, int], None] | None = None,
        channels: int = CHANNELS,
    ) -> None:
        self._state = state
        self._root = root
        self._make = make or _mknod
        self._channels = channels

    def number(self, partition: str) -> int:
        """The channel of a partition, from 1 on."""
        return 1 + zlib.crc32(partition.encode()) % (self._channels - 1)

    def check(self, gpus: Sequence[Gpu]) -> None:
        """See `Guard.check`."""
        self._major()

    def join(self, partition: str, owner: str, gpus: Sequence[Gpu]) -> None:
        """See `Guard.join`."""
        number, uid, major = self.number(partition), user_number(owner), self._major()
        known = self._known(number)
        if known is not None and known.partition != partition:
            raise WrongState(
                f"IMEX channel {number} is partition {known.partition}'s on this machine",
                asked=f"a channel for partition {partition}",
                would_work="another name for the partition",
            )
        held = {*(known.gpus if known else ()), *(gpu.uuid for gpu in gpus)}
        self._write(number, _Channel(partition, tuple(sorted(held))))
        path = self.path(number)
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        try:
            if not os.path.lexists(path):
                self._make(path, major, number)
            os.chmod(path, 0)
            os.chown(path, uid, -1)
            os.chmod(path, 0o600)
        except OSError as error:
            raise Internal(f"cannot make IMEX channel {number}: {error.strerror}") from None

    def leave(self, gpus: Sequence[Gpu]) -> None:
        """See `Guard.leave`."""
        leaving = {gpu.uuid for gpu in gpus}
        for number in self.channels():
            known = self._known(number)
            if known is None or leaving.isdisjoint(known.gpus):
                continue
            rest = tuple(uuid for uuid in known.gpus if uuid not in leaving)
            if rest:
                self._write(number, _Channel(known.partition, rest))
                continue
            Path(self.path(number)).unlink(missing_ok=True)
            (self._state / str(number)).unlink(missing_ok=True)

    def channels(self) -> list[int]:
        """The channels that are written down."""
        try:
            names = os.listdir(self._state)
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isdecimal())

    def path(self, number: int) -> str:
        """Its device file."""
        return os.path.join(self._root, _FOLDER, f"channel{number}")

    def _known(self, number: int) -> _Channel | None:
        try:
            return msgspec.json.decode((self._state / str(number)).read_bytes(), type=_Channel)
        except FileNotFoundError:
            return None

    def _write(self, number: int, channel: _Channel) -> None:
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._state / f"{number}.new"
        fresh.write_bytes(msgspec.json.encode(channel))
        os.replace(fresh, self._state / str(number))

    def _major(self) -> int:
        with open(os.path.join(self._root, "proc/devices"), encoding="ascii") as file:
            for line in file:
                words = line.split()
                if len(words) == 2 and words[1] == _MAJOR:
                    return int(words[0])
        raise Internal(
            "the driver of this machine has no IMEX channels",
            would_work="an agent without --guard imex, or GPUs of an NVLink rack",
        )


def _mknod(path: str, major: int, minor: int) -> None:
    os.mknod(path, stat.S_IFCHR, os.makedev(major, minor))
