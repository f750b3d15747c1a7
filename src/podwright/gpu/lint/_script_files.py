"""Job scripts as files: read with all their bytes, and replaced completely or not at all."""

from __future__ import annotations

import os
import sys

from podwright.errors import InvalidRequest, NotFound


def read_file(path: str) -> str:
    """Return the text of a file, or of standard input for `-`. Raises NotFound."""
    try:
        if path == "-" and not sys.stdin:
            raise OSError(0, "standard input is closed")
        if path == "-":
            return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as script:
            return script.read()
    except OSError as error:
        raise NotFound(f"{path}: {(error.strerror or 'cannot be read').lower()}") from error


def replace_file(path: str, text: str) -> None:
    """Replace a file's text atomically, and keep its mode. A link stays a link."""
    import tempfile

    if path == "-":
        raise InvalidRequest("--write needs a file, not -", would_work="lint --fix - < SCRIPT")
    real = os.path.realpath(path)
    mode = os.stat(real).st_mode & 0o7777
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(real), prefix=".lint-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, real)
    except BaseException:
        os.unlink(temporary)
        raise
