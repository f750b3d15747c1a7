"""Remembers the file of each launch's timeline, so that `podwright trace JOB` finds it by a name.

The notes are lines of JSON in this user's state folder, the newest last, some hundreds at most. A
note is only a convenience, so errors when it is written or read are ignored.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from podwright.ground.durable_files import user_folder, write_whole

_NOTES_FILE = "traces.jsonl"
#: The limit of all notes in bytes; beyond it, the older half is removed.
_MOST_NOTES_BYTES = 256 << 10


def _notes_file_path(environ: Mapping[str, str]) -> str:
    return os.path.join(user_folder("state", environ), "podwright", _NOTES_FILE)


def note(environ: Mapping[str, str], trace_path: str, **launch_names: str) -> None:
    """Note that a launch with these names has its timeline in that file."""
    import json

    notes_path = _notes_file_path(environ)
    given_names = {kind: name for kind, name in launch_names.items() if name}
    note_line = json.dumps({"file": os.path.abspath(trace_path), **given_names}).encode() + b"\n"
    open_flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(notes_path), 0o700, exist_ok=True)
        with open(os.open(notes_path, open_flags, 0o600), "rb+") as notes_file:
            notes_file.write(note_line)
            notes_file.flush()
            if notes_file.tell() > _MOST_NOTES_BYTES:
                notes_file.seek(_MOST_NOTES_BYTES // 2)
                write_whole(notes_path, notes_file.read().partition(b"\n")[2])


def find_trace(environ: Mapping[str, str], launch_name: str) -> str:
    """Return the newest timeline of a launch with this name; empty if none is known."""
    import json

    latest_path = ""
    with contextlib.suppress(OSError), open(_notes_file_path(environ), "rb") as file:
        for note_line in file.read(2 * _MOST_NOTES_BYTES).splitlines():
            with contextlib.suppress(ValueError):
                entry: Any = json.loads(note_line)
                if isinstance(entry, dict) and launch_name in (
                    entry.get(kind) for kind in entry if kind != "file"
                ):
                    latest_path = str(entry.get("file", ""))
    return latest_path
