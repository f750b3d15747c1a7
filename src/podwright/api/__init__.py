"""Podwright from Python: what `podwright` itself offers is made here, on the floors below.

Names are loaded when they are asked for, so that `import podwright` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podwright.api._job import Job, launch
    from podwright.api._partition import Partition
    from podwright.api._pod import Pod, connect, partition
    from podwright.api._run import run, run_async
    from podwright.api._walk import plan_launch

__all__ = [
    "Job",
    "Partition",
    "Pod",
    "connect",
    "launch",
    "partition",
    "plan_launch",
    "run",
    "run_async",
]
_LATER = {
    "_job": ("Job", "launch"),
    "_partition": ("Partition",),
    "_pod": ("Pod", "connect", "partition"),
    "_run": ("run", "run_async"),
    "_walk": ("plan_launch",),
}


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            return getattr(importlib.import_module(f"podwright.api.{module}"), name)
    raise AttributeError(name)
