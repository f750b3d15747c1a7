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
from podwright.functions._trusted_files import open_own_file

_MAX_HEADER_BYTES = 1 << 24


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


def returned(returned_value: Any) -> bytes:
    """Return a returned value as bytes. Raises whatever pickling raises."""
    import cloudpickle

    pickled_value: bytes = cloudpickle.dumps(returned_value, protocol=5)
    return _dump_header({"size": len(pickled_value)}) + pickled_value


def raised(error: BaseException, host_name: str) -> bytes:
    """Return a raised exception as bytes."""
    import cloudpickle

    traceback_text = "".join(traceback.format_exception(error))
    pickled_error = b""
    # Only an ordinary exception is raised again by the receiver: SystemExit would end that
    # program.
    if isinstance(error, Exception):
        try:
            pickled_error = cloudpickle.dumps(error, protocol=5)
            if type(pickle.loads(pickled_error)) is not type(error):
                pickled_error = b""
        except Exception:
            pickled_error = b""
    header: dict[str, Any] = {
        "size": len(pickled_error),
        "traceback": traceback_text,
        "host": host_name,
    }
    header["type"] = f"{type(error).__module__}.{type(error).__qualname__}"
    try:
        header["words"] = str(error)
    except Exception:
        header["words"] = "(its words cannot be had)"
    if isinstance(error, PythonMismatch):
        header |= {"refusal": error.to_json(), "size": 0}
        pickled_error = b""
    return _dump_header(header) + pickled_error


def _dump_header(header: dict[str, Any]) -> bytes:
    return json.dumps(header).encode() + b"\n"


def _read_header(outcome_file: BinaryIO) -> dict[str, Any] | None:
    line = outcome_file.readline(_MAX_HEADER_BYTES)
    if not line.endswith(b"\n"):
        return None
    header: dict[str, Any] = json.loads(line)
    bytes_left = os.fstat(outcome_file.fileno()).st_size - outcome_file.tell()
    return header if bytes_left >= header["size"] else None


def finished(outcome_path: str) -> bool:
    """Return whether the whole outcome is in the file. Raises Denied."""
    try:
        with open_own_file(outcome_path) as outcome_file:
            return _read_header(outcome_file) is not None
    except FileNotFoundError:
        return False


def read_outcome(outcome_path: str, instance_index: int) -> CallOutcome | None:
    """Return an outcome, or None if it is not complete yet.

    Raises Denied for a file that others could have written. If the value cannot be unpickled here,
    for example because its module is missing, that is the error of the outcome.
    """
    try:
        outcome_file = open_own_file(outcome_path)
    except FileNotFoundError:
        return None
    with outcome_file:
        header = _read_header(outcome_file)
        if header is None:
            return None
        if "traceback" not in header:
            try:
                return CallOutcome(instance_index, pickle.load(outcome_file))
            except Exception as error:
                return CallOutcome(instance_index, error=error)
        return CallOutcome(
            instance_index, error=_remote_error(header, outcome_file, instance_index)
        )


def _remote_error(
    header: dict[str, Any], outcome_file: BinaryIO, instance_index: int
) -> BaseException:
    place_text = f"in instance {instance_index} on {header['host']}"
    if refusal := header.get("refusal"):
        refusal_data = refusal["data"]
        return PythonMismatch(refusal["problem"], would_work=refusal["would_work"], **refusal_data)
    if header["size"]:
        try:
            error: BaseException = pickle.load(outcome_file)
        except Exception:
            pass
        else:
            error.__cause__ = RemoteTraceback(header["traceback"])
            error.add_note(place_text)
            return error
    type_name = header["type"].removeprefix("builtins.")
    instance_failure: PodwrightError = InstanceFailed(
        f"{type_name} {place_text}: {header['words']}",
        instance=instance_index,
        host=header["host"],
        type=type_name,
        traceback=header["traceback"],
    )
    instance_failure.__cause__ = RemoteTraceback(header["traceback"])
    return instance_failure
