"""A cgroup below our own for all that a run starts, where ours was handed to us.

Delegated by systemd (`Delegate=yes`), or by a container's manager. What is in it is ended by one
write to `cgroup.kill` (Linux 5.14), however fast it forks and whatever it left: session, parent,
environment. And it is known to be empty, where a look at /proc shows one moment after another. It
does not end by itself: somebody has to be left to write. Version 2 alone has it (cgroups(7)).

In a job of Slurm's there is none: Slurm ends what is in its own ones, and does not look below.
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
    """A new group below the one that this process is in; its path, or nothing: none is to be had.

    mounts, own: the kernel's lists of mounts and of the cgroups of this process.
    """
    if "SLURM_JOB_ID" in environ:
        return ""
    try:
        place = _own_place(mounts, own)
        # Who may write this may move a process from here to below (cgroups(7), "delegation").
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
    """Move this process into it; what it starts begins there. Raises OSError."""
    _write(os.path.join(path, _PROCESSES), "0")


def leave_group(name: str, *, mounts: str = _MOUNTS, own: str = _OWN) -> str:
    """Move this process out of the group of that name, to be able to end it; its path.

    Nothing, if this process is not in it.
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
    """End all in it at once; no error if it is gone."""
    with contextlib.suppress(OSError):
        _write(os.path.join(path, _KILL), "1")


def group_is_empty(path: str) -> bool:
    """Whether nothing lives in it and below it, or it is gone: the kernel's word, no guess."""
    try:
        with open(os.path.join(path, _EVENTS), encoding="ascii") as file:
            return "populated 0" in file.read()
    except OSError:
        return True


def in_group(path: str) -> list[Process]:
    """The processes in it and below it. Not one instant: `group_is_empty` is."""
    if group_is_empty(path):
        return []
    inside: set[int] = set()
    for folder, _, files in os.walk(path):
        if _PROCESSES in files:
            with (
                contextlib.suppress(OSError),
                open(os.path.join(folder, _PROCESSES), encoding="ascii") as file,
            ):
                inside.update(map(int, file.read().split()))
    return [process for pid, process in processes().items() if pid in inside]


def remove_group(path: str) -> None:
    """Remove it and those below it; what still lives keeps its own."""
    for folder, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _own_place(mounts: str, own: str) -> str:
    """The folder of the cgroup of version 2 that this process is in."""
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
