"""Signals to poprun: at first they interrupt it; while instances run, they are numbers to be
read.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

#: Signals that are passed on to all instances.
FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)
#: Signals that end a run.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal that arrived before there was anything to end."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"signal {number}")


class Signals:
    """Signals: at first they interrupt; while instances run they are numbers to read."""

    def __init__(self) -> None:
        self._raise = True
        self._wake, self._poke = os.pipe()
        for handle in self.handles:
            os.set_blocking(handle, False)

    @property
    def handles(self) -> tuple[int, int]:
        return self._wake, self._poke

    def collect(self) -> int:
        """Stop signals from interrupting. Returns the descriptor where they can be read."""
        signal.set_wakeup_fd(self._poke, warn_on_full_buffer=False)
        self._raise = False
        return self._wake

    def interrupt(self) -> None:
        """Let signals interrupt again. One that arrived too late to be read interrupts now."""
        signal.set_wakeup_fd(-1)
        self._raise = True
        with contextlib.suppress(BlockingIOError):
            for number in os.read(self._wake, 512):
                self(number, None)

    def ignore(self) -> None:
        """Ignore all signals from now on, for the orderly end, which is short."""
        self._raise = False

    def __call__(self, number: int, frame: Any) -> None:
        if self._raise and number == signal.SIGTSTP:
            stop()
        elif self._raise and number in ENDING:
            self._raise = False
            raise Interrupted(number)


def stop() -> None:
    """Stop this process as Ctrl-Z does. Returns when it is continued.

    The kernel does not stop a process that nobody could continue; the signal then has no effect.
    """
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, before)


@contextlib.contextmanager
def signals() -> Iterator[Signals]:
    caught = Signals()
    before = {}
    for number in (*ENDING, *FORWARDED, signal.SIGTSTP):
        if (
            signal.getsignal(number) is not signal.SIG_IGN
        ):  # under nohup, or in a shell's background
            before[number] = signal.signal(number, caught)
    try:
        yield caught
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        for handle in caught.handles:
            os.close(handle)
