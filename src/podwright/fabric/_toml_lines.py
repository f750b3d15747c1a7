"""The line of each key of a TOML file, which tomllib does not report.

It reads files that tomllib has accepted already, so it checks nothing. It only walks over strings,
arrays and tables, and notes where keys and array items begin.
"""

from __future__ import annotations

import re
from bisect import bisect_left

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY = re.compile(r"""[ \t]*("(?:\\.|[^"\\])*"|'[^']*'|[A-Za-z0-9_-]+)[ \t]*(\.?)""")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|'
    r"'''.*?'{3,5}|"
    r'"(?:\\.|[^"\\])*"|'
    r"'[^']*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\r\n]*")


def key_lines(text: str) -> dict[Path, int]:
    """Return the line, from 1, of each key and array item, by path: `("machines", 2, "host")`."""
    return _Walk(text).lines


class _Walk:
    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0
        self._ends = [newline.start() for newline in re.finditer("\n", text)]
        self.lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}  # number of tables so far, by array of tables
        table: Path = ()
        while self._peek():
            if text.startswith("[[", self.position):
                self.position += 2
                table = self._header()
                number = self._counts[table] = self._counts.get(table, -1) + 1
                table = (*table, number)
                self._note(table)
                self.position += 2
            elif text[self.position] == "[":
                self.position += 1
                table = self._header()
                self._note(table)
                self.position += 1
            else:
                self._pair(table)

    def _peek(self) -> str:
        match = _BLANK.match(self.text, self.position)
        self.position = match.end() if match else self.position
        return self.text[self.position : self.position + 1]

    def _note(self, path: Path) -> None:
        self.lines.setdefault(path, bisect_left(self._ends, self.position) + 1)

    def _key(self) -> Path:
        parts: list[str] = []
        dot = "."
        while dot:
            match = _KEY.match(self.text, self.position)
            if match is None:
                raise ValueError(f"no key at offset {self.position}")
            self.position = match.end()
            parts.append(match[1].strip("\"'"))
            dot = match[2]
        return tuple(parts)

    def _header(self) -> Path:
        path: Path = ()
        for part in self._key():
            if path in self._counts:
                path = (*path, self._counts[path])
            path = (*path, part)
        return path

    def _pair(self, table: Path) -> None:
        start = self.position
        path = table
        for part in self._key():
            path = (*path, part)
            end, self.position = self.position, start
            self._note(path)
            self.position = end
        self.position += 1  # the equals sign
        self._value(path)

    def _value(self, path: Path) -> None:
        opening = self._peek()
        if opening == "[":
            self.position += 1
            number = 0
            while self._peek() != "]":
                self._note((*path, number))
                self._value((*path, number))
                number += 1
                if self._peek() == ",":
                    self.position += 1
            self.position += 1
        elif opening == "{":
            self.position += 1
            while self._peek() != "}":
                self._pair(path)
                if self._peek() == ",":
                    self.position += 1
            self.position += 1
        else:
            kind = _STRING if opening in "\"'" else _SCALAR
            match = kind.match(self.text, self.position)
            self.position = match.end() if match else len(self.text)
