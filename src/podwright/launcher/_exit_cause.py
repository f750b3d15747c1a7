"""Why a run ended, in words and as an exit code (the design's table of poprun's exit codes)."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Sequence
from typing import NamedTuple

#: The exit code after --timeout, as timeout(1) has it.
TIMED_OUT = 124
_ABORT = re.compile(rb"MPI_ABORT was invoked on rank (\d+).*?rrorcode:? *(\d+)", re.DOTALL)


class Cause(NamedTuple):
    """Why the run ended, if not by itself. instance: the one that failed, or -1.

    again: it may go better if all instances are started once more. moved: they ended so that the
    launch can move, or some of them did.
    """

    code: int
    text: str
    instance: int = -1
    again: bool = False
    moved: bool = False


def described(code: int) -> str:
    """An exit code in words; above 128 it is a signal's, as shells have it."""
    if code > 128:
        with contextlib.suppress(ValueError):
            name = signal.Signals(code - 128).name
            return f"was ended by signal {code - 128} ({name})"
    return f"ended with exit code {code}"


def aborted(words: bytes, instances: int) -> Cause | None:
    """The instance that called MPI_Abort, if mpirun says so: it ends them all, in any order."""
    found = _ABORT.search(words)
    if not found or int(found[1]) >= instances:
        return None
    index, number = int(found[1]), int(found[2]) & 255
    return Cause(number or 1, f"instance {index} called MPI_Abort({number})", index, True)


def engine_gone(code: int, left: Sequence[int], words: bytes) -> Cause:
    """mpirun ended before its instances. left: those that ran; none if none ever started."""
    number = code if code >= 0 else 128 - code
    while_what = "before any instance started"
    if left:
        while_what = f"while these instances ran: {', '.join(map(str, left))}"
    said = words.decode(errors="replace").strip()
    text = f"mpirun {described(number)} {while_what}\n{said}".strip()
    return Cause(number or 1, text, again=bool(left))
