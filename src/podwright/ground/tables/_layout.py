"""Tables and cards: layouts of values for people, and for the scripts that read the same output.

Scripts cut V-IPU's tables with cut and awk. So the header is line 1, a rule is line 2, rows begin
at line 3, each bar has exactly one blank on each side, and no cell is empty, which awk would not
count. Only terminals get colours (_colours).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from podwright.ground.tables._colours import colours, heading, state

_Value = TypeVar("_Value")
EMPTY = "-"
_MIN_COLUMN_WIDTH = 8  #: letters that a shortened column keeps


class Table(NamedTuple):
    """A table as a value: `str()` returns all of it, `fitted()` the part that fits a terminal.

    `name`: the heading of the column that names a row. `optional`: headings of the columns that a
    narrow terminal leaves out, in that order. `ruled`: one more rule above and below.
    """

    header: tuple[str, ...]
    rows: list[tuple[object, ...]]
    name: str
    optional: tuple[str, ...] = ()
    ruled: bool = False

    def __str__(self) -> str:
        return table(self.header, self.rows, ruled=self.ruled)

    def names(self) -> list[str]:
        """Return the cell of each row that names it."""
        column = self.header.index(self.name)
        return [_cell_text(row[column]) for row in self.rows]

    def order(self, heading: str) -> list[int]:
        """Return the rows' positions sorted by a column, where numbers in names count as
        numbers.
        """
        column_index = self.header.index(heading)
        keys = [natural(_cell_text(row[column_index])) for row in self.rows]
        return sorted(range(len(self.rows)), key=lambda row_index: keys[row_index])

    def fitted(self, max_width: int) -> Table:
        """Return the table in at most `max_width` columns, if possible.

        Optional columns are left out first; then the widest column is cut short.
        """
        columns = [
            [str(title), *(_cell_text(row[index]) for row in self.rows)]
            for index, title in enumerate(self.header)
        ]
        for title in self.optional:
            if _table_width(columns) <= max_width:
                break
            columns = [column for column in columns if column[0] != title]
        excess_width = _table_width(columns) - max_width
        if excess_width > 0:
            widest_column = max(columns, key=_column_width)
            column_width = max(_column_width(widest_column) - excess_width, _MIN_COLUMN_WIDTH)
            columns[columns.index(widest_column)] = [
                cell_text
                if len(cell_text) <= column_width
                else cell_text[: column_width - 1] + "\N{HORIZONTAL ELLIPSIS}"
                for cell_text in widest_column
            ]
        header, *rows = zip(*columns, strict=True)
        return self._replace(header=header, rows=list(rows))


def table_of(
    row_objects: Iterable[_Value],
    columns: Mapping[str, Callable[[_Value], object]],
    name_heading: str,
    optional_headings: tuple[str, ...] = (),
    *,
    ruled: bool = False,
) -> Table:
    """Return a table with a row for each value. columns: each heading, and its cell of a value."""
    rows = [
        tuple(cell_of(row_object) for cell_of in columns.values()) for row_object in row_objects
    ]
    return Table(tuple(columns), rows, name_heading, optional_headings, ruled)


def _column_width(column: Sequence[str]) -> int:
    return max(map(len, column))


def _table_width(columns: Sequence[Sequence[str]]) -> int:
    return sum(map(_column_width, columns)) + 3 * (len(columns) - 1)


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key by which ag2 is before ag10."""
    parts = re.findall(r"\d+|\D+", text)
    return tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part.casefold()) for part in parts
    )


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, ruled: bool = False) -> str:
    """Return rows in columns under a header and a rule. ruled: one more rule above and below it
    all.
    """
    cells = [list(header), *([_cell_text(cell_value) for cell_value in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(header))]
    padded_rows = [
        [cell_text.ljust(width) for cell_text, width in zip(row, widths, strict=True)]
        for row in cells
    ]
    if colours():
        lines = [heading(" | ".join(padded_rows[0]).rstrip())]
        lines += [" | ".join(map(state, row)).rstrip() for row in padded_rows[1:]]
    else:
        lines = [" | ".join(row).rstrip() for row in padded_rows]
    rule = "-" * (sum(widths) + 3 * (len(widths) - 1))
    lines.insert(1, rule)
    if ruled:
        lines = [rule, *lines, rule]
    return "\n".join(lines)


def card(settings: Iterable[tuple[str, object]]) -> str:
    """Return the settings of one object, a line each, with the values in one column."""
    pairs = list(settings)
    width = max(len(name) for name, _ in pairs) + 1
    return "\n".join(
        f"{name + ':':<{width}} {_cell_text(setting_value)}" for name, setting_value in pairs
    )


def _cell_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value)) or EMPTY


def printable(text: str) -> str:
    """Return the text without characters that could move a terminal's cursor: others choose
    names.
    """
    return "".join(character if character.isprintable() else "?" for character in text)
