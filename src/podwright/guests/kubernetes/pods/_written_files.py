"""Files that are written into a folder of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from podwright.errors import AlreadyExists


def check_empty(folder: Path) -> None:
    """Raise AlreadyExists for a folder that has something in it."""
    if folder.exists() and any(folder.iterdir()):
        raise AlreadyExists(f"{folder} is not empty", would_work="choose another folder")


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts, by their paths in a folder that is empty or missing. Raises AlreadyExists."""
    check_empty(folder)
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
