"""The records of an instance, on their way to poprun (_trace).

A record costs about a microsecond: those of a short while go together, and one that comes alone
goes at once, so a program that is killed loses the last few hundredths of a second. The program
never waits for poprun: what the pipe does not take is left out, and counted.

A record is a head and a name of at most 80 bytes. podwright.timeline reads the same form; a test
holds the two together. Times are nanoseconds of CLOCK_BOOTTIME of this host.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time

#: Kind, length of the name, members of the group, the group, the how manieth of it (from 1), begin,
#: end, bytes.
HEAD = struct.Struct("<BBHIIQQQ")
MARK, COLLECTIVE, JOINED, LEFT, LEFT_OUT = 1, 2, 3, 4, 5
#: Bytes of a name.
LONGEST = 80
#: Bytes that a pipe takes whole or not at all (PIPE_BUF).
_PIECE = 4096
#: Nanoseconds for which records wait for others.
_TOGETHER = 50_000_000


def clock() -> int:
    """Nanoseconds since this host started."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Records:
    """Records on their way to poprun. handle: the pipe; it never blocks."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._waiting: list[bytes] = []
        self._size = self._left_out = 0
        self._sent = 0
        self._counts: dict[int, int] = {}
        self._lock = threading.Lock()

    def begin(self) -> int:
        """The time, when something begins that may last: what waits is sent if it has waited."""
        now = clock()
        if self._size and now - self._sent > _TOGETHER:
            with self._lock:
                self._send(now)
        return now

    def mark(self, name: str) -> None:
        """A mark, as of now."""
        now = clock()
        self.add(MARK, name.encode(errors="replace")[:LONGEST], now, now)

    def joined(self, how: bytes, began: int) -> None:
        """This instance has joined the others just now."""
        self.add(JOINED, how, began, clock())

    def left(self, how: bytes, began: int) -> None:
        """This instance has left the others just now."""
        self.add(LEFT, how, began, clock())
        self.flush()

    def collective(self, name: bytes, began: int, size: int, group: int, members: int) -> None:
        """A collective of `members` instances has ended just now. size: bytes of each."""
        count = self._counts[group] = self._counts.get(group, 0) + 1
        self.add(COLLECTIVE, name, began, clock(), size, group, count, members)

    def add(
        self,
        kind: int,
        name: bytes,
        begin: int,
        end: int,
        size: int = 0,
        group: int = 0,
        count: int = 0,
        members: int = 0,
    ) -> None:
        """One record."""
        record = HEAD.pack(kind, len(name), members, group, count, begin, end, size) + name
        with self._lock:
            if self._size + len(record) > _PIECE and not self._send(end):
                self._left_out += 1
                return
            self._waiting.append(record)
            self._size += len(record)
            if end - self._sent > _TOGETHER:
                self._send(end)

    def flush(self) -> None:
        """Send what waits."""
        with self._lock:
            self._send(clock())

    def forget(self) -> None:
        """In a child: what waits is its parent's to send."""
        self._waiting, self._size, self._lock = [], 0, threading.Lock()

    def _send(self, now: int) -> bool:
        """Whether there is room again."""
        data = b"".join(self._waiting)
        with contextlib.suppress(OSError):
            if data:
                os.write(self._handle, data)
            self._waiting, self._size, self._sent = [], 0, now
            if self._left_out:
                record = HEAD.pack(LEFT_OUT, 0, 0, 0, 0, now, now, self._left_out)
                os.write(self._handle, record)
                self._left_out = 0
        return not self._size
