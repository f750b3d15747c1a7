"""A cgroup for all processes of a run, below this process's own if that one is delegated.

systemd delegates it (`Delegate=yes`), or a container's manager. One write to `cgroup.kill` (Linux
5.14) ends all processes in it, however fast they fork, and even if they left their session, parent
or environment. The kernel also says whether it is empty, where a look at /proc shows each process
at a different moment. The cgroup does not end by itself: a process must be left to write. Only
version 2 has it (cgroups(7)).

In a job of Slurm's none is made: Slurm ends the processes in its own cgroups, and does not look
below them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from podwright.hosts._processes import Process, processes

_MOUNTS, _OWN = "/proc/self/mountinfo", "/proc/self/cgroup"
_KILL, _PROCESSES, _EVENTS = "cgroup.kill", "cgroup.procs", "cgroup.events"


def make_group(
    name: str, environ: Mapping[str, str], *, mounts: str = _MOUNTS, own: str = _OWN
) -> str:
    """Make a group below the one of this process. Return its path, or empty if none can be made.

    mounts, own: the kernel's lists of mounts and of the cgroups of this process.
    """
    if "SLURM_JOB_ID" in environ:
        return ""
    try:
        place = _own_place(mounts, own)
        # Moving a process from this group to one below needs write access to this file
        # (cgroups(7), "delegation").
        if not place or not os.access(os.path.join(place, _PROCESSES), os.W_OK):
            return ""
        path = os.path.join(place, name)
        os.mkdir(path)
    except OSError:
        return ""
    if os.access(os.path.join(path, _KILL), os.W_OK):
        return path
    remove_group(path)
    return ""


def enter_group(path: str) -> None:
    """Move this process into the group; its children start there. Raises OSError."""
    _write(os.path.join(path, _PROCESSES), "0")


def leave_group(name: str, *, mounts: str = _MOUNTS, own: str = _OWN) -> str:
    """Move this process out of the group of that name, so that it can end the group.

    Return its path.

    The path is empty if this process is not in the group.
    """
    try:
        place = _own_place(mounts, own)
        if os.path.basename(place) != name:
            return ""
        enter_group(os.path.dirname(place))
    except OSError:
        return ""
    return place


def kill_group(path: str) -> None:
    """Kill all processes in the group at once. A group that is gone is not an error."""
    with contextlib.suppress(OSError):
        _write(os.path.join(path, _KILL), "1")


def group_is_empty(path: str) -> bool:
    """Return whether the kernel reports no process in the group or below; a gone one is empty."""
    try:
        with open(os.path.join(path, _EVENTS), encoding="ascii") as file:
            return "populated 0" in file.read()
    except OSError:
        return True


def in_group(path: str) -> list[Process]:
    """Return the processes in the group and below it.

    Unlike `group_is_empty`, it is not an atomic reading.
    """
    if group_is_empty(path):
        return []
    pids: set[int] = set()
    for folder, _, files in os.walk(path):
        if _PROCESSES in files:
            with (
                contextlib.suppress(OSError),
                open(os.path.join(folder, _PROCESSES), encoding="ascii") as file,
            ):
                pids.update(map(int, file.read().split()))
    return [process for pid, process in processes().items() if pid in pids]


def remove_group(path: str) -> None:
    """Remove the group and those below it. A group with living processes stays."""
    for folder, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _own_place(mounts: str, own: str) -> str:
    """Return the folder of the version 2 cgroup of this process; empty if there is none."""
    with open(own, encoding="utf-8", errors="surrogateescape") as file:
        lines = [line.rstrip("\n") for line in file if line.startswith("0::")]
    if not lines:
        return ""
    where = lines[0].removeprefix("0::")
    with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            if right.split()[0] != "cgroup2":
                continue
            root, mounted = left.split()[3:5]
            below = os.path.relpath(where, root)
            if not below.startswith(".."):
                return os.path.normpath(os.path.join(mounted, below))
    return ""


def _write(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)
