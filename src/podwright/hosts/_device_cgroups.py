"""Which device files a group of processes may open: the devices part of both versions of cgroups.

The kernel enforces it. A group is a folder below Podwright's own. Processes are moved into it, and
their children start in it. A user who is not root cannot move out. A refusal stays in force, even
after the process that made the group ends, and goes with the group.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

DeviceNumber = tuple[int, int]  #: major and minor of a character device
_GROUP_NAME_PREFIX = "p-"  # a group must not be named like one of the kernel's own files


class DeviceCgroups(Protocol):
    """Groups by name. Every method but `names` raises OSError."""

    def names(self) -> list[str]:
        """Return the existing groups."""
        ...

    def confine(
        self, name: str, denied: Collection[DeviceNumber], allowed: Collection[DeviceNumber]
    ) -> None:
        """Make the group if it does not exist, and set its devices.

        Processes in it cannot open a device in `denied`. A device in `allowed` may have been denied
        before.
        """
        ...

    def enter(self, name: str, pid: int) -> None:
        """Move a process into the group."""
        ...

    def members(self, name: str) -> list[int]:
        """Return the pids of the processes in the group."""
        ...

    def remove(self, name: str) -> bool:
        """Remove the group; one that is gone is not an error.

        Return False if processes are still in it.
        """
        ...


class _CgroupFolders:
    """Groups as folders. root: where the hierarchy is mounted. folder: Podwright's folder in it."""

    def __init__(self, root: str, folder: str = "podwright") -> None:
        self.path = Path(root) / folder

    def names(self) -> list[str]:
        """See `DeviceCgroups.names`."""
        try:
            entries = os.listdir(self.path)
        except OSError:
            return []
        return sorted(
            unquote(entry.removeprefix(_GROUP_NAME_PREFIX))
            for entry in entries
            if entry.startswith(_GROUP_NAME_PREFIX)
        )

    def enter(self, name: str, pid: int) -> None:
        """See `DeviceCgroups.enter`."""
        _write_control_file(self._group_folder(name) / "cgroup.procs", str(pid))

    def members(self, name: str) -> list[int]:
        """See `DeviceCgroups.members`."""
        return [
            int(text) for text in (self._group_folder(name) / "cgroup.procs").read_text().split()
        ]

    def remove(self, name: str) -> bool:
        """See `DeviceCgroups.remove`."""
        try:
            os.rmdir(self._group_folder(name))
        except FileNotFoundError:
            pass
        except OSError:
            if not self.members(name):
                raise
            return False
        with contextlib.suppress(OSError):
            os.rmdir(self.path)  # removing the last group removes Podwright's folder too
        return True

    def _make_group_folder(self, name: str) -> str:
        os.makedirs(self._group_folder(name), exist_ok=True)
        return str(self._group_folder(name))

    def _group_folder(self, name: str) -> Path:
        return self.path / (_GROUP_NAME_PREFIX + quote(name, safe=""))


class CgroupsV1(_CgroupFolders):
    """Groups with the kernel's lists of devices, in a hierarchy with the controller `devices`."""

    def confine(
        self, name: str, denied: Collection[DeviceNumber], allowed: Collection[DeviceNumber]
    ) -> None:
        """See `DeviceCgroups.confine`."""
        folder = Path(self._make_group_folder(name))
        for file_name, numbers in (("devices.deny", denied), ("devices.allow", allowed)):
            for major, minor in numbers:  # one line for each write: the kernel reads no more
                _write_control_file(folder / file_name, f"c {major}:{minor} rwm")


class CgroupsV2(_CgroupFolders):
    """Groups with a program on the cgroup, which the kernel runs at each opening of a device."""

    def confine(
        self, name: str, denied: Collection[DeviceNumber], allowed: Collection[DeviceNumber]
    ) -> None:
        """See `DeviceCgroups.confine`."""
        from podwright.hosts._bpf import confine

        confine(self._make_group_folder(name), denied)


class RecordedCgroups:
    """A stand-in that only records. denied, inside: by group."""

    def __init__(self) -> None:
        self.denied: dict[str, set[DeviceNumber]] = {}
        self.inside: dict[str, list[int]] = {}

    def names(self) -> list[str]:
        """See `DeviceCgroups.names`."""
        return sorted(self.denied)

    def confine(
        self, name: str, denied: Collection[DeviceNumber], allowed: Collection[DeviceNumber]
    ) -> None:
        """See `DeviceCgroups.confine`."""
        self.denied[name] = (self.denied.get(name, set()) - {*allowed}) | {*denied}
        self.inside.setdefault(name, [])

    def enter(self, name: str, pid: int) -> None:
        """See `DeviceCgroups.enter`."""
        if name not in self.denied:
            raise FileNotFoundError(name)
        self.inside[name].append(pid)

    def members(self, name: str) -> list[int]:
        """See `DeviceCgroups.members`."""
        return list(self.inside[name])

    def remove(self, name: str) -> bool:
        """See `DeviceCgroups.remove`."""
        if self.inside.get(name):
            return False
        self.denied.pop(name, None)
        self.inside.pop(name, None)
        return True


def find_device_cgroups(
    folder: str = "podwright", mounts_path: str = "/proc/self/mountinfo"
) -> DeviceCgroups | None:
    """Return the device cgroups of this machine; None where none are mounted.

    Version 1 is chosen where both exist: such a machine counts its services' processes in version
    2, and would lose the processes that were moved there.
    """
    points = dict(_mounted(mounts_path))
    if "1" in points:
        return CgroupsV1(points["1"], folder)
    return CgroupsV2(points["2"], folder) if "2" in points else None


def _mounted(mounts_path: str) -> Iterator[tuple[str, str]]:
    with open(mounts_path, encoding="utf-8", errors="surrogateescape") as file:
        for mount_line in file:
            mount_text, _, filesystem_text = mount_line.partition(" - ")
            point, fields = mount_text.split()[4], filesystem_text.split()
            if fields[0] == "cgroup2":
                yield "2", point
            elif fields[0] == "cgroup" and "devices" in fields[2].split(","):
                yield "1", point


def _write_control_file(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # never to be created
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
