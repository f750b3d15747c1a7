"""Trees of processes, from /proc: who descends from whom, and how to end all of them.

A parent that dies hands its children to the nearest ancestor that declared itself their
subreaper, or to init. Whoever is subreaper therefore finds every descendant below itself, also
those that called setsid or forked twice; groups and sessions do not show that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
#: What reaches stopped processes too, or is to leave them stopped.
_OF_JOBS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)


class Process(NamedTuple):
    """One process. start: clock ticks since boot; with the pid it names the process for good.

    state: the letter of /proc/PID/stat; Z is dead, and waits for its parent to notice.
    """

    pid: int
    parent: int
    start: int
    state: str

    @property
    def dead(self) -> bool:
        """It runs no more, though its parent has not yet asked how it ended."""
        return self.state in "ZX"


def become_subreaper() -> None:
    """Orphans among our descendants become our children. Not inherited by children."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        error = ctypes.get_errno()
        raise OSError(error, f"cannot become a subreaper: {os.strerror(error)}")


def end_with_parent(parent: int) -> None:
    """Be killed by the kernel when the thread that forked this process ends, stopped or not.

    parent: its pid; if it is gone already, this process ends at once. Cleared by a setuid program,
    not inherited (prctl(2)).
    """
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def processes() -> dict[int, Process]:
    """All processes of this host that we may see, by pid. Not one instant: they come and go."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := _read(int(name))):
            found[process.pid] = process
    return found


def _read(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # The name stands in brackets and may hold anything, brackets and blanks as well.
            words = file.read().rpartition(b")")[2].split()
        return Process(pid, int(words[1]), int(words[19]), words[0].decode())
    except (OSError, IndexError, ValueError):
        return None


def descendants(root: int, *, spare: Collection[int] = ()) -> list[Process]:
    """Everything alive below `root`, parents first. What is below a spared pid is spared too."""
    children: dict[int, list[Process]] = {}
    for process in processes().values():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    line = [root]
    for pid in line:
        for process in children.get(pid, ()):
            if process.pid in spare or process.pid == root:
                continue
            line.append(process.pid)
            if not process.dead:
                found.append(process)
    return found


def children(pid: int) -> list[int]:
    """The pids of a process's own children. Cheap where the kernel lists them."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb", buffering=0) as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return [process.pid for process in processes().values() if process.parent == pid]


def has_children() -> bool:
    """Whether this process has any child, running or not yet reaped. One system call."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def marked(variable: str, value: str) -> list[Process]:
    """The processes of this user that were started with `variable=value` in their environment."""
    entry = f"{variable}={value}".encode()
    found = []
    for process in processes().values():
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/environ", "rb") as file:
            if entry in file.read().split(b"\0"):
                found.append(process)
    return found


def kill_all(victims: Iterable[Process], number: int) -> None:
    """Send a signal to each that is still the process it was."""
    for victim in victims:
        now = _read(victim.pid)
        if now is None or now.start != victim.start:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(victim.pid, number)
            if number not in _OF_JOBS and now.state == "T":
                os.kill(victim.pid, signal.SIGCONT)  # a stopped process hears nothing else


def see_end(pid: int, within: float) -> None:
    """Wait for a child to end; after `within` seconds kill it, for it may have been stopped."""
    until = time.monotonic() + within
    with contextlib.suppress(ChildProcessError):
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)


def reap(ended: Callable[[int, int], None]) -> None:
    """Take note of children that ended: `ended(pid, exit code)`, -N for signal N."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        ended(pid, os.waitstatus_to_exitcode(status))
