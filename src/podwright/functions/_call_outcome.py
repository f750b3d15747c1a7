"""How a call ended, on its way back: a line that says so, then what was returned or raised.

The line contains the number of bytes that follow, so a reader recognises an outcome that is not
complete yet. An exception that cannot be pickled, or not be restored from its pickle, arrives as
InstanceFailed with its type, message and traceback.
"""

from __future__ import annotations

import json
import os
import pickle
import traceback
from typing import Any, BinaryIO, NamedTuple

from podwright.errors import InstanceFailed, PodwrightError, PythonMismatch
from podwright.functions._trusted_files import open_own

_LONGEST_LINE = 1 << 24


class RemoteTraceback(Exception):
    """The traceback of an exception in another process.

    It is set as the cause of that exception.
    """

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class CallOutcome(NamedTuple):
    """How a call ended. error: the exception that it raised, or None."""

    instance: int
    value: Any = None
    error: BaseException | None = None


def returned(value: Any) -> bytes:
    """Return a returned value as bytes. Raises whatever pickling raises."""
    import cloudpickle

    body: bytes = cloudpickle.dumps(value, protocol=5)
    return _line({"size": len(body)}) + body


def raised(error: BaseException, host: str) -> bytes:
    """Return a raised exception as bytes."""
    import cloudpickle

    text = "".join(traceback.format_exception(error))
    body = b""
    # Only an ordinary exception is raised again by the receiver: SystemExit would end that
    # program.
    if isinstance(error, Exception):
        try:
            body = cloudpickle.dumps(error, protocol=5)
            if type(pickle.loads(body)) is not type(error):
                body = b""
        except Exception:
            body = b""
    outcome: dict[str, Any] = {"size": len(body), "traceback": text, "host": host}
    outcome["type"] = f"{type(error).__module__}.{type(error).__qualname__}"
    try:
        outcome["words"] = str(error)
    except Exception:
        outcome["words"] = "(its words cannot be had)"
    if isinstance(error, PythonMismatch):
        outcome |= {"refusal": error.to_json(), "size": 0}
        body = b""
    return _line(outcome) + body


def _line(outcome: dict[str, Any]) -> bytes:
    return json.dumps(outcome).encode() + b"\n"


def _head(file: BinaryIO) -> dict[str, Any] | None:
    line = file.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        return None
    outcome: dict[str, Any] = json.loads(line)
    left = os.fstat(file.fileno()).st_size - file.tell()
    return outcome if left >= outcome["size"] else None


def finished(path: str) -> bool:
    """Return whether the whole outcome is in the file. Raises Denied."""
    try:
        with open_own(path) as file:
            return _head(file) is not None
    except FileNotFoundError:
        return False


def read_outcome(path: str, instance: int) -> CallOutcome | None:
    """Return an outcome, or None if it is not complete yet.

    Raises Denied for a file that others could have written. If the value cannot be unpickled here,
    for example because its module is missing, that is the error of the outcome.
    """
    try:
        file = open_own(path)
    except FileNotFoundError:
        return None
    with file:
        outcome = _head(file)
        if outcome is None:
            return None
        if "traceback" not in outcome:
            try:
                return CallOutcome(instance, pickle.load(file))
            except Exception as error:
                return CallOutcome(instance, error=error)
        return CallOutcome(instance, error=_error(outcome, file, instance))


def _error(outcome: dict[str, Any], file: BinaryIO, instance: int) -> BaseException:
    where = f"in instance {instance} on {outcome['host']}"
    if refusal := outcome.get("refusal"):
        data = refusal["data"]
        return PythonMismatch(refusal["problem"], would_work=refusal["would_work"], **data)
    if outcome["size"]:
        try:
            error: BaseException = pickle.load(file)
        except Exception:
            pass
        else:
            error.__cause__ = RemoteTraceback(outcome["traceback"])
            error.add_note(where)
            return error
    kind = outcome["type"].removeprefix("builtins.")
    failed: PodwrightError = InstanceFailed(
        f"{kind} {where}: {outcome['words']}",
        instance=instance,
        host=outcome["host"],
        type=kind,
        traceback=outcome["traceback"],
    )
    failed.__cause__ = RemoteTraceback(outcome["traceback"])
    return failed
