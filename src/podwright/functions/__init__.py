"""Functions that run in other processes: how they get there, and how what they return comes home.

The other process is started as `python -m podwright.functions`. Two variables or two arguments name
the file with the call and the place for its outcome. The modules that use pickle are loaded on
first use, since a plain launch needs only the variables' names.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podwright.functions._call import dump_call
    from podwright.functions._call_outcome import CallOutcome, finished, read_outcome
    from podwright.functions._trusted_files import private_folder

#: Environment variables of an instance: the file with the call, and the file for its outcome.
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
