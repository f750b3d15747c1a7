"""Writes why a program ended, for the record that poprun keeps of a failure.

poprun names the file. The name of its variable and its form are those of torchrun's error file, so
poprun reads a program that uses torch's `@record` and one that calls `popdist.init()` alike.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

ERROR_FILE_VARIABLE = "TORCHELASTIC_ERROR_FILE"
_P = ParamSpec("_P")
_R = TypeVar("_R")


def record(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a program's main function: an exception that leaves it is recorded and raised again.

    It works as torchrun's `record`. `popdist.init()` does the same for uncaught exceptions. Ours.

    >>> popdist.record(lambda: 7)()
    7
    """

    @functools.wraps(function)
    def recorded(*arguments: _P.args, **keywords: _P.kwargs) -> _R:
        try:
            return function(*arguments, **keywords)
        except Exception as error:
            write(error)
            raise

    return recorded


def write(error: BaseException) -> None:
    """Write an exception into the file, if the environment names one."""
    path = os.environ.get(ERROR_FILE_VARIABLE)
    if not path:
        return
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    info = {"py_callstack": "".join(lines), "timestamp": str(int(time.time()))}
    fields = {"message": f"{type(error).__name__}: {error}", "extraInfo": info}
    with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as file:
        json.dump({"message": fields}, file)


def record_uncaught() -> None:
    """Record uncaught exceptions from now on. A second call does nothing."""
    former_hook = sys.excepthook
    if getattr(former_hook, "_records", False) or not os.environ.get(ERROR_FILE_VARIABLE):
        return

    def hook(
        error_type: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        write(error)
        former_hook(error_type, error, trace)

    hook._records = True  # type: ignore[attr-defined]
    sys.excepthook = hook
