"""Reads a site's configuration files, with the files that they include. Changes none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from podwright.errors import InvalidRequest

#: How deep files may include one another.
_DEPTH: Final = 8


def read(path: Path) -> str:
    """Return a file's text, with every byte kept. Raises InvalidRequest where it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from None


def lines(path: Path, depth: int = _DEPTH) -> Iterator[str]:
    """Yield the lines of a slurm.conf and of the files that it includes. Continued lines are
    joined.
    """
    try:
        text = path.read_text(errors="surrogateescape")
    except OSError:
        return
    for line in re.sub(r"\\\s*\n", " ", text).splitlines():
        words = line.partition("#")[0].split()
        if len(words) == 2 and words[0].lower() == "include" and depth:
            yield from lines(path.parent / words[1], depth - 1)
        elif words:
            yield " ".join(words)


def included(path: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Yield the files that a slurm.conf includes, and those that these include."""
    for line in path.read_text(errors="surrogateescape").splitlines():
        words = line.partition("#")[0].split()
        if len(words) == 2 and words[0].lower() == "include" and depth:
            file = path.parent / words[1]
            if file.is_file():
                yield file
                yield from included(file, depth - 1)
