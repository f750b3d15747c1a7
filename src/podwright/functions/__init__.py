"""Functions that run in other processes: how they get there, and how what they return comes home.

The other process is started as `python -m podwright.functions`; what it is to call, and where it
is to write, it is told by two variables or two arguments. What concerns pickling is loaded when it
is asked for: a plain launch only needs the names.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podwright.functions._call import dump_call
    from podwright.functions._call_outcome import CallOutcome, finished, read_outcome
    from podwright.functions._trusted_files import private_folder

#: In the environment of an instance: the file with the call, and where to write the outcome.
PAYLOAD_VARIABLE = "PODWRIGHT_PAYLOAD"
RESULT_VARIABLE = "PODWRIGHT_RESULT"

__all__ = [
    "PAYLOAD_VARIABLE",
    "RESULT_VARIABLE",
    "CallOutcome",
    "dump_call",
    "finished",
    "private_folder",
    "read_outcome",
]
_LATER = {
    "_call": ("dump_call",),
    "_trusted_files": ("private_folder",),
    "_call_outcome": ("CallOutcome", "finished", "read_outcome"),
}


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            return getattr(importlib.import_module(f"podwright.functions.{module}"), name)
    raise AttributeError(name)
