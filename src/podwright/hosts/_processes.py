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
_OF_JOBS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)


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
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := _read(int(name))):
            processes_by_id[process.pid] = process
    return processes_by_id


def _read(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # The name is in brackets and may contain anything, also brackets and blanks.
            words = file.read().rpartition(b")")[2].split()
        return Process(pid, int(words[1]), int(words[19]), words[0].decode())
    except (OSError, IndexError, ValueError):
        return None


def descendants(root: int, *, spare: Collection[int] = ()) -> list[Process]:
    """Return all living processes below `root`, parents first.

    spare: pids that are left out, with all that is below them.
    """
    children: dict[int, list[Process]] = {}
    for process in processes().values():
        children.setdefault(process.parent, []).append(process)
    below: list[Process] = []
    line = [root]
    for pid in line:
        for process in children.get(pid, ()):
            if process.pid in spare or process.pid == root:
                continue
            line.append(process.pid)
            if not process.dead:
                below.append(process)
    return below


def children(pid: int) -> list[int]:
    """Return the pids of a process's own children. It is cheap where the kernel lists them."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb", buffering=0) as file:
            return [int(word) for word in file.read().split()]
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


def marked(variable: str, value: str) -> list[Process]:
    """Return this user's processes that were started with `variable=value` in their environment."""
    entry = f"{variable}={value}".encode()
    matching = []
    for process in processes().values():
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/environ", "rb") as file:
            if entry in file.read().split(b"\0"):
                matching.append(process)
    return matching


def run_lives(variable: str, value: str) -> bool:
    """Return whether any process shows that a launch still lives. value: the launch's name.

    Such are the processes with its mark in their environment, those in a cgroup of its name, and
    its watchers, which have a folder of its name open. They are this user's; for root, every
    user's. The newest are looked at first: those of a launch that has just begun are among them.
    """
    entry = f"{variable}={value}".encode()
    for pid in sorted(map(int, filter(str.isdigit, os.listdir("/proc"))), reverse=True):
        if not (_has_mark(pid, entry) or _is_in_group(pid, value) or has_open(pid, value)):
            continue
        process = _read(pid)
        if process is not None and not process.dead:
            return True
    return False


def _has_mark(pid: int, entry: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return entry in file.read().split(b"\0")
    except OSError:
        return False


def _is_in_group(pid: int, name: str) -> bool:
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            return any(name in line.rstrip("\n").split("/") for line in file)
    except OSError:
        return False


def has_open(pid: int, name: str) -> bool:
    """Return whether a process has a file or folder of this name open, wherever that is or was."""
    try:
        opened = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for handle in opened:
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/{pid}/fd/{handle}").removesuffix(" (deleted)")
            if os.path.basename(path) == name:
                return True
    return False


def kill_all(victims: Iterable[Process], number: int) -> None:
    """Send a signal to each process that still has the same start time."""
    for victim in victims:
        now = _read(victim.pid)
        if now is None or now.start != victim.start:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(victim.pid, number)
            if number not in _OF_JOBS and now.state == "T":
                os.kill(victim.pid, signal.SIGCONT)  # a stopped process handles no other signal


def see_end(pid: int, within: float) -> None:
    """Wait for a child to end. After `within` seconds kill it, since it may be stopped."""
    until = time.monotonic() + within
    with contextlib.suppress(ChildProcessError):
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() > until:
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
