"""Decodes and checks the records that popdist writes into an instance's pipe.

popdist._records defines the format. It is written down twice, since popdist is a package of its
own, and a test compares the two. A program could write anything into the pipe: the first bytes that
are not a valid piece end the stream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

MARK, COLLECTIVE, JOINED, LEFT, LEFT_OUT = 1, 2, 3, 4, 5
PIECE = struct.Struct("<HHH")
KIND = struct.Struct("<BBHIQ")
RECORD = struct.Struct("<B3xIQQ")
LONGEST = 80
LARGEST = 4096
#: How many headers of pieces are kept decoded. A training program repeats the same ones.
_ALIKE = 256


class RecordKind(NamedTuple):
    """The values that all records of one kind have in common.

    size: bytes of a collective, or how many records an instance had to leave out (LEFT_OUT). group:
    the number of the group of instances. members: the size of that group.
    """

    kind: int
    name: str
    size: int
    group: int
    members: int


class RecordPiece(NamedTuple):
    """Records that were sent together, and their kinds."""

    kinds: tuple[RecordKind, ...]
    data: bytes

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.data) // RECORD.size

    def records(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the index of each record's kind, its number within its group, its begin and its
        end.

        Times are nanoseconds of CLOCK_BOOTTIME of the instance's host, unchecked.
        """
        return RECORD.iter_unpack(self.data)


class InstanceRecords:
    """The records of one instance. broken: it has written something that is not a valid piece."""

    def __init__(self) -> None:
        self.broken = False
        self._rest = b""
        self._known: dict[bytes, tuple[RecordKind, ...]] = {}

    def feed(self, data: bytes) -> list[RecordPiece]:
        """Return the pieces that `data` completes."""
        if self.broken:
            return []
        data = self._rest + data
        pieces: list[RecordPiece] = []
        position = 0
        while len(data) - position >= PIECE.size:
            many, size, count = PIECE.unpack_from(data, position)
            first = position + PIECE.size + size
            last = first + count * RECORD.size
            if last - position > LARGEST:
                self.broken = True
                break
            if last > len(data):
                break
            head = data[position + PIECE.size : first]
            kinds = self._known.get(head) or self._kinds(head)
            if len(kinds) != many or max(data[first : last : RECORD.size], default=-1) >= many:
                self.broken = True
                break
            pieces.append(RecordPiece(kinds, data[first:last]))
            position = last
        self._rest = b"" if self.broken else data[position:]
        return pieces

    def _kinds(self, head: bytes) -> tuple[RecordKind, ...]:
        """Return the kinds in a piece's header; none when the header is not valid."""
        kinds, position = [], 0
        while position + KIND.size <= len(head):
            kind, length, members, group, size = KIND.unpack_from(head, position)
            position += KIND.size + length
            if not MARK <= kind <= LEFT_OUT or length > LONGEST or position > len(head):
                return ()
            name = head[position - length : position].decode(errors="replace")
            text = "".join(c if c.isprintable() else "?" for c in name)
            kinds.append(RecordKind(kind, text, size, group, members))
        if position != len(head):
            return ()
        if len(self._known) >= _ALIKE:
            self._known.clear()
        self._known[head] = kind_names = tuple(kinds)
        return kind_names
