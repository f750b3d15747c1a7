"""A function on its way: pickled by cloudpickle, after a line that names the Python it is for.

cloudpickle sends functions of `__main__` and lambdas as byte code, which only the same Python can
read. The version is therefore compared before anything is unpickled.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from podwright.errors import NotPicklable, PythonMismatch

_MAX_HEADER_BYTES = 1 << 20


class FunctionCall(NamedTuple):
    """A function and its arguments."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


def python() -> str:
    """Return this Python as a sentence names it: `CPython 3.11.7`."""
    name = {"cpython": "CPython", "pypy": "PyPy"}.get(sys.implementation.name)
    return f"{name or sys.implementation.name} {'.'.join(map(str, sys.version_info[:3]))}"


def _compatible_version(python_text: str) -> str:
    """Return the part that two Pythons must share: all but the last number."""
    return python_text.rpartition(".")[0]


def dump_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bytes:
    """Return the call as bytes. Raises NotPicklable."""
    import cloudpickle

    if not callable(function):
        raise NotPicklable(
            f"{function!r} is not a function", would_work="pass what is to be called"
        )
    try:
        pickled_call: bytes = cloudpickle.dumps(FunctionCall(function, tuple(args), dict(kwargs)))
    except Exception as error:
        function_name = getattr(function, "__qualname__", repr(function))
        raise NotPicklable(
            f"{function_name} cannot be sent to other processes: {type(error).__name__}: {error}",
            would_work="open files, locks and connections inside the function",
        ) from error
    header = {
        "python": python(),
        "path": [os.path.abspath(folder or ".") for folder in sys.path],
    }
    return json.dumps(header).encode() + b"\n" + pickled_call


def load_call(payload_file: BinaryIO, host_name: str) -> FunctionCall:
    """Return the call that was sent. Raises PythonMismatch before anything of it is unpickled."""
    import pickle

    header = json.loads(payload_file.readline(_MAX_HEADER_BYTES))
    own_python = python()
    if _compatible_version(header["python"]) != _compatible_version(own_python):
        raise PythonMismatch(
            f"the function was sent by {header['python']}, and host {host_name} has {own_python}",
            would_work=f"use the same Python on all hosts ({sys.executable} there)",
            host=host_name,
            here=header["python"],
            there=own_python,
        )
    # Modules beside the sending program are found here by the same search path.
    sys.path += [folder for folder in header["path"] if folder not in sys.path]
    call: FunctionCall = pickle.load(payload_file)
    return call
