"""The owner of a process, from /proc. A process may end while it is read."""

from __future__ import annotations

import os

from podwright.hosts.gpus._pci import read_line
from podwright.hosts.gpus._vendor_library import GpuUser


def holder(pid: int, used_bytes: int | None, slice_name: str = "", root: str = "/") -> GpuUser:
    """Return the process with what is known of it."""
    folder = os.path.join(root, "proc", str(pid))
    try:
        uid = os.stat(folder).st_uid
    except OSError:
        return GpuUser(pid, "", "", used_bytes, slice_name)
    return GpuUser(
        pid,
        _user_name_of_uid(uid),
        read_line(os.path.join(folder, "comm")),
        used_bytes,
        slice_name,
    )


def _user_name_of_uid(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
