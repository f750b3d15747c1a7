"""What ends with this program: processes that hold one end of a pipe, whose other end is ours.

The kernel closes ours however this program ends. Its forks (multiprocessing) have copies, which
are closed in them: they are not what those processes were started for.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import weakref
from typing import IO

_HELD: weakref.WeakSet[IO[bytes]] = weakref.WeakSet()


def hold(end: IO[bytes]) -> None:
    """The writing end of a pipe: what listens at the other one ends with this process."""
    _HELD.add(end)


def _forked() -> None:
    for end in list(_HELD):
        with contextlib.suppress(OSError, ValueError):
            end.close()


os.register_at_fork(after_in_child=_forked)


def end_with(reading: int) -> None:
    """Be asked to end (SIGTERM) as soon as nobody has the other end of this pipe any more.

    The kernel sends the signal: no thread of ours has to look.
    """
    fcntl.fcntl(reading, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(reading, _F_SETSIG, signal.SIGTERM)
    flags = fcntl.fcntl(reading, fcntl.F_GETFL)
    fcntl.fcntl(reading, fcntl.F_SETFL, flags | os.O_ASYNC)
    poll = select.poll()
    poll.register(reading, 0)
    if poll.poll(0):  # it went before we said so
        os.kill(os.getpid(), signal.SIGTERM)


#: <fcntl.h> of Linux; Python's module does not name it.
_F_SETSIG = 10
