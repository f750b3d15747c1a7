"""Reads a site's configuration files, with the files that they include. Changes none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from podwright.errors import InvalidRequest
from podwright.slurm.site.conf_lines import logical_lines, settings

#: How deep files may include one another.
_MAX_INCLUDE_DEPTH: Final = 8


def read(path: Path) -> str:
    """Return a file's text, with every byte kept. Raises InvalidRequest where it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from None


def lines(path: Path, depth: int = _MAX_INCLUDE_DEPTH) -> Iterator[str]:
    """Yield the logical lines of a slurm.conf and of the files that it includes."""
    try:
        text = path.read_text(errors="surrogateescape")
    except OSError:
        return
    for _, line in logical_lines(text):
        included_path = _included(path, line)
        if included_path and depth:
            yield from lines(included_path, depth - 1)
        elif line:
            yield line


def site_settings(slurm_conf: Path) -> dict[str, str]:
    """Return `settings` of a slurm.conf and of the files that it includes."""
    return settings("\n".join(lines(slurm_conf)))


def includes(path: Path) -> list[Path]:
    """Return the files that one file names, whether or not they exist. Raises InvalidRequest."""
    included_paths = (_included(path, line) for _, line in logical_lines(read(path)))
    return [included_path for included_path in included_paths if included_path]


def included_files(path: Path, depth: int = _MAX_INCLUDE_DEPTH) -> Iterator[Path]:
    """Yield the files that a slurm.conf includes, and those that these include.

    Raises InvalidRequest where one that exists cannot be read.
    """
    for included_path in includes(path) if depth else ():
        if included_path.is_file():
            yield included_path
            yield from included_files(included_path, depth - 1)


def _included(path: Path, line: str) -> Path | None:
    words = line.split()
    return path.parent / words[1] if len(words) == 2 and words[0].lower() == "include" else None
