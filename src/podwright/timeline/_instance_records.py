"""What instances say of themselves, as popdist writes it into a pipe: decoded, and checked.

The form is popdist._records'; it is written down twice, since popdist stands alone, and a test
holds the two together. A program could write anything there: what is no piece ends the stream.
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
#: Pieces whose kinds are kept decoded; those of a program that trains are alike.
_ALIKE = 256


class RecordKind(NamedTuple):
    """What records of a kind have in common.

    size: bytes of a collective, or how many records an instance had to leave out (LEFT_OUT).
    group: which instances it is of; members: how many these are.
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
        """How many."""
        return len(self.data) // RECORD.size

    def records(self) -> Iterator[tuple[int, int, int, int]]:
        """Of each: the place of its kind, the how manieth of its group it is, begin, end.

        Times are nanoseconds of CLOCK_BOOTTIME of the instance's host, unchecked.
        """
        return RECORD.iter_unpack(self.data)


class InstanceRecords:
    """The records of one instance. broken: it has said something that is none."""

    def __init__(self) -> None:
        self.broken = False
        self._rest = b""
        self._known: dict[bytes, tuple[RecordKind, ...]] = {}

    def feed(self, data: bytes) -> list[RecordPiece]:
        """The pieces that `data` completes."""
        if self.broken:
            return []
        data = self._rest + data
        found: list[RecordPiece] = []
        at = 0
        while len(data) - at >= PIECE.size:
            many, size, count = PIECE.unpack_from(data, at)
            first = at + PIECE.size + size
            last = first + count * RECORD.size
            if last - at > LARGEST:
                self.broken = True
                break
            if last > len(data):
                break
            head = data[at + PIECE.size : first]
            kinds = self._known.get(head) or self._kinds(head)
            if len(kinds) != many or max(data[first : last : RECORD.size], default=-1) >= many:
                self.broken = True
                break
            found.append(RecordPiece(kinds, data[first:last]))
            at = last
        self._rest = b"" if self.broken else data[at:]
        return found

    def _kinds(self, head: bytes) -> tuple[RecordKind, ...]:
        """The kinds of a piece; none where these are not some."""
        kinds, at = [], 0
        while at + KIND.size <= len(head):
            kind, length, members, group, size = KIND.unpack_from(head, at)
            at += KIND.size + length
            if not MARK <= kind <= LEFT_OUT or length > LONGEST or at > len(head):
                return ()
            name = head[at - length : at].decode(errors="replace")
            text = "".join(c if c.isprintable() else "?" for c in name)
            kinds.append(RecordKind(kind, text, size, group, members))
        if at != len(head):
            return ()
        if len(self._known) >= _ALIKE:
            self._known.clear()
        self._known[head] = made = tuple(kinds)
        return made
