"""The records of an instance, on their way to poprun (_trace).

A record costs less than a microsecond: those of a short while go together as a piece, and one that
comes alone goes at once, so a program that is killed loses the last few hundredths of a second. The
program never waits for poprun: what the pipe does not take is left out, and counted.

A piece says first what kinds of records are in it, each once, and then of each record its kind and
its times; so it can be read whatever else was written. podwright.timeline reads the same form; a
test holds the two together. Times are nanoseconds of CLOCK_BOOTTIME of this host.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from collections.abc import Iterator
from functools import partial

#: How many kinds, how many bytes they are, how many records.
PIECE = struct.Struct("<HHH")
#: Which it is, length of its name, members of the group, the group, bytes. The name follows.
KIND = struct.Struct("<BBHIQ")
#: The how manieth kind of the piece, the how manieth of its group (from 1), begin, end.
RECORD = struct.Struct("<B3xIQQ")
MARK, COLLECTIVE, JOINED, LEFT, LEFT_OUT = 1, 2, 3, 4, 5
#: Bytes of a name.
LONGEST = 80
#: Bytes of a piece: what a pipe takes whole or not at all (PIPE_BUF).
LARGEST = 4096
#: Nanoseconds for which records wait for others, and so many of them.
_TOGETHER, _MANY = 50_000_000, 128

#: Nanoseconds since this host started.
clock = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)

#: A mark's name, or the kind, the name, bytes, the group and its members.
_Kind = str | tuple[int, bytes, int, int, int]
_Record = tuple[_Kind, int, int, int]


class Records:
    """Records on their way to poprun. handle: the pipe; it never blocks.

    Threads of a program may add some at once: that is one step of the list, without a lock.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._sent = 0
        self._counts: dict[int, int] = {}
        self.forget()

    def forget(self) -> None:
        """In a child: what waits is its parent's to send."""
        self._waiting: list[_Record] = []
        self._left_out, self._lock = 0, threading.Lock()

    def begin(self) -> int:
        """The time, when something begins that may last: what waits is sent if it has waited."""
        now = clock()
        if self._waiting and now - self._sent > _TOGETHER:
            self._send(now)
        return now

    def mark(self, name: str) -> None:
        """A mark, as of now."""
        now = clock()
        waiting = self._waiting
        waiting.append((name, 0, now, now))
        if now - self._sent > _TOGETHER or len(waiting) >= _MANY:
            self._send(now)

    def joined(self, how: bytes, began: int) -> None:
        """This instance has joined the others just now."""
        self._waiting.append(((JOINED, how, 0, 0, 0), 0, began, clock()))
        self.flush()

    def left(self, how: bytes, began: int) -> None:
        """This instance has left the others just now."""
        self._waiting.append(((LEFT, how, 0, 0, 0), 0, began, clock()))
        self.flush()

    def collective(self, name: bytes, began: int, size: int, group: int, members: int) -> None:
        """A collective of `members` instances has ended just now. size: bytes of each."""
        count = self._counts[group] = self._counts.get(group, 0) + 1
        now = clock()
        waiting = self._waiting
        waiting.append(((COLLECTIVE, name, size, group, members), count, began, now))
        if now - self._sent > _TOGETHER or len(waiting) >= _MANY:
            self._send(now)

    def flush(self) -> None:
        """Send what waits."""
        self._send(clock())

    def _send(self, now: int) -> None:
        with self._lock:
            self._sent, waiting = now, self._waiting
            taken = waiting[:]
            del waiting[: len(taken)]  # others may have come meanwhile
            for piece, many in _pieces(taken):
                if not self._write(piece):
                    self._left_out += many
            if self._left_out:
                kind = (LEFT_OUT, b"", self._left_out, 0, 0)
                if self._write(_piece([_head(kind)], [RECORD.pack(0, 0, now, now)])):
                    self._left_out = 0

    def _write(self, piece: bytes) -> bool:
        with contextlib.suppress(OSError):
            os.write(self._handle, piece)
            return True
        return False


def _pieces(taken: list[_Record]) -> Iterator[tuple[bytes, int]]:
    """Pieces of so many records each."""
    heads: list[bytes] = []
    records: list[bytes] = []
    kinds: dict[_Kind, int] = {}
    room, one, pack = LARGEST - PIECE.size, RECORD.size, RECORD.pack
    for kind, count, begin, end in taken:
        index = kinds.get(kind)
        if index is None or room < one:
            head = _head(kind)
            if room < len(head) + one:
                yield _piece(heads, records), len(records)
                heads, records, kinds = [], [], {}
                room = LARGEST - PIECE.size
            index = kinds[kind] = len(heads)
            heads.append(head)
            room -= len(head)
        records.append(pack(index, count, begin, end))
        room -= one
    if records:
        yield _piece(heads, records), len(records)


def _head(kind: _Kind) -> bytes:
    if isinstance(kind, str):
        kind = MARK, kind.encode(errors="replace")[:LONGEST], 0, 0, 0
    which, name, size, group, members = kind
    return KIND.pack(which, len(name), members, group, size) + name


def _piece(heads: list[bytes], records: list[bytes]) -> bytes:
    kinds = b"".join(heads)
    return b"".join((PIECE.pack(len(heads), len(kinds), len(records)), kinds, *records))
