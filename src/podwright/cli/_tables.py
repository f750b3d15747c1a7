"""Tables and cards: how values are laid out for people, and for the scripts that read over
their shoulder.

Scripts cut V-IPU's tables with cut and awk. So: the header on line 1, a rule on line 2, rows from
line 3, exactly one blank on each side of a bar, and no empty cell, which awk would not count.
Colours are for terminals alone (_terminal).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from podwright.cli._terminal import colours, heading, state

EMPTY = "-"


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, ruled: bool = False) -> str:
    """Rows in columns under a header and a rule. ruled: one more rule above and below it all."""
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    padded = [[text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in cells]
    if colours():
        lines = [heading(" | ".join(padded[0]).rstrip())]
        lines += [" | ".join(map(state, row)).rstrip() for row in padded[1:]]
    else:
        lines = [" | ".join(row).rstrip() for row in padded]
    rule = "-" * (sum(widths) + 3 * (len(widths) - 1))
    lines.insert(1, rule)
    if ruled:
        lines = [rule, *lines, rule]
    return "\n".join(lines)


def card(pairs: Iterable[tuple[str, object]]) -> str:
    """One thing's settings, a line each, values in one column."""
    rows = list(pairs)
    width = max(len(key) for key, _ in rows) + 1
    return "\n".join(f"{key + ':':<{width}} {_cell(value)}" for key, value in rows)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value)) or EMPTY


def printable(text: str) -> str:
    """The text without what could move a terminal's cursor: names are chosen by others."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
