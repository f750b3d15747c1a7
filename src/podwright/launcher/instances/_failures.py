"""A record of each instance that failed, for programs: `failures.jsonl` in `--log-dir`.

Each line is one JSON object, with the fields in docs/poprun.md. An instance writes what it knows of
its end into the file that TORCHELASTIC_ERROR_FILE names, in torchrun's form. popdist does so, and
so does a function with torch's `@record` (torch.distributed.elastic.multiprocessing.errors).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from podwright.launcher.instances._run_folder import RunFolder

NAME = "failures.jsonl"
#: The limit in bytes of an instance's text about its end.
_MAX_ERROR_TEXT_BYTES = 1 << 20


class Failure(NamedTuple):
    """One failure. at: seconds since 1970 when it was noticed. pid: as the instance knows it.

    error_text: the content of its error file. first: whether it is why the launch ended.
    """

    rank: int
    at: float
    code: int
    pid: int
    error_text: str = ""
    first: bool = False


class FailureLog:
    """Collects the records of instances that fail. folder: the run's. hosts: by instance.

    logs: the folder for the records at the end (`--log-dir`); empty: none are kept.
    """

    def __init__(self, folder: RunFolder, hosts: Sequence[str], logs: str) -> None:
        self._folder, self._hosts, self._logs = folder, hosts, logs
        self._pids: dict[int, int] = {}
        self._error_texts: dict[int, str] = {}
        self._failures: list[Failure] = []

    def record_process(self, rank: int, pid: int) -> None:
        """Note the process of an instance."""
        self._pids[rank] = pid

    def record_error(self, rank: int, error_text: str) -> None:
        """Note what an instance on another host wrote about its end."""
        self._error_texts[rank] = error_text

    def failed(self, rank: int, exit_code: int) -> None:
        """Note that an instance has failed."""
        path = self._folder.local_path(self._folder.stream(f"error.{rank}"))
        text = self._error_texts.get(rank) or read_error_file(path)
        pid = self._pids.get(rank, 0)
        self._failures.append(Failure(rank, time.time(), exit_code, pid, text))

    def write(self, last_lines_of: Callable[[int], Sequence[bytes]], causing_rank: int) -> str:
        """Append the records to the file. Returns what went wrong; empty if nothing did.

        causing_rank: the instance for which the launch ended; -1: none of them.
        """
        if not self._logs or not self._failures:
            return ""
        name, this_host, records = self._folder.name, os.uname().nodename, []
        for failure in self._failures:
            failure = failure._replace(first=failure.rank == causing_rank)
            host = self._hosts[failure.rank]
            host = this_host if host == "localhost" else host
            records.append(line_of(failure, name, host, last_lines_of(failure.rank)))
        return append(self._logs, records)


def read_error_file(error_path: str) -> str:
    """Return what an instance wrote about its end; empty if nothing."""
    try:
        with open(error_path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_ERROR_TEXT_BYTES)
    except OSError:
        return ""


def line_of(failure: Failure, run_name: str, host: str, last_lines: Sequence[bytes]) -> bytes:
    """Return the record of a failure as one line of JSON."""
    import json

    signal_name = None
    if failure.code > 128:
        with contextlib.suppress(ValueError):
            signal_name = signal.Signals(failure.code - 128).name
    message, traceback = _message_and_traceback(failure.error_text)
    record = {
        "run": run_name,
        "rank": failure.rank,
        "host": host,
        "pid": failure.pid,
        "time": failure.at,
        "code": failure.code,
        "signal": signal_name,
        "first": failure.first,
        "message": message,
        "traceback": traceback,
        "last_lines": [line.decode(errors="replace") for line in last_lines],
    }
    return json.dumps(record).encode() + b"\n"


def append(logs_folder: str, records: Sequence[bytes]) -> str:
    """Append records to the file. Returns what went wrong; empty if nothing did."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(os.path.join(logs_folder, NAME), flags, 0o600)
        with open(descriptor, "wb") as file:
            file.writelines(records)
    except OSError as error:
        return f"--log-dir: {logs_folder}: {error.strerror}; failures are not recorded"
    return ""


def _message_and_traceback(error_text: str) -> tuple[str | None, str | None]:
    """Return message and traceback of torchrun's form. A text of another form is the message
    itself.
    """
    import json

    if not error_text.strip():
        return None, None
    try:
        message: Any = json.loads(error_text)["message"]
    except (ValueError, KeyError, TypeError):
        return error_text, None
    if not isinstance(message, dict):
        return str(message), None
    extra_info = message.get("extraInfo")
    traceback = extra_info.get("py_callstack") if isinstance(extra_info, dict) else None
    return str(message.get("message", "")), str(traceback) if traceback else None
