"""Device cgroups: a program on a partition can open only the device files of the partition's GPUs.

A program is moved into the partition's group when it is launched (_cgroup_socket). This separates
two partitions of one user, and it stops a program that ignores CUDA_VISIBLE_DEVICES. A group does
not restrict a process outside of it. The owners of the device files do that (`FileGuard`).

A group is removed with its partition. A group that still has processes stays until it is empty, and
opens no GPU meanwhile.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Mapping, Sequence

from podwright.agents.gpu._guards import HeldPartition
from podwright.errors import Internal, InvalidRequest, WrongState
from podwright.hosts import DeviceCgroups
from podwright.hosts.gpus import Gpu

#: Of NVIDIA's device files, whose minor is the number in their names. They may be made late.
_NVIDIA = 195
#: Seconds that the processes of a launch that has just ended have to leave its group.
_PATIENCE = 2.0


class Cgroups:
    """A Guard and a Keeper. gpus: all GPUs of the machine. root: the folder that contains /dev."""

    def __init__(
        self,
        groups: DeviceCgroups,
        gpus: Sequence[Gpu],
        root: str = "/",
        *,
        patience: float = _PATIENCE,
    ) -> None:
        self._groups = groups
        self._root = root
        self._patience = patience
        self._all = {gpu.uuid: gpu for gpu in gpus}
        self._own: dict[str, set[str]] = {}  # maps each group that was made or found to its GPUs

    def try_out(self) -> None:
        """Create and remove a group. Raises wire.InvalidRequest when this machine allows none."""
        try:
            self._groups.confine("try-out", (), ())
            self._groups.remove("try-out")
        except OSError as error:
            raise InvalidRequest(
                f"device cgroups cannot be made here: {error.strerror}",
                operation="--guard cgroups",
                would_work="use an agent that runs as root on the machine itself, or --guard files",
            ) from None

    def check(self, gpus: Sequence[Gpu]) -> None:
        """See `Guard.check`."""
        self._numbers(self._all.values())

    def join(self, partition: str, owner: str, gpus: Sequence[Gpu]) -> None:
        """See `Guard.join`."""
        if partition not in self._own and partition in self._groups.names():
            self._must_be_empty(partition)
        self._let(partition, self._own.get(partition, set()) | {gpu.uuid for gpu in gpus})

    def leave(self, gpus: Sequence[Gpu]) -> None:
        """See `Guard.leave`."""
        leaving = {gpu.uuid for gpu in gpus}
        for name, own in list(self._own.items()):
            if own & leaving:
                self._let(name, own - leaving)
                if not self._own[name]:
                    del self._own[name]
                    self._remove(name, self._patience)

    def keep(self, partitions: Sequence[HeldPartition]) -> Mapping[str, str]:
        """See `Keeper.keep`."""
        wanted = {entry.partition: {gpu.uuid for gpu in entry.gpus} for entry in partitions}
        existing = self._groups.names()
        for name in existing:
            if name not in wanted:
                self._own.pop(name, None)
                self._let(name, set())
                del self._own[name]
                self._remove(name, 0)
        for name, own in wanted.items():
            if name not in existing or self._own.get(name) != own:
                self._let(name, own)
        return {}

    def members(self, partition: str) -> list[int]:
        """Return the processes in a partition's group, if it has one."""
        exists = partition in self._groups.names()
        return self._groups.members(partition) if exists else []

    def enter(self, partition: str, pid: int) -> None:
        """Move a process into the partition's group, and with it everything that it starts from now
        on.
        """
        try:
            self._groups.enter(partition, pid)
        except OSError as error:
            raise Internal(
                f"process {pid} cannot be moved into the cgroup of partition {partition}: "
                f"{error.strerror}"
            ) from None

    def _let(self, name: str, own: set[str]) -> None:
        """Let the group open only these GPUs from now on. own: their UUIDs."""
        allowed = self._numbers(self._all[uuid] for uuid in own)
        try:
            self._groups.confine(name, self._numbers(self._all.values()) - allowed, allowed)
        except OSError as error:
            raise Internal(
                f"the device cgroup of partition {name} cannot be made: {error.strerror}",
                would_work="run the agent as root, or with other guards",
            ) from None
        self._own[name] = own

    def _remove(self, name: str, patience: float) -> None:
        until = time.monotonic() + patience
        try:
            while not self._groups.remove(name) and time.monotonic() < until:
                time.sleep(0.02)
        except OSError as error:
            raise Internal(f"the cgroup of partition {name}: {error.strerror}") from None

    def _must_be_empty(self, name: str) -> None:
        self._remove(name, self._patience)
        if name not in self._groups.names():
            return
        left = ", ".join(map(str, self._groups.members(name)[:5]))
        raise WrongState(
            f"processes of an earlier partition {name} are left on this machine: {left}",
            operation=f"a cgroup for partition {name}",
            would_work="end these processes, or give the partition another name",
        )

    def _numbers(self, gpus: Iterable[Gpu]) -> set[tuple[int, int]]:
        files = {file for gpu in gpus for file in (*gpu.files, *gpu.shared)}
        return {self._number(file) for file in files}

    def _number(self, file: str) -> tuple[int, int]:
        try:
            status = os.stat(os.path.join(self._root, file.lstrip("/")))
        except OSError:
            name = re.fullmatch(r"/dev/nvidia(\d+)", file)
            if name is None:
                raise Internal(f"there is no device file {file}") from None
            return _NVIDIA, int(name[1])
        if not stat.S_ISCHR(status.st_mode):
            raise Internal(f"{file} is not a device file")
        return os.major(status.st_rdev), os.minor(status.st_rdev)
