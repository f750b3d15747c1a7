"""Files that are written into a folder of their own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from podwright.errors import AlreadyExists, Unavailable


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Let the block fill a folder that is empty or missing. If it fails, nothing is left.

    Raises AlreadyExists for a folder that is not empty, and Unavailable where files cannot be
    written.
    """
    try:
        is_new_folder = not folder.exists()
        if not is_new_folder and any(folder.iterdir()):
            raise AlreadyExists(f"{folder} is not empty", would_work="choose another folder")
        try:
            yield
        except BaseException:
            _empty_folder(folder, remove=is_new_folder)
            raise
    except OSError as error:
        raise Unavailable(
            f"{folder} cannot be written: {error.strerror or error}",
            would_work="choose another folder",
        ) from error


def _empty_folder(folder: Path, *, remove: bool) -> None:
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    if remove:
        folder.rmdir()


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts, by their paths in a folder that is empty or missing.

    Raises AlreadyExists, Unavailable.
    """
    with filled(folder):
        for path, content in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8")
