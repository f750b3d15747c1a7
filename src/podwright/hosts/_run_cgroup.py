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

_MOUNTS, _OWN_CGROUP_PATH = "/proc/self/mountinfo", "/proc/self/cgroup"
_KILL_FILE, _PROCESSES_FILE, _EVENTS_FILE = "cgroup.kill", "cgroup.procs", "cgroup.events"


def make_group(
    group_name: str,
    environ: Mapping[str, str],
    *,
    mounts_path: str = _MOUNTS,
    cgroups_path: str = _OWN_CGROUP_PATH,
) -> str:
    """Make a group below the one of this process. Return its path, or empty if none can be made.

    mounts_path, cgroups_path: the kernel's lists of mounts and of the cgroups of this process.
    """
    if "SLURM_JOB_ID" in environ:
        return ""
    try:
        own_group = _own_group_path(mounts_path, cgroups_path)
        # Moving a process from this group to one below needs write access to this file
        # (cgroups(7), "delegation").
        if not own_group or not os.access(os.path.join(own_group, _PROCESSES_FILE), os.W_OK):
            return ""
        group_path = os.path.join(own_group, group_name)
        os.mkdir(group_path)
    except OSError:
        return ""
    if os.access(os.path.join(group_path, _KILL_FILE), os.W_OK):
        return group_path
    remove_group(group_path)
    return ""


def enter_group(group_path: str) -> None:
    """Move this process into the group; its children start there. Raises OSError."""
    _write_control_file(os.path.join(group_path, _PROCESSES_FILE), "0")


def leave_group(
    group_name: str, *, mounts_path: str = _MOUNTS, cgroups_path: str = _OWN_CGROUP_PATH
) -> str:
    """Move this process out of the group of that name, so that it can end the group.

    Return its path.

    The path is empty if this process is not in the group.
    """
    try:
        own_group = _own_group_path(mounts_path, cgroups_path)
        if os.path.basename(own_group) != group_name:
            return ""
        enter_group(os.path.dirname(own_group))
    except OSError:
        return ""
    return own_group


def kill_group(group_path: str) -> None:
    """Kill all processes in the group at once. A group that is gone is not an error."""
    with contextlib.suppress(OSError):
        _write_control_file(os.path.join(group_path, _KILL_FILE), "1")


def group_is_empty(group_path: str) -> bool:
    """Return whether the kernel reports no process in the group or below; a gone one is empty."""
    try:
        with open(os.path.join(group_path, _EVENTS_FILE), encoding="ascii") as file:
            return "populated 0" in file.read()
    except OSError:
        return True


def in_group(group_path: str) -> list[Process]:
    """Return the processes in the group and below it.

    Unlike `group_is_empty`, it is not an atomic reading.
    """
    if group_is_empty(group_path):
        return []
    pids: set[int] = set()
    for folder, _, file_names in os.walk(group_path):
        if _PROCESSES_FILE in file_names:
            with (
                contextlib.suppress(OSError),
                open(os.path.join(folder, _PROCESSES_FILE), encoding="ascii") as file,
            ):
                pids.update(map(int, file.read().split()))
    return [process for pid, process in processes().items() if pid in pids]


def remove_group(group_path: str) -> None:
    """Remove the group and those below it. A group with living processes stays."""
    for folder, _, _ in os.walk(group_path, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _own_group_path(mounts_path: str, cgroups_path: str) -> str:
    """Return the folder of the version 2 cgroup of this process; empty if there is none."""
    with open(cgroups_path, encoding="utf-8", errors="surrogateescape") as file:
        cgroup_lines = [line.rstrip("\n") for line in file if line.startswith("0::")]
    if not cgroup_lines:
        return ""
    cgroup_path = cgroup_lines[0].removeprefix("0::")
    with open(mounts_path, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            mount_text, _, filesystem_text = line.partition(" - ")
            if filesystem_text.split()[0] != "cgroup2":
                continue
            mount_root, mount_point = mount_text.split()[3:5]
            relative_path = os.path.relpath(cgroup_path, mount_root)
            if not relative_path.startswith(".."):
                return os.path.normpath(os.path.join(mount_point, relative_path))
    return ""


def _write_control_file(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
