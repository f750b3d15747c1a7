"""The cause of a run's end, in words and as an exit code (the design's table of poprun's exit
codes).
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: The exit code after --timeout, as in timeout(1).
TIMED_OUT = 124
_ABORT = re.compile(rb"MPI_ABORT was invoked on rank (\d+).*?rrorcode:? *(\d+)", re.DOTALL)
_NOTICED = re.compile(rb"noticed that process rank (\d+) .*?exited on\s+signal (\d+)", re.DOTALL)


class Cause(NamedTuple):
    """Why the run ended, unless it ended by itself. instance: the one that failed, or -1.

    restartable: whether a restart of all instances may succeed. moved: whether some or all
    instances ended so that the launch can move.
    """

    code: int
    text: str
    instance: int = -1
    restartable: bool = False
    moved: bool = False


def shell_code(code: int) -> int:
    """Return a process's exit code as shells do: 128 and the signal's number for one that was
    killed.

    code: as in subprocess, negative for a signal.
    """
    return code if code >= 0 else 128 - code


def described(code: int) -> str:
    """Return an exit code in words. A code above 128 stands for a signal, as in shells."""
    if code > 128:
        with contextlib.suppress(ValueError):
            name = signal.Signals(code - 128).name
            return f"was ended by signal {code - 128} ({name})"
    return f"ended with exit code {code}"


def aborted(words: bytes, instances: int) -> Cause | None:
    """Return the instance that called MPI_Abort, if mpirun names it. mpirun then ends all, in any
    order.
    """
    match = _ABORT.search(words)
    if not match or int(match[1]) >= instances:
        return None
    index, number = int(match[1]), int(match[2]) & 255
    return Cause(number or 1, f"instance {index} called MPI_Abort({number})", index, True)


def instance_failed(rank: int, places: Mapping[int, str], code: int) -> Cause:
    """Return the failure of an instance. places: the host of each rank, if there are several
    hosts.
    """
    place = f" on {places[rank]}" if rank in places else ""
    startable = code not in (126, 127)
    return Cause(code, f"instance {rank}{place} {described(code)}", rank, startable)


def noticed(words: bytes, instances: int, places: Mapping[int, str]) -> Cause | None:
    """Return the instance whose script a signal ended, if mpirun names it.

    Such a script reports nothing, and mpirun ends all other instances.
    """
    match = _NOTICED.search(words)
    if not match or int(match[1]) >= instances:
        return None
    return instance_failed(int(match[1]), places, 128 + int(match[2]))


def engine_gone(code: int, left: Sequence[int], words: bytes) -> Cause:
    """Return the end of mpirun before its instances. left: those that ran; none if none ever
    started.
    """
    number = shell_code(code)
    while_what = "before any instance started"
    if left:
        while_what = f"while these instances ran: {', '.join(map(str, left))}"
    last_words = words.decode(errors="replace").strip()
    text = f"mpirun {described(number)} {while_what}\n{last_words}".strip()
    return Cause(number or 1, text, restartable=bool(left))
