"""The places of servers on this machine, and how far they can be trusted."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence

from podwright.errors import Denied
from podwright.ground.durable_files import user_folder
from podwright.ground.endpoints import system_path

#: Files that a system's server has on its machine, whether it runs or not: unit, settings, store.
SYSTEM_SERVER_FILES = (
    system_path("/etc/systemd/system/vipu-server.service"),
    system_path("/usr/local/lib/systemd/system/vipu-server.service"),
    system_path("/usr/lib/systemd/system/vipu-server.service"),
    system_path("/lib/systemd/system/vipu-server.service"),
    system_path("/etc/podwright/vipu-server.env"),
    system_path("/etc/podwright/server.toml"),
    system_path("/var/lib/podwright/vipu-server.db"),
)
SYSTEM_CONFIG = system_path("/etc/vipu/vipu-cli.hcl")  # V-IPU's own path for it
DEFAULT_HOST = "localhost"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


def find_system_mark(mark_paths: Sequence[str]) -> str:
    """Return the first of these paths that exists; empty also where the unit is masked.

    A path that this user may not look at counts as existing; then the name of its folder is
    returned.
    """
    if any(os.path.islink(path) and os.readlink(path) == os.devnull for path in mark_paths):
        return ""  # systemctl mask: this machine is to have no server
    for path in mark_paths:
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return os.path.dirname(path)  # a folder that is closed to us holds something
        return path
    return ""


def private_folder(folder: str, *, create: bool = False) -> bool:
    """Return whether the folder exists and belongs to this user only.

    Others can create folders in /tmp, so the owner is checked. create: make the folder if it is
    missing. Raises Denied for a folder of another user, for a link, and where it cannot be made.
    """
    suggestion = "set XDG_RUNTIME_DIR to a folder of your own"
    if create:
        try:
            os.mkdir(folder, mode=0o700)
        except FileExistsError:
            pass
        except OSError as error:
            reason = (error.strerror or "").lower()
            raise Denied(
                f"cannot make the folder {folder}: {reason}", would_work=suggestion
            ) from None
    try:
        folder_status = os.lstat(folder)
    except OSError:
        return False
    if not stat.S_ISDIR(folder_status.st_mode) or folder_status.st_uid != os.getuid():
        raise Denied(
            f"{folder} is not a folder of this user, so a server in it is not to be trusted",
            would_work=f"remove it, or {suggestion}",
        )
    if folder_status.st_mode & 0o077:
        os.chmod(folder, 0o700)
    return True


def contexts_path(environ: Mapping[str, str]) -> str:
    """Return the path of the contexts file, whether or not it exists."""
    return os.path.join(user_folder("config", environ), "podwright", "config.toml")
