"""Files that no other user could have written.

Unpickling a file runs code, so this is checked first.
"""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from podwright.errors import Denied


def open_own_file(path: str) -> BinaryIO:
    """Open a file that only this user could have written, in a folder for which the same is true.

    A link is not followed. Raises Denied and FileNotFoundError.
    """
    folder = os.path.dirname(path) or "."
    _check_trusted(folder, os.stat(folder), folder=True)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Denied(f"{path} is not read: {error.strerror}") from None
    try:
        _check_trusted(path, os.fstat(descriptor), folder=False)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def _check_trusted(path: str, file_status: os.stat_result, *, folder: bool) -> None:
    is_right_type = stat.S_ISDIR if folder else stat.S_ISREG
    problem = ""
    if not is_right_type(file_status.st_mode):
        problem = f"is not {'a folder' if folder else 'an ordinary file'}"
    elif file_status.st_uid != os.getuid():
        problem = f"belongs to the user with number {file_status.st_uid}"
    elif file_status.st_mode & 0o022:
        problem = f"may be written by others (its mode is {stat.S_IMODE(file_status.st_mode):04o})"
    if problem:
        raise Denied(
            f"{path} {problem}: what is in it would be run, and somebody else may have written it",
            would_work="use a folder of your own with mode 0700",
            path=path,
        )
