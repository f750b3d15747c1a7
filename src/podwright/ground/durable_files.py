"""Files that are written as a whole or not at all, and the folders of this account."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

_FOLDER_BELOW_HOME = {
    "cache": ".cache",
    "config": ".config",
    "data": ".local/share",
    "state": ".local/state",
}


def user_folder(kind: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return this account's folder for `cache`, `config`, `data` or `state` (XDG base directories).

    A relative path in XDG's variable is ignored, as its specification says.
    """
    folder = environ.get(f"XDG_{kind.upper()}_HOME", "")
    if folder.startswith("/"):
        return folder
    home = environ.get("HOME") or os.path.expanduser("~")
    return os.path.join(home, _FOLDER_BELOW_HOME[kind])


def write_whole(
    path: str | os.PathLike[str], content: str | bytes, mode: int | None = 0o600
) -> None:
    """Write a file as a whole or not at all, in place of an older one. It is durable on return.

    The folder must exist. A link is replaced, not followed. content: text is written as UTF-8.
    mode: None keeps the mode, owner and attributes of the older file. Raises OSError; the older
    file is then unchanged.
    """
    folder, name = os.path.split(os.fspath(path))
    scratch_path = os.path.join(folder, f".{name}.{os.urandom(6).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    folder_descriptor = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with open(os.open(scratch_path, flags, 0o600), "wb") as file:
            if isinstance(content, str):
                content = content.encode("utf-8", "surrogateescape")
            file.write(content)
            if mode is None:
                _take_attributes(os.fspath(path), scratch_path)
            else:
                os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch_path, path)
        os.fsync(folder_descriptor)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch_path)
        raise
    finally:
        os.close(folder_descriptor)


def _take_attributes(old_path: str, new_path: str) -> None:
    import shutil

    status = os.stat(old_path)
    shutil.copystat(old_path, new_path)
    os.chown(new_path, status.st_uid, status.st_gid)
    os.utime(new_path)
