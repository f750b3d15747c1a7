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
_NVIDIA_MAJOR = 195
#: Seconds that the processes of a launch that has just ended have to leave its group.
_EXIT_PATIENCE_S = 2.0


class Cgroups:
    """A Guard and a Keeper. gpus: all GPUs of the machine. root: the folder that contains /dev."""

    def __init__(
        self,
        device_cgroups: DeviceCgroups,
        gpus: Sequence[Gpu],
        root: str = "/",
        *,
        exit_patience: float = _EXIT_PATIENCE_S,
    ) -> None:
        self._groups = device_cgroups
        self._root = root
        self._patience = exit_patience
        self._all = {gpu.uuid: gpu for gpu in gpus}
        self._own: dict[str, set[str]] = {}  # maps each group that was made or found to its GPUs

    def check_supported(self) -> None:
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
        self._device_numbers(self._all.values())

    def join(self, partition: str, owner: str, gpus: Sequence[Gpu]) -> None:
        """See `Guard.join`."""
        if partition not in self._own and partition in self._groups.names():
            self._require_empty_group(partition)
        self._allow_only(partition, self._own.get(partition, set()) | {gpu.uuid for gpu in gpus})

    def leave(self, gpus: Sequence[Gpu]) -> None:
        """See `Guard.leave`."""
        leaving_uuids = {gpu.uuid for gpu in gpus}
        for name, group_uuids in list(self._own.items()):
            if group_uuids & leaving_uuids:
                self._allow_only(name, group_uuids - leaving_uuids)
                if not self._own[name]:
                    del self._own[name]
                    self._remove_group(name, self._patience)

    def keep(self, partitions: Sequence[HeldPartition]) -> Mapping[str, str]:
        """See `Keeper.keep`."""
        wanted_uuids = {
            partition.partition: {gpu.uuid for gpu in partition.gpus} for partition in partitions
        }
        existing_groups = self._groups.names()
        for name in existing_groups:
            if name not in wanted_uuids:
                self._own.pop(name, None)
                self._allow_only(name, set())
                del self._own[name]
                self._remove_group(name, 0)
        for name, group_uuids in wanted_uuids.items():
            if name not in existing_groups or self._own.get(name) != group_uuids:
                self._allow_only(name, group_uuids)
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

    def _allow_only(self, group_name: str, allowed_uuids: set[str]) -> None:
        """Let the group open only these GPUs from now on. allowed_uuids: their UUIDs."""
        numbers = self._device_numbers(self._all[uuid] for uuid in allowed_uuids)
        try:
            self._groups.confine(
                group_name,
                self._device_numbers(self._all.values()) - numbers,
                numbers,
            )
        except OSError as error:
            raise Internal(
                f"the device cgroup of partition {group_name} cannot be made: {error.strerror}",
                would_work="run the agent as root, or with other guards",
            ) from None
        self._own[group_name] = allowed_uuids

    def _remove_group(self, group_name: str, patience_seconds: float) -> None:
        deadline = time.monotonic() + patience_seconds
        try:
            while not self._groups.remove(group_name) and time.monotonic() < deadline:
                time.sleep(0.02)
        except OSError as error:
            raise Internal(f"the cgroup of partition {group_name}: {error.strerror}") from None

    def _require_empty_group(self, group_name: str) -> None:
        self._remove_group(group_name, self._patience)
        if group_name not in self._groups.names():
            return
        pids = ", ".join(map(str, self._groups.members(group_name)[:5]))
        raise WrongState(
            f"processes of an earlier partition {group_name} are left on this machine: {pids}",
            operation=f"a cgroup for partition {group_name}",
            would_work="end these processes, or give the partition another name",
        )

    def _device_numbers(self, gpus: Iterable[Gpu]) -> set[tuple[int, int]]:
        device_files = {file for gpu in gpus for file in (*gpu.files, *gpu.shared)}
        return {self._number(file) for file in device_files}

    def _number(self, device_file: str) -> tuple[int, int]:
        try:
            status = os.stat(os.path.join(self._root, device_file.lstrip("/")))
        except OSError:
            name_match = re.fullmatch(r"/dev/nvidia(\d+)", device_file)
            if name_match is None:
                raise Internal(f"there is no device file {device_file}") from None
            return _NVIDIA_MAJOR, int(name_match[1])
        if not stat.S_ISCHR(status.st_mode):
            raise Internal(f"{device_file} is not a device file")
        return os.major(status.st_rdev), os.minor(status.st_rdev)
