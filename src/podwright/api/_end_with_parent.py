"""Processes that end with this program: each holds one end of a pipe, whose other end is here.

The kernel closes this end however the program ends. Forks of the program (multiprocessing) inherit
copies of it. The copies are closed in the forks, since those processes were not started for them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import weakref
from typing import IO

_HELD_PIPES: weakref.WeakSet[IO[bytes]] = weakref.WeakSet()


def hold(pipe_end: IO[bytes]) -> None:
    """Keep the writing end of a pipe open: the process at the other end ends with this process."""
    _HELD_PIPES.add(pipe_end)


def _close_held_pipes() -> None:
    for pipe_end in list(_HELD_PIPES):
        with contextlib.suppress(OSError, ValueError):
            pipe_end.close()


os.register_at_fork(after_in_child=_close_held_pipes)


def terminate_on_close(pipe_fd: int) -> None:
    """Have this process asked to end (SIGTERM) as soon as nobody has the other end of this pipe.

    The kernel sends the signal, so no thread has to watch the pipe.
    """
    fcntl.fcntl(pipe_fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe_fd, _F_SETSIG, signal.SIGTERM)
    flags = fcntl.fcntl(pipe_fd, fcntl.F_GETFL)
    fcntl.fcntl(pipe_fd, fcntl.F_SETFL, flags | os.O_ASYNC)
    poll = select.poll()
    poll.register(pipe_fd, 0)
    if poll.poll(0):  # the other end had closed before the signal was set up
        os.kill(os.getpid(), signal.SIGTERM)


#: A constant of Linux's <fcntl.h> that Python's module does not name.
_F_SETSIG = 10
