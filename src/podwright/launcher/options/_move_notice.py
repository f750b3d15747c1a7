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
DEFAULT_MOVE_SIGNAL: Final = signal.SIGRTMIN + 10
#: The seconds that a move loses by default.
DEFAULT_MOVE_SECONDS: Final = 300.0
#: In the environment of instances that can be told: the signal's number.
MOVE_SIGNAL_VARIABLE: Final = "PODWRIGHT_MOVE_SIGNAL"
#: Seconds that the other instances have once one has ended in order to move.
ALL_MOVED_SECONDS: Final = 60.0
_UNUSABLE_MOVE_SIGNALS = (
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGCHLD,
    signal.SIGCONT,
    signal.SIGTSTP,
)


def signal_number(signal_text: str) -> int:
    """Return a signal that a program can catch, by its name or number. Raises ValueError."""
    signal_word = signal_text.strip().upper().removeprefix("SIG")
    if signal_word.startswith("RTMIN+") and signal_word[6:].isdecimal():
        signal_value = int(signal.SIGRTMIN) + int(signal_word[6:])
    elif signal_word.isdecimal():
        signal_value = int(signal_word)
    else:
        signal_value = getattr(signal, f"SIG{signal_word}", 0)
    if not 0 < signal_value <= signal.SIGRTMAX or signal_value in (
        *_UNUSABLE_MOVE_SIGNALS,
        signal.SIGINT,
        signal.SIGTERM,
    ):
        raise ValueError
    if signal.SIGSYS < signal_value < signal.SIGRTMIN:
        raise ValueError
    return int(signal_value)


def signal_name(signal_value: int) -> str:
    """Return a signal's name in a form that `signal_number` reads."""
    if signal_value >= signal.SIGRTMIN:
        return f"RTMIN+{signal_value - signal.SIGRTMIN}"
    return signal.Signals(signal_value).name.removeprefix("SIG")


def catches_signal(pid: int, signal_value: int) -> bool:
    """Return whether a process has a handler for a signal (SigCgt, proc(5))."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            for line in file.read().splitlines():
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (signal_value - 1) & 1)
    except (OSError, ValueError, IndexError):
        pass
    return False


def count_listening_instances(
    listening_processes: Iterable[Process], parent_by_pid: dict[int, int], script_pids: set[int]
) -> int:
    """Return how many instances have a process among `listening_processes`.

    script_pids: the processes in front of each instance. parent_by_pid: of all processes, by pid.
    """
    listening_instances = set()
    for listening_process in listening_processes:
        pid, script = listening_process.pid, 0
        while pid in parent_by_pid:
            pid = parent_by_pid[pid]
            script = pid if pid in script_pids else script
        if script:
            listening_instances.add(script)
    return len(listening_instances)
