"""Replays recorded jobs under other ways of scheduling, with the product's own decisions.

A replay compares ways on one pod. Each module is loaded when one of its names is asked for, so
that the options of `podwright replay` load no simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.ground.lazy_imports import lazy_names

if TYPE_CHECKING:
    from podwright.replay._outcome import Outcome
    from podwright.replay._outcome_figures import figures
    from podwright.replay._parallel import ReplayTask, SimulationFailed, run_all
    from podwright.replay._report import replay
    from podwright.replay._run_state import Chances
    from podwright.replay._simulate import simulate
    from podwright.replay._slurm_model import SIMPLER, SlurmModel, from_conf
    from podwright.replay.grounds._ground import Ground
    from podwright.replay.grounds._pod_ground import POLICIES
    from podwright.replay.grounds._scheduling_ways import (
        HostKind,
        ReplayWay,
        pod_size,
        pod_ways,
    )
    from podwright.replay.traces._csv import write_anonymous
    from podwright.replay.traces._example import example
    from podwright.replay.traces._offered_load import stretch_for, stretched
    from podwright.replay.traces._read import read_lines, read_trace
    from podwright.replay.traces._sacct import SACCT_COMMAND
    from podwright.replay.traces._trace import BadLine, Skipped, Status, Trace, TraceJob

__all__ = [
    "POLICIES",
    "SACCT_COMMAND",
    "SIMPLER",
    "BadLine",
    "Chances",
    "Ground",
    "HostKind",
    "Outcome",
    "ReplayTask",
    "ReplayWay",
    "SimulationFailed",
    "Skipped",
    "SlurmModel",
    "Status",
    "Trace",
    "TraceJob",
    "example",
    "figures",
    "from_conf",
    "pod_size",
    "pod_ways",
    "read_lines",
    "read_trace",
    "replay",
    "run_all",
    "simulate",
    "stretch_for",
    "stretched",
    "write_anonymous",
]

_LATER = {
    "_outcome_figures": ("figures",),
    "_outcome": ("Outcome",),
    "_parallel": ("ReplayTask", "SimulationFailed", "run_all"),
    "_report": ("replay",),
    "_run_state": ("Chances",),
    "_simulate": ("simulate",),
    "_slurm_model": ("SIMPLER", "SlurmModel", "from_conf"),
    "grounds._ground": ("Ground",),
    "grounds._pod_ground": ("POLICIES",),
    "grounds._scheduling_ways": ("HostKind", "ReplayWay", "pod_size", "pod_ways"),
    "traces._csv": ("write_anonymous",),
    "traces._example": ("example",),
    "traces._offered_load": ("stretch_for", "stretched"),
    "traces._read": ("read_lines", "read_trace"),
    "traces._sacct": ("SACCT_COMMAND",),
    "traces._trace": ("BadLine", "Skipped", "Status", "Trace", "TraceJob"),
}

if not TYPE_CHECKING:  # with it, no misspelt name would be found
    __getattr__ = lazy_names(__name__, _LATER)
