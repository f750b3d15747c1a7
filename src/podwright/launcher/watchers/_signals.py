"""Signals to poprun: at first they interrupt it; while instances run, they are numbers to be
read.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

#: Signals that are passed on to all instances.
FORWARDED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
#: Signals that end a run.
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal that arrived before there was anything to end."""

    def __init__(self, signal_number: int) -> None:
        self.number = signal_number
        super().__init__(f"signal {signal_number}")


class Signals:
    """Signals: at first they interrupt; while instances run they are numbers to read."""

    def __init__(self) -> None:
        self._raise = True
        self._suspendable = signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN
        self._wake, self._wake_writer = os.pipe()
        for handle in self.handles:
            os.set_blocking(handle, False)

    @property
    def handles(self) -> tuple[int, int]:
        return self._wake, self._wake_writer

    def collect(self) -> int:
        """Stop signals from interrupting. Returns the descriptor where they can be read."""
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        self._raise = False
        self._handle_suspension(self)
        return self._wake

    def interrupt(self) -> None:
        """Let signals interrupt again. One that arrived too late to be read interrupts now."""
        signal.set_wakeup_fd(-1)
        self._raise = True
        with contextlib.suppress(BlockingIOError):
            for number in read_signals(self._wake):
                if number == signal.SIGTSTP:
                    stop()
                else:
                    self(number, None)
        self._handle_suspension(signal.SIG_DFL)

    def ignore(self) -> None:
        """Ignore all signals from now on, for the orderly end, which is short."""
        self._raise = False
        self._handle_suspension(self)

    def _handle_suspension(self, handler: Signals | signal.Handlers) -> None:
        """Set what SIGTSTP does. By default the kernel stops the process at once, which is right
        as long as there is no instance to stop before.
        """
        if self._suspendable:
            signal.signal(signal.SIGTSTP, handler)

    def __call__(self, signal_number: int, frame: Any) -> None:
        if self._raise and signal_number in ENDING_SIGNALS:
            self._raise = False
            raise Interrupted(signal_number)


def read_signals(wake_handle: int) -> list[int]:
    """Return the numbers of the signals that arrived, in order, and no SIGCONT.

    A SIGTSTP among them still waits in the kernel afterwards, for `stop`. `scontrol suspend` sends
    SIGTSTP, two seconds later SIGSTOP, and SIGCONT in the end. A process that is slow reads SIGTSTP
    only after that SIGCONT. Nobody would continue it if it stopped then, so it must not stop.

    The kernel discards a waiting stop signal when SIGCONT is sent. This function therefore sends
    SIGTSTP again, blocked, and then reads once more: a SIGCONT from before that has left its number
    here, and a later one takes the waiting SIGTSTP away.
    """
    numbers = list(os.read(wake_handle, 64))
    if signal.SIGTSTP in numbers:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])
        signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
        with contextlib.suppress(BlockingIOError):
            numbers += os.read(wake_handle, 64)
        last_stop = len(numbers) - 1 - numbers[::-1].index(signal.SIGTSTP)
        if signal.SIGCONT in numbers[last_stop:]:
            signal.sigtimedwait([signal.SIGTSTP], 0)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])
            numbers = [number for number in numbers if number != signal.SIGTSTP]
        else:
            first_stop = numbers.index(signal.SIGTSTP)
            after_stop = [number for number in numbers[first_stop:] if number != signal.SIGTSTP]
            numbers = [*numbers[: first_stop + 1], *after_stop]
    return [number for number in numbers if number != signal.SIGCONT]


def stop() -> None:
    """Stop this process as Ctrl-Z does, unless it was continued since `read_signals` returned
    SIGTSTP. Returns when it is continued.

    The kernel does not stop a process that nobody could continue; the signal then has no effect.
    """
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])  # it stops here
    signal.signal(signal.SIGTSTP, handler)


@contextlib.contextmanager
def signals() -> Iterator[Signals]:
    caught_signals = Signals()
    old_handlers: dict[signal.Signals, Any] = {signal.SIGTSTP: signal.getsignal(signal.SIGTSTP)}
    for number in (*ENDING_SIGNALS, *FORWARDED_SIGNALS, signal.SIGCONT):
        # Ignored signals stay ignored: under nohup, and in the background of a shell.
        if signal.getsignal(number) is not signal.SIG_IGN:
            old_handlers[number] = signal.signal(number, caught_signals)
    try:
        yield caught_signals
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
        for handle in caught_signals.handles:
            os.close(handle)
