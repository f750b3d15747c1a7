"""Facts about this host that a launch needs: its name, its programs, a free port."""

from __future__ import annotations

import os
from collections.abc import Mapping


def host_name() -> str:
    """Return this host's name, up to the first dot."""
    return os.uname().nodename.split(".")[0]


def find_program(name: str, environ: Mapping[str, str], *also: str) -> str | None:
    """Return the file that `name` would run: itself if it has a slash, else the first on PATH.

    also: folders to search after PATH. None: no such file can be executed.
    """
    if not name:
        return None
    if "/" in name:
        return name if _runs(name) else None
    path = environ.get("PATH", os.defpath).split(os.pathsep)
    for folder in (*path, *also):
        candidate = os.path.join(folder or ".", name)
        if _runs(candidate):
            return candidate
    return None


def forbidden_program(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the first existing file for `name` that may not be executed; or None."""
    if "/" in name:
        return name if os.path.exists(name) and not _runs(name) else None
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder or ".", name)
        if os.path.isfile(path) and not _runs(path):
            return path
    return None


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def free_port(address: str = "127.0.0.1") -> int:
    """Return a TCP port that is free now. Another process may take it before it is used."""
    import socket

    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
