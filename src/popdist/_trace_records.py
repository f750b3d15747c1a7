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
_TOGETHER, _SEND_RECORD_COUNT = 50_000_000, 128

#: Returns the nanoseconds since this host started.
clock = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)

#: A mark's name; or the kind, the name, the bytes, the group and the number of its members.
_RecordKind = str | tuple[int, bytes, int, int, int]
_Record = tuple[_RecordKind, int, int, int]


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
        now_ns = clock()
        if self._waiting and now_ns - self._sent > _TOGETHER:
            self._send_waiting(now_ns)
        return now_ns

    def mark(self, name: str) -> None:
        """Add a mark with the present time."""
        now_ns = clock()
        records = self._waiting
        records.append((name, 0, now_ns, now_ns))
        if now_ns - self._sent > _TOGETHER or len(records) >= _SEND_RECORD_COUNT:
            self._send_waiting(now_ns)

    def joined(self, transport: bytes, began_ns: int) -> None:
        """Record that this instance has joined the others since `began_ns`, and send it."""
        self._waiting.append(((JOINED, transport, 0, 0, 0), 0, began_ns, clock()))
        self.flush()

    def left(self, transport: bytes, began_ns: int) -> None:
        """Record that this instance has left the others since `began_ns`, and send it."""
        self._waiting.append(((LEFT, transport, 0, 0, 0), 0, began_ns, clock()))
        self.flush()

    def collective(
        self, name: bytes, began_ns: int, byte_count: int, group_checksum: int, members: int
    ) -> None:
        """Record a collective of `members` instances that ends now.

        byte_count: bytes of each instance.
        """
        number = self._counts[group_checksum] = self._counts.get(group_checksum, 0) + 1
        now_ns = clock()
        records = self._waiting
        records.append(
            ((COLLECTIVE, name, byte_count, group_checksum, members), number, began_ns, now_ns)
        )
        if now_ns - self._sent > _TOGETHER or len(records) >= _SEND_RECORD_COUNT:
            self._send_waiting(now_ns)

    def flush(self) -> None:
        """Send the waiting records."""
        self._send_waiting(clock())

    def _send_waiting(self, now_ns: int) -> None:
        with self._lock:
            self._sent, records = now_ns, self._waiting
            batch = records[:]
            del records[: len(batch)]  # other threads may have added records meanwhile
            for piece, count in _pack_pieces(batch):
                if not self._write_piece(piece):
                    self._left_out += count
            if self._left_out:
                kind = (LEFT_OUT, b"", self._left_out, 0, 0)
                if self._write_piece(
                    _pack_piece([_head(kind)], [RECORD.pack(0, 0, now_ns, now_ns)])
                ):
                    self._left_out = 0

    def _write_piece(self, piece: bytes) -> bool:
        with contextlib.suppress(OSError):
            os.write(self._handle, piece)
            return True
        return False


def _pack_pieces(batch: list[_Record]) -> Iterator[tuple[bytes, int]]:
    """Yield pieces, each with the number of its records."""
    kind_heads: list[bytes] = []
    packed_records: list[bytes] = []
    kind_indices: dict[_RecordKind, int] = {}
    free_bytes, record_size, pack_record = LARGEST - PIECE.size, RECORD.size, RECORD.pack
    for kind, call_number, begin_ns, end_ns in batch:
        kind_index = kind_indices.get(kind)
        if kind_index is None or free_bytes < record_size:
            kind_head = _head(kind)
            if free_bytes < len(kind_head) + record_size:
                yield _pack_piece(kind_heads, packed_records), len(packed_records)
                kind_heads, packed_records, kind_indices = [], [], {}
                free_bytes = LARGEST - PIECE.size
            kind_index = kind_indices[kind] = len(kind_heads)
            kind_heads.append(kind_head)
            free_bytes -= len(kind_head)
        packed_records.append(pack_record(kind_index, call_number, begin_ns, end_ns))
        free_bytes -= record_size
    if packed_records:
        yield _pack_piece(kind_heads, packed_records), len(packed_records)


def _head(kind: _RecordKind) -> bytes:
    if isinstance(kind, str):
        kind = MARK, kind.encode(errors="replace")[:LONGEST], 0, 0, 0
    record_kind, name, count, checksum, members = kind
    return KIND.pack(record_kind, len(name), members, checksum, count) + name


def _pack_piece(kind_heads: list[bytes], packed_records: list[bytes]) -> bytes:
    kinds = b"".join(kind_heads)
    return b"".join(
        (
            PIECE.pack(len(kind_heads), len(kinds), len(packed_records)),
            kinds,
            *packed_records,
        )
    )
