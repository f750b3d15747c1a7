"""Functions that run in other processes: how they get there, and how what they return comes home.

The other process is started as `python -m podwright.functions`. Two variables name the file with
the call and the place for its outcome. The modules that use pickle are loaded on
first use, since a plain launch needs only the variables' names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.ground.lazy_imports import lazy_names

if TYPE_CHECKING:
    from podwright.functions._call import dump_call
    from podwright.functions._call_outcome import CallOutcome, finished, read_outcome

#: Environment variables of an instance: the file with the call, and the file for its outcome.
PAYLOAD_VARIABLE = "PODWRIGHT_PAYLOAD"
RESULT_VARIABLE = "PODWRIGHT_RESULT"

__all__ = [
    "PAYLOAD_VARIABLE",
    "RESULT_VARIABLE",
    "CallOutcome",
    "dump_call",
    "finished",
    "read_outcome",
]
#: Each module, and the names that come from it.
_LATER = {
    "_call": ("dump_call",),
    "_call_outcome": ("CallOutcome", "finished", "read_outcome"),
}

if not TYPE_CHECKING:  # with it, no misspelt name would be found
    __getattr__ = lazy_names(__name__, _LATER)
