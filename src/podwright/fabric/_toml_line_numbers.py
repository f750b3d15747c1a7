"""The line of each key of a TOML file, which tomllib does not report.

It reads files that tomllib has accepted already, so it checks nothing. It only walks over strings,
arrays and tables, and notes where keys and array items begin.
"""

from __future__ import annotations

import re
from bisect import bisect_left

Path = tuple[str | int, ...]

_BLANK_PATTERN = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY_PATTERN = re.compile(r"""[ \t]*("(?:\\.|[^"\\])*"|'[^']*'|[A-Za-z0-9_-]+)[ \t]*(\.?)""")
_STRING_PATTERN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|'
    r"'''.*?'{3,5}|"
    r'"(?:\\.|[^"\\])*"|'
    r"'[^']*'",
    re.DOTALL,
)
_SCALAR_PATTERN = re.compile(r"[^,\]}#\r\n]*")


def key_lines(toml_text: str) -> dict[Path, int]:
    """Return the line, from 1, of each key and array item, by path: `("machines", 2, "host")`."""
    return _KeyLineScanner(toml_text).lines


class _KeyLineScanner:
    def __init__(self, toml_text: str) -> None:
        self.text, self.position = toml_text, 0
        self._ends = [newline.start() for newline in re.finditer("\n", toml_text)]
        self.lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}  # number of tables so far, by array of tables
        table_path: Path = ()
        while self._peek_character():
            if toml_text.startswith("[[", self.position):
                self.position += 2
                table_path = self._read_header()
                table_index = self._counts[table_path] = self._counts.get(table_path, -1) + 1
                table_path = (*table_path, table_index)
                self._note_line(table_path)
                self.position += 2
            elif toml_text[self.position] == "[":
                self.position += 1
                table_path = self._read_header()
                self._note_line(table_path)
                self.position += 1
            else:
                self._read_pair(table_path)

    def _peek_character(self) -> str:
        match = _BLANK_PATTERN.match(self.text, self.position)
        self.position = match.end() if match else self.position
        return self.text[self.position : self.position + 1]

    def _note_line(self, key_path: Path) -> None:
        self.lines.setdefault(key_path, bisect_left(self._ends, self.position) + 1)

    def _read_key(self) -> Path:
        parts: list[str] = []
        separator = "."
        while separator:
            key_match = _KEY_PATTERN.match(self.text, self.position)
            if key_match is None:
                raise ValueError(f"no key at offset {self.position}")
            self.position = key_match.end()
            parts.append(key_match[1].strip("\"'"))
            separator = key_match[2]
        return tuple(parts)

    def _read_header(self) -> Path:
        path: Path = ()
        for part in self._read_key():
            if path in self._counts:
                path = (*path, self._counts[path])
            path = (*path, part)
        return path

    def _read_pair(self, table_path: Path) -> None:
        start_position = self.position
        key_path = table_path
        for part in self._read_key():
            key_path = (*key_path, part)
            end_position, self.position = self.position, start_position
            self._note_line(key_path)
            self.position = end_position
        self.position += 1  # the equals sign
        self._read_value(key_path)

    def _read_value(self, value_path: Path) -> None:
        first_character = self._peek_character()
        if first_character == "[":
            self.position += 1
            item_index = 0
            while self._peek_character() != "]":
                self._note_line((*value_path, item_index))
                self._read_value((*value_path, item_index))
                item_index += 1
                if self._peek_character() == ",":
                    self.position += 1
            self.position += 1
        elif first_character == "{":
            self.position += 1
            while self._peek_character() != "}":
                self._read_pair(value_path)
                if self._peek_character() == ",":
                    self.position += 1
            self.position += 1
        else:
            value_pattern = _STRING_PATTERN if first_character in "\"'" else _SCALAR_PATTERN
            value_match = value_pattern.match(self.text, self.position)
            self.position = value_match.end() if value_match else len(self.text)
