"""What instances say of themselves, as popdist writes it into a pipe: decoded, and checked.

The form is popdist._records'; it is written down twice, since popdist stands alone, and a test
holds the two together. A program could write anything there: what is no record ends the stream.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

MARK, COLLECTIVE, JOINED, LEFT, LEFT_OUT = 1, 2, 3, 4, 5
HEAD = struct.Struct("<BBHIIQQQ")
LONGEST = 80
#: Names that are kept as text; a program has few.
_NAMES = 4096


class InstanceRecord(NamedTuple):
    """One record; where there are many, a plain tuple of the same.

    begin, end: nanoseconds of CLOCK_BOOTTIME of the instance's host.
    size: bytes of a collective, or how many records an instance had to leave out (LEFT_OUT).
    group, nth: which collective of which instances it is; members: how many these are.
    """

    kind: int
    name: str
    begin: int
    end: int
    size: int
    group: int
    nth: int
    members: int


class InstanceRecords:
    """The records of one instance. broken: it has said something that is none."""

    def __init__(self) -> None:
        self.broken = False
        self._rest = b""
        self._names: dict[bytes, str] = {}

    def feed(self, data: bytes) -> list[InstanceRecord]:
        """The records that `data` completes."""
        if self.broken:
            return []
        data = self._rest + data
        found: list[Any] = []
        at, whole = 0, len(data)
        while whole - at >= HEAD.size:
            kind, length, members, group, count, begin, end, size = HEAD.unpack_from(data, at)
            if not MARK <= kind <= LEFT_OUT or length > LONGEST or not begin <= end < 1 << 62:
                self.broken, data = True, b""
                break
            last = at + HEAD.size + length
            if last > whole:
                break
            name = data[at + HEAD.size : last]
            at = last
            text = self._names.get(name) or self._text(name)
            found.append((kind, text, begin, end, size, group, count, members))
        self._rest = data[at:]
        return found

    def _text(self, name: bytes) -> str:
        text = "".join(c if c.isprintable() else "?" for c in name.decode(errors="replace"))
        if len(self._names) < _NAMES:
            self._names[name] = text
        return text
