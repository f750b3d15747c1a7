"""A record of each instance that failed, for programs: `failures.jsonl` in `--log-dir`.

One JSON object a line, as docs/poprun.md has its fields. What an instance itself knows of its end
it writes into the file that TORCHELASTIC_ERROR_FILE names, in torchrun's form: popdist does so, and
so does a function with torch's `@record` (torch.distributed.elastic.multiprocessing.errors).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from podwright.launcher._folder import RunFolder

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


class FailureLog:
    """Keeps what there is to say of instances that fail. folder: the run's. hosts: by instance.

    logs: where the records go at the end (`--log-dir`); empty: nowhere.
    """

    def __init__(self, folder: RunFolder, hosts: Sequence[str], logs: str) -> None:
        self._folder, self._hosts, self._logs = folder, hosts, logs
        self._pids: dict[int, int] = {}
        self._said: dict[int, str] = {}
        self._failures: list[Failure] = []

    def began(self, index: int, pid: int) -> None:
        """An instance runs as this process."""
        self._pids[index] = pid

    def said(self, index: int, text: str) -> None:
        """What an instance on another host wrote of its end."""
        self._said[index] = text

    def failed(self, index: int, code: int, *, first: bool) -> None:
        """An instance has failed."""
        path = self._folder.here(self._folder.stream(f"error.{index}"))
        said = self._said.get(index) or read_said(path)
        pid = self._pids.get(index, 0)
        self._failures.append(Failure(index, time.time(), code, pid, said, first))

    def write(self, last_words: Callable[[int], Sequence[bytes]]) -> str:
        """Add the records to the file; what went wrong, if anything."""
        if not self._logs or not self._failures:
            return ""
        run, here, lines = self._folder.name, os.uname().nodename, []
        for failure in self._failures:
            host = self._hosts[failure.rank]
            host = here if host == "localhost" else host
            lines.append(line_of(failure, run, host, last_words(failure.rank)))
        return append(self._logs, lines)


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
