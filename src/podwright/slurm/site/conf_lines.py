"""Reads the lines of slurm.conf, gres.conf and their like as Slurm does. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

_PAIR_PATTERN: Final = re.compile(r'([A-Za-z]\w*)\s*=\s*("[^"]*"|[^\s"]+)')

Row = dict[str, str]


def logical_lines(conf_text: str) -> Iterator[tuple[list[str], str]]:
    """Yield each logical line of a file, as (its physical lines, the text that Slurm reads).

    That text has no comment, and the lines that a backslash continues are one.
    """
    physical_lines: list[str] = []
    logical_line = ""
    for line in conf_text.splitlines(keepends=True):
        physical_lines.append(line)
        content = re.sub(r"(?<!\\)#.*", "", line.rstrip("\n")).rstrip()
        logical_line += " " + content.removesuffix("\\")
        if content.endswith("\\"):
            continue
        yield physical_lines, logical_line.strip()
        physical_lines, logical_line = [], ""
    if physical_lines:
        yield physical_lines, logical_line.strip()


def settings(conf_text: str) -> dict[str, str]:
    """Return the settings of a file by lower-case key, as written. A line of nodes and the like has
    its first key here.
    """
    pairs = (line.partition("=") for _, line in logical_lines(conf_text))
    return {key.strip().lower(): text.strip() for key, sign, text in pairs if sign}


def read_row(line: str) -> Row:
    """Return the keys of one line with their values. Keys keep their case, and values their
    quotes.
    """
    return dict(_PAIR_PATTERN.findall(line))


def value(row: Mapping[str, str], key: str) -> str:
    """Return the value of a key, whatever its case; empty where the key is missing."""
    return next(
        (row_value for row_key, row_value in row.items() if row_key.lower() == key.lower()), ""
    )
