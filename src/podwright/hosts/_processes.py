"""Trees of processes, from /proc: who descends from whom, and how to end all of them.

When a parent dies, its children go to the nearest ancestor that has declared itself a subreaper, or
to init. A subreaper therefore finds every descendant below itself, also those that called setsid or
forked twice. Process groups and sessions do not show those.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
#: Signals that reach stopped processes too, or that are meant to leave them stopped.
_JOB_CONTROL_SIGNALS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)


class Process(NamedTuple):
    """One process. start: clock ticks since boot; with the pid it identifies the process uniquely.

    state: the letter of /proc/PID/stat; Z means dead and not yet reaped by its parent.
    """

    pid: int
    parent: int
    start: int
    state: str

    @property
    def dead(self) -> bool:
        """Whether the process has ended, though its parent has not reaped it yet."""
        return self.state in "ZX"


def become_subreaper() -> None:
    """Make orphans among this process's descendants its children. Children do not inherit this."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        error = ctypes.get_errno()
        raise OSError(error, f"cannot become a subreaper: {os.strerror(error)}")


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the thread that forked it ends, stopped or not.

    parent: the pid of the parent; if it is gone already, this process ends at once. A setuid
    program clears the setting, and children do not inherit it (prctl(2)).
    """
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def processes() -> dict[int, Process]:
    """Return all visible processes of this host, by pid. They come and go while they are read."""
    processes_by_id = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (process := _read_process(int(entry))):
            processes_by_id[process.pid] = process
    return processes_by_id


def _read_process(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # The name is in brackets and may contain anything, also brackets and blanks.
            fields = file.read().rpartition(b")")[2].split()
        return Process(pid, int(fields[1]), int(fields[19]), fields[0].decode())
    except (OSError, IndexError, ValueError):
        return None


def descendants(root_pid: int, *, spare: Collection[int] = ()) -> list[Process]:
    """Return all living processes below `root_pid`, parents first.

    spare: pids that are left out, with all that is below them.
    """
    children_by_parent: dict[int, list[Process]] = {}
    for process in processes().values():
        children_by_parent.setdefault(process.parent, []).append(process)
    living_descendants: list[Process] = []
    pid_queue = [root_pid]
    for pid in pid_queue:
        for process in children_by_parent.get(pid, ()):
            if process.pid in spare or process.pid == root_pid:
                continue
            pid_queue.append(process.pid)
            if not process.dead:
                living_descendants.append(process)
    return living_descendants


def children(pid: int) -> list[int]:
    """Return the pids of a process's own children. It is cheap where the kernel lists them."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb", buffering=0) as file:
            return [int(text) for text in file.read().split()]
    except OSError:
        return [process.pid for process in processes().values() if process.parent == pid]


def has_children() -> bool:
    """Return whether this process has any child, running or not yet reaped.

    It is one system call.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def marked(variable_name: str, value: str) -> list[Process]:
    """Return this user's processes that were started with `variable=value` in their environment."""
    entry = f"{variable_name}={value}".encode()
    marked_processes = []
    for process in processes().values():
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/environ", "rb") as file:
            if entry in file.read().split(b"\0"):
                marked_processes.append(process)
    return marked_processes


def run_lives(variable_name: str, launch_name: str) -> bool:
    """Return whether any process shows that a launch still lives. variable_name: that of its mark.

    Such are the processes with its mark in their environment, those in a cgroup of its name, and
    its watchers, which have a folder of its name open. They are this user's; for root, every
    user's. The newest are looked at first: those of a launch that has just begun are among them.
    """
    environment_entry = f"{variable_name}={launch_name}".encode()
    for pid in sorted(map(int, filter(str.isdigit, os.listdir("/proc"))), reverse=True):
        if not (
            _has_environment_entry(pid, environment_entry)
            or _is_in_group(pid, launch_name)
            or has_open(pid, launch_name)
        ):
            continue
        process = _read_process(pid)
        if process is not None and not process.dead:
            return True
    return False


def _has_environment_entry(pid: int, environment_entry: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return environment_entry in file.read().split(b"\0")
    except OSError:
        return False


def _is_in_group(pid: int, group_name: str) -> bool:
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            return any(group_name in line.rstrip("\n").split("/") for line in file)
    except OSError:
        return False


def has_open(pid: int, file_name: str) -> bool:
    """Return whether a process has a file or folder of this name open, wherever that is or was."""
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/{pid}/fd/{descriptor}").removesuffix(" (deleted)")
            if os.path.basename(path) == file_name:
                return True
    return False


def kill_all(victims: Iterable[Process], signal_number: int) -> None:
    """Send a signal to each process that still has the same start time."""
    for victim in victims:
        current = _read_process(victim.pid)
        if current is None or current.start != victim.start:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(victim.pid, signal_number)
            if signal_number not in _JOB_CONTROL_SIGNALS and current.state == "T":
                os.kill(victim.pid, signal.SIGCONT)  # a stopped process handles no other signal


def see_end(pid: int, timeout_s: float) -> None:
    """Wait for a child to end. After `timeout_s` seconds kill it, since it may be stopped."""
    deadline = time.monotonic() + timeout_s
    with contextlib.suppress(ChildProcessError):
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)


def reap(on_exit: Callable[[int, int], None]) -> None:
    """Reap children that have ended: call `on_exit(pid, exit code)`, with -N for signal N."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        on_exit(pid, os.waitstatus_to_exitcode(status))
