"""A sign of life on a terminal while a command waits longer than a second, or works for long.

`waiting` uses a timer signal instead of a thread. The signal costs nothing to import or to start,
and the waiting call does not have to know about it.
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


class ProgressLine:
    """A line on a terminal's standard error that is written anew. Nothing is printed elsewhere."""

    def __init__(self) -> None:
        self._out = sys.stderr if sys.stderr.isatty() else None

    def write(self, text: str) -> None:
        """Print a text over the former one."""
        if self._out is not None:
            self._out.write(f"\r{text}")
            self._out.flush()

    def clear(self) -> None:
        """Remove the line."""
        self.write("\x1b[K")
