"""What stands around a partition's GPUs on their machine, so that others cannot reach them.

A guard keeps nothing in memory and asks the hardware or the kernel what there is. So each of its
two calls may be repeated, and after a crash between two guards the next call finds and finishes,
or undoes, what the first had begun.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from podwright.errors import Internal, InvalidRequest
from podwright.hosts.gpus import Gpu


class Guard(Protocol):
    """Raises wire.PodwrightError; then the step has failed and will be repeated or undone."""

    def check(self, gpus: Sequence[Gpu]) -> None:
        """Refuse what `join` could never do for these, before anything is changed."""
        ...

    def join(self, partition: str, owner: str, gpus: Sequence[Gpu]) -> None:
        """These GPUs, and no others, are this partition's on this machine. owner: a user's name,
        empty for anybody."""
        ...

    def leave(self, gpus: Sequence[Gpu]) -> None:
        """These GPUs are nobody's."""
        ...


class HeldPartition(NamedTuple):
    """A partition that the machine is in, and those of its GPUs that are here."""

    partition: str
    owner: str
    gpus: tuple[Gpu, ...]


@runtime_checkable
class Upkeep(Protocol):
    """A guard that looks after what it set up: others may have undone it meanwhile."""

    def keep(self, held: Sequence[HeldPartition]) -> Mapping[str, str]:
        """These partitions are all that there are: let what they need stand, and nothing else.

        Called whenever the machine is looked at, and before each change. Returns what is wrong
        and cannot be mended here, by UUID of the GPU. Raises wire.PodwrightError.
        """
        ...


class FileGuard:
    """Device files belong to a partition's owner: another user cannot open them.

    Needs root, and a driver that leaves its files alone (NVreg_ModifyDeviceFiles=0).
    """

    def __init__(self, root: str = "/") -> None:
        self._root = root

    def check(self, gpus: Sequence[Gpu]) -> None:
        """See `Guard.check`."""
        for gpu in gpus:
            if not gpu.files:
                raise Internal(f"{gpu.name} {gpu.uuid} has no device file of its own")
        for path in self._paths(gpus):
            if not os.path.exists(path):
                raise Internal(f"there is no device file {path}")

    def join(self, partition: str, owner: str, gpus: Sequence[Gpu]) -> None:
        """See `Guard.join`."""
        uid = user_number(owner)
        for path in self._paths(gpus):
            self._give(path, uid, 0o600)

    def leave(self, gpus: Sequence[Gpu]) -> None:
        """See `Guard.leave`."""
        for path in self._paths(gpus):
            self._give(path, os.geteuid(), 0o600)

    def _paths(self, gpus: Sequence[Gpu]) -> list[str]:
        files = [file for gpu in gpus for file in gpu.files]
        return [os.path.join(self._root, file.lstrip("/")) for file in dict.fromkeys(files)]

    @staticmethod
    def _give(path: str, uid: int, mode: int) -> None:
        """Shut it first, so that at no time a user can open what is another's."""
        try:
            os.chmod(path, 0)
            os.chown(path, uid, -1)
            os.chmod(path, mode)
        except OSError as error:
            raise Internal(
                f"cannot change who may open {path}: {error.strerror}",
                would_work="run the agent as root, or with --guard none",
            ) from None


def user_number(name: str) -> int:
    """The number of a user; ours for anybody. Raises wire.InvalidRequest for an unknown one."""
    import pwd

    if not name or name == "anonymous":
        return os.geteuid()
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise InvalidRequest(
            f"there is no user {name} on this machine",
            would_work="the same users on all machines, or an agent with --guard none",
        ) from None
