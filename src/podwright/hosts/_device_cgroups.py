"""Which device files the processes of a group may open, as the kernel enforces it: the devices part
of cgroups, in both of its versions, behind one seam.

A group is a folder below one of ours. Processes are moved into it and their children begin there;
a user who is not root cannot move out. What is refused stays refused whoever made the group ends,
and is gone with the group.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

Number = tuple[int, int]  #: major and minor of a character device
_PREFIX = "p-"  # a group may be called as one of the kernel's own files


class DeviceCgroups(Protocol):
    """Groups by name. Every call but `names` raises OSError."""

    def names(self) -> list[str]:
        """The groups there are."""
        ...

    def confine(self, name: str, denied: Collection[Number], allowed: Collection[Number]) -> None:
        """Make the group if it is not there. Nothing in it opens what is denied; what is allowed
        may have been denied before."""
        ...

    def enter(self, name: str, pid: int) -> None:
        """Move a process into the group."""
        ...

    def members(self, name: str) -> list[int]:
        """The processes in it."""
        ...

    def remove(self, name: str) -> bool:
        """Remove the group; one that is gone is no fault. False: processes are in it."""
        ...


class _Folders:
    """Groups as folders. root: where the hierarchy is mounted. folder: ours in it."""

    def __init__(self, root: str, folder: str = "podwright") -> None:
        self.path = Path(root) / folder

    def names(self) -> list[str]:
        """See `DeviceCgroups.names`."""
        try:
            found = os.listdir(self.path)
        except OSError:
            return []
        return sorted(unquote(n.removeprefix(_PREFIX)) for n in found if n.startswith(_PREFIX))

    def enter(self, name: str, pid: int) -> None:
        """See `DeviceCgroups.enter`."""
        _write(self._of(name) / "cgroup.procs", str(pid))

    def members(self, name: str) -> list[int]:
        """See `DeviceCgroups.members`."""
        return [int(word) for word in (self._of(name) / "cgroup.procs").read_text().split()]

    def remove(self, name: str) -> bool:
        """See `DeviceCgroups.remove`."""
        try:
            os.rmdir(self._of(name))
        except FileNotFoundError:
            pass
        except OSError:
            if not self.members(name):
                raise
            return False
        with contextlib.suppress(OSError):
            os.rmdir(self.path)  # the last takes our own folder along
        return True

    def _made(self, name: str) -> str:
        os.makedirs(self._of(name), exist_ok=True)
        return str(self._of(name))

    def _of(self, name: str) -> Path:
        return self.path / (_PREFIX + quote(name, safe=""))


class CgroupsV1(_Folders):
    """Lists of the kernel's own, in a hierarchy with the controller `devices`."""

    def confine(self, name: str, denied: Collection[Number], allowed: Collection[Number]) -> None:
        """See `DeviceCgroups.confine`."""
        folder = Path(self._made(name))
        for file, numbers in (("devices.deny", denied), ("devices.allow", allowed)):
            for major, minor in numbers:  # one at a time: the kernel reads no more
                _write(folder / file, f"c {major}:{minor} rwm")


class CgroupsV2(_Folders):
    """A program on the cgroup, which is asked at each opening."""

    def confine(self, name: str, denied: Collection[Number], allowed: Collection[Number]) -> None:
        """See `DeviceCgroups.confine`."""
        from podwright.hosts._bpf import confine

        confine(self._made(name), denied)


class RecordedCgroups:
    """A stand-in that only remembers. denied, inside: by group."""

    def __init__(self) -> None:
        self.denied: dict[str, set[Number]] = {}
        self.inside: dict[str, list[int]] = {}

    def names(self) -> list[str]:
        """See `DeviceCgroups.names`."""
        return sorted(self.denied)

    def confine(self, name: str, denied: Collection[Number], allowed: Collection[Number]) -> None:
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
    folder: str = "podwright", mounts: str = "/proc/self/mountinfo"
) -> DeviceCgroups | None:
    """Those of this machine; None where none are mounted.

    Version 1 where both are: a machine that has it counts its services' processes in version 2,
    and processes that were moved there would be lost to it.
    """
    found = dict(_mounted(mounts))
    if "1" in found:
        return CgroupsV1(found["1"], folder)
    return CgroupsV2(found["2"], folder) if "2" in found else None


def _mounted(mounts: str) -> Iterator[tuple[str, str]]:
    with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            where, words = left.split()[4], right.split()
            if words[0] == "cgroup2":
                yield "2", where
            elif words[0] == "cgroup" and "devices" in words[2].split(","):
                yield "1", where


def _write(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # never to be created
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)
