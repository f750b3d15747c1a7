"""Facts about this host that a launch needs: its name, its programs, a free port."""

from __future__ import annotations

import os
from collections.abc import Mapping


def host_name() -> str:
    """Return this host's name, up to the first dot."""
    return os.uname().nodename.split(".")[0]


def find_program(program_name: str, environ: Mapping[str, str], *more_folders: str) -> str | None:
    """Return the file that `program_name` would run: itself if it has a slash, else the first on
    PATH.

    more_folders: folders to search after PATH. None: no such file can be executed.
    """
    if not program_name:
        return None
    if "/" in program_name:
        return program_name if _is_executable_file(program_name) else None
    path_folders = environ.get("PATH", os.defpath).split(os.pathsep)
    for folder in (*path_folders, *more_folders):
        candidate = os.path.join(folder or ".", program_name)
        if _is_executable_file(candidate):
            return candidate
    return None


def forbidden_program(program_name: str, environ: Mapping[str, str]) -> str | None:
    """Return the first existing file for `program_name` that may not be executed; or None."""
    if "/" in program_name:
        return (
            program_name
            if os.path.exists(program_name) and not _is_executable_file(program_name)
            else None
        )
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder or ".", program_name)
        if os.path.isfile(path) and not _is_executable_file(path):
            return path
    return None


def _is_executable_file(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def free_port(address: str = "127.0.0.1") -> int:
    """Return a TCP port that is free now. Another process may take it before it is used."""
    import socket

    with socket.socket() as probe_socket:
        probe_socket.bind((address, 0))
        return int(probe_socket.getsockname()[1])
