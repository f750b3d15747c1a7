"""A sign of life on a terminal while a command waits longer than a second.

A timer signal, not a thread: it costs nothing to import or to start, and the call that waits
needs to know nothing of it.
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
def waiting(what: str) -> Iterator[None]:
    """While this lasts, `what … N s` on standard error each second, if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    start = time.monotonic()
    shown = False

    def tick(_number: int, _frame: FrameType | None) -> None:
        nonlocal shown
        shown = True
        sys.stderr.write(f"{_CLEAR}{what} … {time.monotonic() - start:.0f} s")
        sys.stderr.flush()

    before = signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
