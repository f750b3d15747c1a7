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
#: The exit code (EX_TEMPFAIL) when a host, a process of the launcher's own, or the devices were
#: lost. A later run may succeed, so requeue rules ask for this one code.
TRY_AGAIN = 75
_ABORT_MESSAGE = re.compile(rb"MPI_ABORT was invoked on rank (\d+).*?rrorcode:? *(\d+)", re.DOTALL)
_SIGNAL_MESSAGE = re.compile(
    rb"noticed that process rank (\d+) .*?exited on\s+signal (\d+)", re.DOTALL
)


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


def described(exit_code: int) -> str:
    """Return an exit code in words. A code above 128 stands for a signal, as in shells."""
    if exit_code > 128:
        with contextlib.suppress(ValueError):
            name = signal.Signals(exit_code - 128).name
            return f"was ended by signal {exit_code - 128} ({name})"
    return f"ended with exit code {exit_code}"


def abort_cause(mpirun_output: bytes, instance_count: int) -> Cause | None:
    """Return the instance that called MPI_Abort, if mpirun names it. mpirun then ends all, in any
    order.
    """
    match = _ABORT_MESSAGE.search(mpirun_output)
    if not match or int(match[1]) >= instance_count:
        return None
    rank, code = int(match[1]), int(match[2]) & 255
    return Cause(code or 1, f"instance {rank} called MPI_Abort({code})", rank, True)


def instance_failed(rank: int, host_by_rank: Mapping[int, str], exit_code: int) -> Cause:
    """Return the failure of an instance. host_by_rank: the host of each rank, if there are several
    hosts.
    """
    text = f" on {host_by_rank[rank]}" if rank in host_by_rank else ""
    is_startable = exit_code not in (126, 127)
    return Cause(exit_code, f"instance {rank}{text} {described(exit_code)}", rank, is_startable)


def mpirun_notice_cause(
    mpirun_output: bytes, instance_count: int, host_by_rank: Mapping[int, str]
) -> Cause | None:
    """Return the instance whose script a signal ended, if mpirun names it.

    Such a script reports nothing, and mpirun ends all other instances.
    """
    match = _SIGNAL_MESSAGE.search(mpirun_output)
    if not match or int(match[1]) >= instance_count:
        return None
    return instance_failed(int(match[1]), host_by_rank, 128 + int(match[2]))


def mpirun_end_cause(return_code: int, running_ranks: Sequence[int], mpirun_output: bytes) -> Cause:
    """Return the end of mpirun before its instances. running_ranks: those that ran; none if none
    ever started. return_code: negative for a signal, which ends one of the launcher's processes.
    """
    exit_code = shell_code(return_code)
    when_text = "before any instance started"
    if running_ranks:
        when_text = f"while these instances ran: {', '.join(map(str, running_ranks))}"
    words = mpirun_output.decode(errors="replace").strip()
    cause_text = f"mpirun {described(exit_code)} {when_text}\n{words}".strip()
    cause_code = TRY_AGAIN if return_code < 0 else exit_code or 1
    return Cause(cause_code, cause_text, restartable=bool(running_ranks))
