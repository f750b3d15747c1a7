"""How instances are told that their launch will move, and how poprun detects that they can be told.

An instance can be moved once a process of it catches the signal. The kernel shows that, whatever
language the program is written in (`popdist.onMove`, a trap of a shell's). Only processes that
catch the signal get it, so it ends none by accident. An instance that was told saves its state and
ends with MOVED. Any other code means what it always means, and 0 means that its work is done.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from typing import Final

from podwright.hosts import Process

#: The exit code of an instance that ended in order to move (EX_TEMPFAIL: it continues later).
MOVED: Final = os.EX_TEMPFAIL
#: The default signal, which nothing else uses: a program that catches it has been written for
#: moves.
MOVE_SIGNAL: Final = signal.SIGRTMIN + 10
#: The seconds that a move loses by default.
MOVE_SECONDS: Final = 300.0
#: In the environment of instances that can be told: the signal's number.
MOVE_VARIABLE: Final = "PODWRIGHT_MOVE_SIGNAL"
#: Seconds that the other instances have once one has ended in order to move.
TOGETHER: Final = 60.0
_NEVER = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGCONT, signal.SIGTSTP)


def signal_number(text: str) -> int:
    """Return a signal that a program can catch, by its name or number. Raises ValueError."""
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
    """Return a signal's name in a form that `signal_number` reads."""
    if number >= signal.SIGRTMIN:
        return f"RTMIN+{number - signal.SIGRTMIN}"
    return signal.Signals(number).name.removeprefix("SIG")


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal (SigCgt, proc(5))."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            for line in file.read().splitlines():
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except (OSError, ValueError, IndexError):
        pass
    return False


def instances_of(listeners: Iterable[Process], parents: dict[int, int], scripts: set[int]) -> int:
    """Return how many instances have a process among `listeners`.

    scripts: the processes in front of each instance. parents: of all processes, by pid.
    """
    instances = set()
    for listener in listeners:
        pid, top = listener.pid, 0
        while pid in parents:
            pid = parents[pid]
            top = pid if pid in scripts else top
        if top:
            instances.add(top)
    return len(instances)
