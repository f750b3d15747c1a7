"""A record of each instance that failed, for programs: `failures.jsonl` in `--log-dir`.

One JSON object a line, as docs/poprun.md has its fields. What an instance itself knows of its end
it writes into the file that TORCHELASTIC_ERROR_FILE names, in torchrun's form: popdist does so, and
so does a function with torch's `@record` (torch.distributed.elastic.multiprocessing.errors).
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from typing import Any, NamedTuple

NAME = "failures.jsonl"
#: Bytes of what an instance says of its end.
_MAX = 1 << 20


class Failure(NamedTuple):
    """One end. at: seconds since 1970 when it was heard; pid: as the instance knows it.

    said: the content of its error file. first: whether it is why the launch ended.
    """

    rank: int
    at: float
    code: int
    pid: int
    said: str = ""
    first: bool = False


def read_said(path: str) -> str:
    """What an instance wrote of its end; empty if nothing."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX)
    except OSError:
        return ""


def line_of(failure: Failure, run: str, host: str, last_lines: Sequence[bytes]) -> bytes:
    """The record of a failure, as one line of JSON."""
    import json

    name = None
    if failure.code > 128:
        with contextlib.suppress(ValueError):
            name = signal.Signals(failure.code - 128).name
    message, traceback = _understood(failure.said)
    found = {
        "run": run,
        "rank": failure.rank,
        "host": host,
        "pid": failure.pid,
        "time": failure.at,
        "code": failure.code,
        "signal": name,
        "first": failure.first,
        "message": message,
        "traceback": traceback,
        "last_lines": [line.decode(errors="replace") for line in last_lines],
    }
    return json.dumps(found).encode() + b"\n"


def append(folder: str, lines: Sequence[bytes]) -> str:
    """Add records to the file; what went wrong, if anything."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        handle = os.open(os.path.join(folder, NAME), flags, 0o600)
        with open(handle, "wb") as file:
            file.writelines(lines)
    except OSError as error:
        return f"--log-dir: {folder}: {error.strerror}; failures are not recorded"
    return ""


def _understood(said: str) -> tuple[str | None, str | None]:
    """Message and traceback of torchrun's form; a text that is none is the message."""
    import json

    if not said.strip():
        return None, None
    try:
        message: Any = json.loads(said)["message"]
    except (ValueError, KeyError, TypeError):
        return said, None
    if not isinstance(message, dict):
        return str(message), None
    more = message.get("extraInfo")
    traceback = more.get("py_callstack") if isinstance(more, dict) else None
    return str(message.get("message", "")), str(traceback) if traceback else None
