"""A sign of life on a terminal while a command waits longer than a second.

It uses a timer signal instead of a thread. The signal costs nothing to import or to start, and the
waiting call does not have to know about it.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType

_CLEAR = "\r\x1b[K"


@contextlib.contextmanager
def waiting(subject: str) -> Iterator[None]:
    """Print `what … N s` on standard error each second, if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    start = time.monotonic()
    visible = False

    def tick(_number: int, _frame: FrameType | None) -> None:
        nonlocal visible
        visible = True
        sys.stderr.write(f"{_CLEAR}{subject} … {time.monotonic() - start:.0f} s")
        sys.stderr.flush()

    before = signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if visible:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
