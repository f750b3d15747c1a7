"""The guards that keep other users and partitions from a partition's GPUs on their machine.

A guard keeps nothing in memory, and reads the state from the hardware or the kernel. So each of its
two calls may be repeated. After a crash between two guards, the next call finds what the first
guard had begun, and finishes or undoes it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from podwright.errors import Internal, InvalidRequest
from podwright.hosts.gpus import Gpu


class Guard(Protocol):
    """Keeps others from a partition's GPUs.

    Each call may raise wire.PodwrightError. Then the step has failed, and is repeated or undone.
    """

    def check(self, gpus: Sequence[Gpu]) -> None:
        """Refuse GPUs that `join` could never join, before anything is changed."""
        ...

    def join(self, partition: str, owner: str, gpus: Sequence[Gpu]) -> None:
        """Give these GPUs, and no others, to this partition on this machine.

        owner: a user's name; empty admits every user.
        """
        ...

    def leave(self, gpus: Sequence[Gpu]) -> None:
        """Take these GPUs from their partition."""
        ...


class HeldPartition(NamedTuple):
    """A partition with GPUs on this machine, and these GPUs."""

    partition: str
    owner: str
    gpus: tuple[Gpu, ...]


@runtime_checkable
class Upkeep(Protocol):
    """A guard that repairs its own settings, since others may have undone them."""

    def keep(self, partitions: Sequence[HeldPartition]) -> Mapping[str, str]:
        """Restore what these partitions need, and remove everything else. The list is complete.

        This is called whenever the machine is described, and before each change. Returns the
        problems that cannot be repaired here, by UUID of the GPU. Raises wire.PodwrightError.
        """
        ...


@runtime_checkable
class EpochGuard(Protocol):
    """A guard that refuses older epochs by itself, since its hardware outlives the machine's
    record.
    """

    def under(self, epoch: int) -> None:
        """Make the calls that follow under this epoch."""
        ...


class FileGuard:
    """Gives a partition's device files to its owner, so that no other user can open them.

    Needs root, and a driver that does not change the files (NVreg_ModifyDeviceFiles=0).
    """

    def __init__(self, root: str = "/") -> None:
        self._root = root

    def check(self, gpus: Sequence[Gpu]) -> None:
        """See `Guard.check`."""
        for gpu in gpus:
            if not gpu.files:
                raise Internal(f"{gpu.name} {gpu.uuid} has no device file of its own")
        for path in self._device_paths(gpus):
            if not os.path.exists(path):
                raise Internal(f"there is no device file {path}")

    def join(self, partition: str, owner: str, gpus: Sequence[Gpu]) -> None:
        """See `Guard.join`."""
        uid = uid_of_user(owner)
        for path in self._device_paths(gpus):
            self._give_device_file(path, uid, 0o600)

    def leave(self, gpus: Sequence[Gpu]) -> None:
        """See `Guard.leave`."""
        for path in self._device_paths(gpus):
            self._give_device_file(path, os.geteuid(), 0o600)

    def _device_paths(self, gpus: Sequence[Gpu]) -> list[str]:
        device_files = [file for gpu in gpus for file in gpu.files]
        return [os.path.join(self._root, file.lstrip("/")) for file in dict.fromkeys(device_files)]

    @staticmethod
    def _give_device_file(device_path: str, uid: int, file_mode: int) -> None:
        """Close the file first, so that no user can open another user's GPU at any time."""
        try:
            os.chmod(device_path, 0)
            os.chown(device_path, uid, -1)
            os.chmod(device_path, file_mode)
        except OSError as error:
            raise Internal(
                f"cannot change who may open {device_path}: {error.strerror}",
                would_work="run the agent as root, or with --guard none",
            ) from None


def uid_of_user(user_name: str) -> int:
    """Return the number of a user; this process's own for an empty or anonymous one.

    Raises wire.InvalidRequest for an unknown user.
    """
    import pwd

    if not user_name or user_name == "anonymous":
        return os.geteuid()
    try:
        return int(user_name) if user_name.isdecimal() else pwd.getpwnam(user_name).pw_uid
    except KeyError:
        raise InvalidRequest(
            f"there is no user {user_name} on this machine",
            would_work="set up the same users on all machines, or an agent with --guard none",
        ) from None
