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
from podwright.slurm.reader._scontrol_field_names import FIELD_NAMES

T = TypeVar("T")

_FIELD_START_PATTERN: Final = re.compile(r"(?:^|\s)([A-Z][\w:/]*)=")
#: Fields whose values people choose, by the first field of the record. A name that no release
#: prints and that follows such a field is a part of its value.
_TEXTS: Final = {
    "JobId": ("AdminComment", "Comment", "Extra", "JobName", "SubmitLine", "SystemComment"),
    "NodeName": ("Comment", "Extra", "Reason"),
}
#: What Slurm prints for a missing value.
_EMPTY_VALUES: Final = ("(null)", "N/A", "None", "Unknown", "")


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
        field_matches: list[re.Match[str]] = []
        for field_match in _FIELD_START_PATTERN.finditer(line):
            if field_match[1] not in FIELD_NAMES:
                if field_matches and field_matches[-1][1] in _TEXTS.get(field_matches[0][1], ()):
                    continue
                self._strange.append(field_match[1])
            field_matches.append(field_match)
        value_ends = [field_match.start() for field_match in field_matches[1:]] + [len(line)]
        for field_match, value_end in zip(field_matches, value_ends, strict=True):
            if field_match[1] in self._fields:
                self._twice.add(field_match[1])
            self._fields[field_match[1]] = line[field_match.end() : value_end].strip()
        first_match = field_matches[0] if field_matches else None
        record_kind = (
            first_match[1].removesuffix("Name").removesuffix("Id").lower()
            if first_match
            else "record"
        )
        self.description = (
            f"{record_kind} {self._fields[first_match[1]]}" if first_match else "no record"
        )

    def has(self, field_name: str) -> bool:
        """Whether the record shows the field."""
        return field_name in self._fields

    def not_known(self, field_name: str, reason: str = "") -> FieldNotKnown:
        """Return the error for a field."""
        return FieldNotKnown.of(field_name, self.description, reason)

    def text(self, field: str) -> str:
        """Return a field that Slurm always prints. Raises FieldNotKnown."""
        if field in self._twice:
            raise self.not_known(field, "it appears twice")
        if field not in self._fields:
            raise self.not_known(field)
        return self._fields[field]

    def value(self, field_name: str) -> str:
        """Return such a field, or "" where Slurm prints null, none, unknown or not available."""
        return _text_or_empty(self.text(field_name))

    def number(self, field_name: str) -> int:
        """Return a whole number that Slurm always prints. Raises FieldNotKnown."""
        text = self.text(field_name)
        if not (text.isascii() and text.isdigit()):
            raise self.not_known(field_name, f"{text[:40]!r} is not a number")
        return int(text)

    def count(self, field_name: str) -> int | None:
        """Return a limit that Slurm always prints, or None for UNLIMITED. Raises FieldNotKnown."""
        return (
            None if self.text(field_name) in ("UNLIMITED", "INFINITE") else self.number(field_name)
        )

    def is_set(self, field_name: str) -> bool:
        """Return whether Slurm prints a field that it leaves out where the field is not set.

        Raises FieldNotKnown where the field is missing and the record has names that no proven
        release prints.
        """
        if field_name in self._fields:
            return True
        if self._strange:
            unknown_names = ", ".join(self._strange[:3])
            raise self.not_known(
                field_name, f"{unknown_names} is a field that no proven release prints"
            )
        return False

    def optional(self, field_name: str) -> str:
        """Return a field that Slurm prints where it is set, or "" where it is not. Raises
        FieldNotKnown.
        """
        return self.value(field_name) if self.is_set(field_name) else ""

    def optional_number(self, field_name: str) -> int:
        """Return such a field as a number, or 0 where it is not set. Raises FieldNotKnown."""
        return self.number(field_name) if self.is_set(field_name) else 0

    def between(self, first_field: str, last_field: str, record_line: str) -> str:
        """Return the part of the record's line between two fields. Raises FieldNotKnown."""
        for name in (first_field, last_field):
            self.text(name)
        return record_line.partition(f" {first_field}=")[2].partition(f" {last_field}=")[0]


def known(read_fact: Callable[[], T], fallback: T) -> T:
    """Return what `read_fact` returns, or `fallback` where Slurm does not show it.

    This is for callers that can do without the fact.
    """
    try:
        return read_fact()
    except FieldNotKnown:
        return fallback


def _text_or_empty(field_text: str) -> str:
    return "" if field_text in _EMPTY_VALUES else field_text


def records(scontrol_output: str, first_field: str) -> Iterator[tuple[FieldRecord, str]]:
    """Yield the records of an output, each with its line. first_field: the field with which each
    begins.

    Raises FieldNotKnown where records begin with another field.
    """
    record_lines = one_line_each(scontrol_output).splitlines()
    matching_lines = [line for line in record_lines if line.startswith(f"{first_field}=")]
    if (
        record_lines
        and not matching_lines
        and (other_field := _FIELD_START_PATTERN.match(record_lines[0]))
    ):
        raise FieldNotKnown.of(first_field, f"records begin with {other_field[1]}")
    for record_line in matching_lines:
        yield FieldRecord(record_line), record_line


def one_line_each(scontrol_output: str) -> str:
    """Return an output in the form of `scontrol --oneliner`, with every record on a line of its
    own.
    """
    joined_records: list[str] = []
    for line in scontrol_output.splitlines():
        if line[:1].isspace() and joined_records:
            joined_records[-1] += " " + line.strip()
        elif line.strip():
            joined_records.append(line.strip())
    return "\n".join(joined_records)
