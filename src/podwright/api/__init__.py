"""Podwright from Python: what `podwright` itself offers is made here, on the floors below.

A name is loaded when it is first used, so that `import podwright` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.ground.lazy_imports import lazy_names

if TYPE_CHECKING:
    from podwright.api._launch_function import Job, launch
    from podwright.api._partition import Partition
    from podwright.api._plan_launch import plan_launch
    from podwright.api._pod import Pod, connect, partition
    from podwright.api._pod_admin import MachineRow, PodAdmin
    from podwright.api._run import Completed, run, run_async

__all__ = [
    "Completed",
    "Job",
    "MachineRow",
    "Partition",
    "Pod",
    "PodAdmin",
    "connect",
    "launch",
    "partition",
    "plan_launch",
    "run",
    "run_async",
]
#: Each module, and the names that come from it.
_LATER = {
    "_launch_function": ("Job", "launch"),
    "_partition": ("Partition",),
    "_pod": ("Pod", "connect", "partition"),
    "_pod_admin": ("MachineRow", "PodAdmin"),
    "_run": ("Completed", "run", "run_async"),
    "_plan_launch": ("plan_launch",),
}

if not TYPE_CHECKING:  # with it, no misspelt name would be found
    __getattr__ = lazy_names(__name__, _LATER)
