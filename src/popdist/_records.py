"""The records of an instance, on their way to poprun (_trace).

A record costs less than a microsecond. Records of a short time are sent together as a piece, and a
record that comes alone is sent at once, so a program that is killed loses the last few hundredths
of a second. The program never waits for poprun: what the pipe does not accept is dropped and
counted.

A piece lists first the kinds of its records, each once, and then, for each record, its kind and its
times. Each piece can therefore be read without the others. podwright.timeline reads the same form;
a test compares the two. Times are nanoseconds of CLOCK_BOOTTIME of this host.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from collections.abc import Iterator
from functools import partial

#: The head of a piece: number of kinds, their size in bytes, number of records.
PIECE = struct.Struct("<HHH")
#: A kind: which it is, length of its name, members of the group, the group, bytes. The name
#: follows.
KIND = struct.Struct("<BBHIQ")
#: A record: index of its kind in the piece, its number in its group (from 1), begin, end.
RECORD = struct.Struct("<B3xIQQ")
MARK, COLLECTIVE, JOINED, LEFT, LEFT_OUT = 1, 2, 3, 4, 5
#: The most bytes of a name.
LONGEST = 80
#: The most bytes of a piece. A pipe takes so many as a whole or not at all (PIPE_BUF).
LARGEST = 4096
#: The most nanoseconds for which records wait for others, and the most records that wait.
_TOGETHER, _MANY = 50_000_000, 128

#: Returns the nanoseconds since this host started.
clock = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)

#: A mark's name; or the kind, the name, the bytes, the group and the number of its members.
_Kind = str | tuple[int, bytes, int, int, int]
_Record = tuple[_Kind, int, int, int]


class Records:
    """Records on their way to poprun. handle: the pipe, which does not block.

    Several threads may add records at once: appending to the list is one atomic step, so it needs
    no lock.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._sent = 0
        self._counts: dict[int, int] = {}
        self.forget()

    def forget(self) -> None:
        """Drop the waiting records in a forked child: its parent sends them."""
        self._waiting: list[_Record] = []
        self._left_out, self._lock = 0, threading.Lock()

    def begin(self) -> int:
        """Return the time at which something begins.

        Send the waiting records if they have waited enough.

        What begins may last long, and they would wait as long.
        """
        now = clock()
        if self._waiting and now - self._sent > _TOGETHER:
            self._send(now)
        return now

    def mark(self, name: str) -> None:
        """Add a mark with the present time."""
        now = clock()
        waiting = self._waiting
        waiting.append((name, 0, now, now))
        if now - self._sent > _TOGETHER or len(waiting) >= _MANY:
            self._send(now)

    def joined(self, transport: bytes, began: int) -> None:
        """Record that this instance has joined the others since `began`, and send it."""
        self._waiting.append(((JOINED, transport, 0, 0, 0), 0, began, clock()))
        self.flush()

    def left(self, transport: bytes, began: int) -> None:
        """Record that this instance has left the others since `began`, and send it."""
        self._waiting.append(((LEFT, transport, 0, 0, 0), 0, began, clock()))
        self.flush()

    def collective(self, name: bytes, began: int, size: int, group: int, members: int) -> None:
        """Record a collective of `members` instances that ends now.

        size: bytes of each instance.
        """
        count = self._counts[group] = self._counts.get(group, 0) + 1
        now = clock()
        waiting = self._waiting
        waiting.append(((COLLECTIVE, name, size, group, members), count, began, now))
        if now - self._sent > _TOGETHER or len(waiting) >= _MANY:
            self._send(now)

    def flush(self) -> None:
        """Send the waiting records."""
        self._send(clock())

    def _send(self, now: int) -> None:
        with self._lock:
            self._sent, waiting = now, self._waiting
            batch = waiting[:]
            del waiting[: len(batch)]  # other threads may have added records meanwhile
            for piece, many in _pieces(batch):
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


def _pieces(batch: list[_Record]) -> Iterator[tuple[bytes, int]]:
    """Yield pieces, each with the number of its records."""
    heads: list[bytes] = []
    records: list[bytes] = []
    kinds: dict[_Kind, int] = {}
    room, one, pack = LARGEST - PIECE.size, RECORD.size, RECORD.pack
    for kind, count, begin, end in batch:
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
    record_kind, name, size, group, members = kind
    return KIND.pack(record_kind, len(name), members, group, size) + name


def _piece(heads: list[bytes], records: list[bytes]) -> bytes:
    kinds = b"".join(heads)
    return b"".join((PIECE.pack(len(heads), len(kinds), len(records)), kinds, *records))
