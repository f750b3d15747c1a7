"""Records that scontrol prints, by field: what is missing is not known, and is named.

A record is a line of `scontrol --oneliner show …`. A value may hold blanks, and the values that
users choose (a job's name, its comment) may look like fields. Three rules follow:

- A field that Slurm always prints and that is missing is not known. There are no defaults.
- A field that appears twice is not known: one of the two may be part of a user's text.
- Slurm leaves some fields out where they are not set. Such a field counts as not set only where
  every name in the record is one that the proven releases print. Beside a name that they do not
  print, the field may have been renamed, so it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from podwright.errors import FieldNotKnown
from podwright.slurm.reader._names import NAMES

T = TypeVar("T")

_WORD: Final = re.compile(r"(?:^|\s)([A-Z][\w:/]*)=")
#: Fields whose values people choose, by the first field of the record. A name that no release
#: prints and that follows such a field is a part of its value.
_TEXTS: Final = {
    "JobId": ("AdminComment", "Comment", "Extra", "JobName", "SubmitLine", "SystemComment"),
    "NodeName": ("Comment", "Extra", "Reason"),
}
#: What Slurm prints for a missing value.
_NOTHING: Final = ("(null)", "N/A", "None", "Unknown", "")


class FieldRecord:
    """The fields of one record, which stands in `line`.

    description: the record in words, for errors: `node n1`.
    """

    __slots__ = ("_fields", "_strange", "_twice", "description", "line")

    def __init__(self, line: str) -> None:
        self.line = line
        self._fields: dict[str, str] = {}
        self._twice: set[str] = set()
        self._strange: list[str] = []
        marks: list[re.Match[str]] = []
        for mark in _WORD.finditer(line):
            if mark[1] not in NAMES:
                if marks and marks[-1][1] in _TEXTS.get(marks[0][1], ()):
                    continue
                self._strange.append(mark[1])
            marks.append(mark)
        value_ends = [mark.start() for mark in marks[1:]] + [len(line)]
        for mark, end in zip(marks, value_ends, strict=True):
            if mark[1] in self._fields:
                self._twice.add(mark[1])
            self._fields[mark[1]] = line[mark.end() : end].strip()
        first = marks[0] if marks else None
        kind = first[1].removesuffix("Name").removesuffix("Id").lower() if first else "record"
        self.description = f"{kind} {self._fields[first[1]]}" if first else "no record"

    def has(self, field: str) -> bool:
        """Whether the record shows the field."""
        return field in self._fields

    def not_known(self, field: str, reason: str = "") -> FieldNotKnown:
        """Return the error for a field."""
        return FieldNotKnown.of(field, self.description, reason)

    def text(self, field: str) -> str:
        """Return a field that Slurm always prints. Raises FieldNotKnown."""
        if field in self._twice:
            raise self.not_known(field, "it appears twice")
        if field not in self._fields:
            raise self.not_known(field)
        return self._fields[field]

    def value(self, field: str) -> str:
        """Return such a field, or "" where Slurm prints null, none, unknown or not available."""
        return _plain(self.text(field))

    def number(self, field: str) -> int:
        """Return a whole number that Slurm always prints. Raises FieldNotKnown."""
        text = self.text(field)
        if not (text.isascii() and text.isdigit()):
            raise self.not_known(field, f"{text[:40]!r} is not a number")
        return int(text)

    def count(self, field: str) -> int | None:
        """Return a limit that Slurm always prints, or None for UNLIMITED. Raises FieldNotKnown."""
        return None if self.text(field) in ("UNLIMITED", "INFINITE") else self.number(field)

    def is_set(self, field: str) -> bool:
        """Return whether Slurm prints a field that it leaves out where the field is not set.

        Raises FieldNotKnown where the field is missing and the record has names that no proven
        release prints.
        """
        if field in self._fields:
            return True
        if self._strange:
            strange = ", ".join(self._strange[:3])
            raise self.not_known(field, f"{strange} is a field that no proven release prints")
        return False

    def is_clear(self, field: str) -> bool:
        """Return whether `is_set` can decide about the field, without an error."""
        return field in self._fields or not self._strange

    def optional(self, field: str) -> str:
        """Return a field that Slurm prints where it is set, or "" where it is not. Raises
        FieldNotKnown.
        """
        return self.value(field) if self.is_set(field) else ""

    def optional_number(self, field: str) -> int:
        """Return such a field as a number, or 0 where it is not set. Raises FieldNotKnown."""
        return self.number(field) if self.is_set(field) else 0

    def between(self, first: str, last: str, line: str) -> str:
        """Return the part of the record's line between two fields. Raises FieldNotKnown."""
        for field in (first, last):
            self.text(field)
        return line.partition(f" {first}=")[2].partition(f" {last}=")[0]


def known(read: Callable[[], T], otherwise: T) -> T:
    """Return what `read` returns, or `otherwise` where Slurm does not show it.

    This is for callers that can do without the fact.
    """
    try:
        return read()
    except FieldNotKnown:
        return otherwise


def _plain(text: str) -> str:
    return "" if text in _NOTHING else text


def records(text: str, first: str) -> Iterator[tuple[FieldRecord, str]]:
    """Yield the records of an output, each with its line. first: the field with which each begins.

    Raises FieldNotKnown where records begin with another field.
    """
    lines = one_line_each(text).splitlines()
    matching = [line for line in lines if line.startswith(f"{first}=")]
    if lines and not matching and (other := _WORD.match(lines[0])):
        raise FieldNotKnown.of(first, f"records begin with {other[1]}")
    for line in matching:
        yield FieldRecord(line), line


def one_line_each(text: str) -> str:
    """Return an output in the form of `scontrol --oneliner`, with every record on a line of its
    own.
    """
    joined: list[str] = []
    for line in text.splitlines():
        if line[:1].isspace() and joined:
            joined[-1] += " " + line.strip()
        elif line.strip():
            joined.append(line.strip())
    return "\n".join(joined)
