"""How instances are told that their launch is to move, and how it is seen that they can be.

An instance can be moved once a process of it catches the signal: the kernel says so, whatever the
program is written in (`popdist.onMove`, a trap of a shell's). Only processes that catch it get it,
so it ends nobody by accident. An instance that was told writes what it needs, and ends with MOVED;
any other code means what it always means, and 0 that its work is done.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from typing import Final

from podwright.hosts import Process

#: The exit code of an instance that ended in order to move (EX_TEMPFAIL: it is to go on later).
MOVED: Final = os.EX_TEMPFAIL
#: Used for nothing else: a program that catches it has been told what it is for.
MOVE_SIGNAL: Final = signal.SIGRTMIN + 10
#: What a move loses, in seconds, where nobody has said.
MOVE_SECONDS: Final = 300.0
#: In the environment of instances that can be told: the signal's number.
MOVE_VARIABLE: Final = "PODWRIGHT_MOVE_SIGNAL"
#: Seconds that the others have once one instance has ended in order to move.
TOGETHER: Final = 60.0
_NEVER = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGCONT, signal.SIGTSTP)


def signal_number(text: str) -> int:
    """A signal that a program can catch, by its name or number. Raises ValueError."""
    word = text.strip().upper().removeprefix("SIG")
    if word.startswith("RTMIN+") and word[6:].isdecimal():
        number = int(signal.SIGRTMIN) + int(word[6:])
    elif word.isdecimal():
        number = int(word)
    else:
        number = getattr(signal, f"SIG{word}", 0)
    if not 0 < number <= signal.SIGRTMAX or number in (*_NEVER, signal.SIGINT, signal.SIGTERM):
        raise ValueError
    if signal.SIGSYS < number < signal.SIGRTMIN:
        raise ValueError
    return int(number)


def signal_name(number: int) -> str:
    """As `signal_number` reads it."""
    if number >= signal.SIGRTMIN:
        return f"RTMIN+{number - signal.SIGRTMIN}"
    return signal.Signals(number).name.removeprefix("SIG")


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal (SigCgt, proc(5))."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            for line in file.read().splitlines():
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except (OSError, ValueError, IndexError):
        pass
    return False


def instances_of(listeners: Iterable[Process], parents: dict[int, int], scripts: set[int]) -> int:
    """How many instances have a process among `listeners`. scripts: what stands in front of each;
    parents: of all processes, by pid."""
    found = set()
    for listener in listeners:
        pid, top = listener.pid, 0
        while pid in parents:
            pid = parents[pid]
            top = pid if pid in scripts else top
        if top:
            found.add(top)
    return len(found)
