"""Which file has the timeline of which launch: `podwright trace JOB` finds it by a name.

One line of JSON for each in this user's state folder, the newest last, and only some hundreds: a
note is no more than a help, so one that cannot be written or read is left alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

_FILE = "traces.jsonl"
#: Bytes of all notes, beyond which half of them go.
_MOST = 256 << 10


def _path(environ: Mapping[str, str]) -> str:
    state, home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
    base = state if os.path.isabs(state) else os.path.join(home, ".local", "state")
    return os.path.join(base, "podwright", _FILE) if os.path.isabs(base) else ""


def note(environ: Mapping[str, str], path: str, **names: str) -> None:
    """A launch with these names has its timeline in that file."""
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
                kept = file.read().partition(b"\n")[2]
                fresh = f"{notes}.{os.getpid()}"
                with open(os.open(fresh, flags | os.O_EXCL, 0o600), "wb") as new:
                    new.write(kept)
                os.replace(fresh, notes)


def find_trace(environ: Mapping[str, str], job: str) -> str:
    """The newest timeline of a launch that is called so; empty if none is known."""
    import json

    found = ""
    with contextlib.suppress(OSError), open(_path(environ), "rb") as file:
        for line in file.read(2 * _MOST).splitlines():
            with contextlib.suppress(ValueError):
                entry: Any = json.loads(line)
                if isinstance(entry, dict) and job in (entry.get(n) for n in entry if n != "file"):
                    found = str(entry.get("file", ""))
    return found
