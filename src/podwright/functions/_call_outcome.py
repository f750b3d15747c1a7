"""How a call ended, on its way home: a line that says so, then what was returned or raised.

An exception that cannot be pickled, or cannot be made again from what it is pickled as, comes home
as InstanceFailed with its type, words and traceback.
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
    """Where an exception was raised in another process; it stands as the cause of that one."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class CallOutcome(NamedTuple):
    """How a call ended. error: what it raised, or None."""

    instance: int
    value: Any = None
    error: BaseException | None = None


def returned(value: Any) -> bytes:
    """What was returned, as it travels. Raises whatever pickling raises."""
    import cloudpickle

    body: bytes = cloudpickle.dumps(value, protocol=5)
    return _line({"size": len(body)}) + body


def raised(error: BaseException, host: str) -> bytes:
    """What was raised, as it travels."""
    import cloudpickle

    text = "".join(traceback.format_exception(error))
    body = b""
    # Only what is an ordinary failure is raised again at home: SystemExit would end that program.
    if isinstance(error, Exception):
        try:
            body = cloudpickle.dumps(error, protocol=5)
            if type(pickle.loads(body)) is not type(error):
                body = b""
        except Exception:
            body = b""
    said: dict[str, Any] = {"size": len(body), "traceback": text, "host": host}
    said["type"] = f"{type(error).__module__}.{type(error).__qualname__}"
    try:
        said["words"] = str(error)
    except Exception:
        said["words"] = "(its words cannot be had)"
    if isinstance(error, PythonMismatch):
        said |= {"refusal": error.to_json(), "size": 0}
        body = b""
    return _line(said) + body


def _line(said: dict[str, Any]) -> bytes:
    return json.dumps(said).encode() + b"\n"


def _head(file: BinaryIO) -> dict[str, Any] | None:
    line = file.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        return None
    said: dict[str, Any] = json.loads(line)
    left = os.fstat(file.fileno()).st_size - file.tell()
    return said if left >= said["size"] else None


def finished(path: str) -> bool:
    """Whether the whole of an outcome is there. Raises Denied."""
    try:
        with open_own(path) as file:
            return _head(file) is not None
    except FileNotFoundError:
        return False


def read_outcome(path: str, instance: int) -> CallOutcome | None:
    """An outcome, if the whole of it is there. Raises Denied for what others could have written.

    What cannot be unpickled here (its module is not there, say) is an error of the outcome.
    """
    try:
        file = open_own(path)
    except FileNotFoundError:
        return None
    with file:
        said = _head(file)
        if said is None:
            return None
        if "traceback" not in said:
            try:
                return CallOutcome(instance, pickle.load(file))
            except Exception as error:
                return CallOutcome(instance, error=error)
        return CallOutcome(instance, error=_error(said, file, instance))


def _error(said: dict[str, Any], file: BinaryIO, instance: int) -> BaseException:
    where = f"in instance {instance} on {said['host']}"
    if refusal := said.get("refusal"):
        told = refusal["data"]
        return PythonMismatch(refusal["problem"], would_work=refusal["would_work"], **told)
    if said["size"]:
        try:
            error: BaseException = pickle.load(file)
        except Exception:
            pass
        else:
            error.__cause__ = RemoteTraceback(said["traceback"])
            error.add_note(where)
            return error
    kind = said["type"].removeprefix("builtins.")
    failed: PodwrightError = InstanceFailed(
        f"{kind} {where}: {said['words']}",
        instance=instance,
        host=said["host"],
        type=kind,
        traceback=said["traceback"],
    )
    failed.__cause__ = RemoteTraceback(said["traceback"])
    return failed
