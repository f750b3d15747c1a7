"""Reads a site's configuration files, with the files that they include. Changes none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from podwright.errors import InvalidRequest

#: How deep files may include one another.
_MAX_INCLUDE_DEPTH: Final = 8


def read(path: Path) -> str:
    """Return a file's text, with every byte kept. Raises InvalidRequest where it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from None


def lines(path: Path, depth: int = _MAX_INCLUDE_DEPTH) -> Iterator[str]:
    """Yield the lines of a slurm.conf and of the files that it includes. Continued lines are
    joined.
    """
    try:
        text = path.read_text(errors="surrogateescape")
    except OSError:
        return
    for line in re.sub(r"\\\s*\n", " ", text).splitlines():
        tokens = line.partition("#")[0].split()
        if len(tokens) == 2 and tokens[0].lower() == "include" and depth:
            yield from lines(path.parent / tokens[1], depth - 1)
        elif tokens:
            yield " ".join(tokens)


def included_files(path: Path, depth: int = _MAX_INCLUDE_DEPTH) -> Iterator[Path]:
    """Yield the files that a slurm.conf includes, and those that these include."""
    for line in path.read_text(errors="surrogateescape").splitlines():
        tokens = line.partition("#")[0].split()
        if len(tokens) == 2 and tokens[0].lower() == "include" and depth:
            included_path = path.parent / tokens[1]
            if included_path.is_file():
                yield included_path
                yield from included_files(included_path, depth - 1)
