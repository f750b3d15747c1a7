"""This machine's places for servers, and how far they can be trusted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from podwright.errors import Denied

#: What a system's server leaves on its machine, whether it runs or not: unit, settings, store.
SYSTEM_MARKS = (
    "/etc/systemd/system/vipu-server.service",
    "/usr/local/lib/systemd/system/vipu-server.service",
    "/usr/lib/systemd/system/vipu-server.service",
    "/lib/systemd/system/vipu-server.service",
    "/etc/podwright/vipu-server.env",
    "/etc/podwright/server.toml",
    "/var/lib/podwright/vipu-server.db",
)
SYSTEM_CONFIG = "/etc/vipu/vipu-cli.hcl"  # V-IPU's own place for it
DEFAULT_HOST = "localhost"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def mark_of_system(marks: Iterable[str]) -> str:
    """The first of these that is there, or that we may not look at; empty where none is."""
    for path in marks:
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return os.path.dirname(path)  # it is kept from us, so somebody keeps something there
        return path
    return ""


def private_folder(folder: str, *, create: bool = False) -> bool:
    """Is there such a folder, ours alone? Others can write in /tmp: who owns it decides.

    Raises Denied for a folder that is somebody else's, a link, or cannot be made.
    """
    own = "set XDG_RUNTIME_DIR to a folder of your own"
    if create:
        try:
            os.mkdir(folder, mode=0o700)
        except FileExistsError:
            pass
        except OSError as error:
            reason = (error.strerror or "").lower()
            raise Denied(f"cannot make the folder {folder}: {reason}", would_work=own) from None
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise Denied(
            f"{folder} is not a folder of this user, so a server in it is not to be trusted",
            would_work=f"remove it, or {own}",
        )
    if found.st_mode & 0o077:
        os.chmod(folder, 0o700)
    return True
