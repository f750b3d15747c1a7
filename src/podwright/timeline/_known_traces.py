"""Remembers the file of each launch's timeline, so that `podwright trace JOB` finds it by a name.

The notes are lines of JSON in this user's state folder, the newest last, some hundreds at most. A
note is only a convenience, so errors when it is written or read are ignored.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

_FILE = "traces.jsonl"
#: The limit of all notes in bytes; beyond it, the older half is removed.
_MOST = 256 << 10


def _path(environ: Mapping[str, str]) -> str:
    state, home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
    base = state if os.path.isabs(state) else os.path.join(home, ".local", "state")
    return os.path.join(base, "podwright", _FILE) if os.path.isabs(base) else ""


def note(environ: Mapping[str, str], path: str, **names: str) -> None:
    """Note that a launch with these names has its timeline in that file."""
    import json

    notes = _path(environ)
    if not notes:
        return
    named = {name: value for name, value in names.items() if value}
    line = json.dumps({"file": os.path.abspath(path), **named}).encode() + b"\n"
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(notes), 0o700, exist_ok=True)
        with open(os.open(notes, flags, 0o600), "rb+") as file:
            file.write(line)
            file.flush()
            if file.tell() > _MOST:
                file.seek(_MOST // 2)
                older_lines = file.read().partition(b"\n")[2]
                fresh = f"{notes}.{os.getpid()}"
                with open(os.open(fresh, flags | os.O_EXCL, 0o600), "wb") as new:
                    new.write(older_lines)
                os.replace(fresh, notes)


def find_trace(environ: Mapping[str, str], job: str) -> str:
    """Return the newest timeline of a launch with this name; empty if none is known."""
    import json

    latest = ""
    with contextlib.suppress(OSError), open(_path(environ), "rb") as file:
        for line in file.read(2 * _MOST).splitlines():
            with contextlib.suppress(ValueError):
                entry: Any = json.loads(line)
                if isinstance(entry, dict) and job in (entry.get(n) for n in entry if n != "file"):
                    latest = str(entry.get("file", ""))
    return latest
