"""Job scripts as files: read with all their bytes, and replaced completely or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from podwright.errors import InvalidRequest, NotFound
from podwright.ground.durable_files import write_whole


def read_file(path: str) -> str:
    """Return the text of a file, or of standard input for `-`. Raises NotFound."""
    try:
        if path == "-" and not sys.stdin:
            raise OSError(0, "standard input is closed")
        if path == "-":
            return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as script_file:
            return script_file.read()
    except OSError as error:
        raise NotFound(f"{path}: {(error.strerror or 'cannot be read').lower()}") from error


def read_beside(script_path: str) -> Callable[[str], str]:
    """Return a reader of small files as the job finds them: from here, or beside its script."""

    def read(path: str) -> str:
        for folder in ("", os.path.dirname(script_path)):
            try:
                with open(os.path.join(folder, path), encoding="utf-8") as file:
                    is_small = os.path.isfile(file.name) and os.fstat(file.fileno()).st_size < 65536
                    return file.read() if is_small else ""
            except (OSError, ValueError):
                continue
        return ""

    return read


def replace_file(path: str, new_text: str) -> None:
    """Replace a file's text atomically, and keep its mode. A link stays a link."""
    if path == "-":
        raise InvalidRequest("--write needs a file, not -", would_work="lint --fix - < SCRIPT")
    real_path = os.path.realpath(path)
    write_whole(real_path, new_text, os.stat(real_path).st_mode & 0o7777)
