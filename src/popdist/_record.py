"""Says why a program ended, for the record that poprun keeps of a failure.

The file is the one that torchrun's children write, and so is its form: a program that uses torch's
`@record` and one that calls `popdist.init()` are understood alike. The file is named by poprun.
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

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
_P = ParamSpec("_P")
_R = TypeVar("_R")


def record(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a program's main function: an exception that leaves it is recorded, and goes on.

    As torchrun's `record`; `popdist.init()` does the same for what nobody catches. Ours.
    """

    @functools.wraps(function)
    def recorded(*arguments: _P.args, **named: _P.kwargs) -> _R:
        try:
            return function(*arguments, **named)
        except Exception as error:
            write(error)
            raise

    return recorded


def write(error: BaseException) -> None:
    """Write an exception into the file, if there is one to be written."""
    path = os.environ.get(ERROR_FILE)
    if not path:
        return
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    more = {"py_callstack": "".join(lines), "timestamp": str(int(time.time()))}
    message = {"message": f"{type(error).__name__}: {error}", "extraInfo": more}
    with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as file:
        json.dump({"message": message}, file)


def record_uncaught() -> None:
    """From now on record what nobody catches; again is no error."""
    before = sys.excepthook
    if getattr(before, "_records", False) or not os.environ.get(ERROR_FILE):
        return

    def hook(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        write(error)
        before(kind, error, where)

    hook._records = True  # type: ignore[attr-defined]
    sys.excepthook = hook
