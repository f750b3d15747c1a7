"""Decodes and checks the records that popdist writes into an instance's pipe.

popdist._trace_records defines the format. It is written down twice, since popdist is a package of
its own, and a test compares the two. A program could write anything into the pipe: the first bytes
that are not a valid piece end the stream.
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
_MOST_KNOWN_HEADERS = 256


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
        record_pieces: list[RecordPiece] = []
        byte_position = 0
        while len(data) - byte_position >= PIECE.size:
            kind_count, header_bytes, record_count = PIECE.unpack_from(data, byte_position)
            records_start = byte_position + PIECE.size + header_bytes
            records_end = records_start + record_count * RECORD.size
            if records_end - byte_position > LARGEST:
                self.broken = True
                break
            if records_end > len(data):
                break
            kinds_header = data[byte_position + PIECE.size : records_start]
            record_kinds = self._known.get(kinds_header) or self._kinds(kinds_header)
            if (
                len(record_kinds) != kind_count
                or max(data[records_start : records_end : RECORD.size], default=-1) >= kind_count
            ):
                self.broken = True
                break
            record_pieces.append(RecordPiece(record_kinds, data[records_start:records_end]))
            byte_position = records_end
        self._rest = b"" if self.broken else data[byte_position:]
        return record_pieces

    def _kinds(self, kinds_header: bytes) -> tuple[RecordKind, ...]:
        """Return the kinds in a piece's header; none when the header is not valid."""
        record_kinds, header_position = [], 0
        while header_position + KIND.size <= len(kinds_header):
            kind_number, name_length, group_size, group_number, kind_size = KIND.unpack_from(
                kinds_header, header_position
            )
            header_position += KIND.size + name_length
            if (
                not MARK <= kind_number <= LEFT_OUT
                or name_length > LONGEST
                or header_position > len(kinds_header)
            ):
                return ()
            raw_name = kinds_header[header_position - name_length : header_position].decode(
                errors="replace"
            )
            printable_name = "".join(
                character if character.isprintable() else "?" for character in raw_name
            )
            record_kinds.append(
                RecordKind(kind_number, printable_name, kind_size, group_number, group_size)
            )
        if header_position != len(kinds_header):
            return ()
        if len(self._known) >= _MOST_KNOWN_HEADERS:
            self._known.clear()
        self._known[kinds_header] = known_kinds = tuple(record_kinds)
        return known_kinds
