"""The report, a plain dict: the trace, each way's figures, and how the ways differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict

from podwright.replay._outcome_figures import common_jobs, differences, figures
from podwright.replay._parallel import ReplayTask, run_all
from podwright.replay._report_types import ReportFigures, TraceFigures
from podwright.replay._run_state import Chances
from podwright.replay._slurm_model import DEVIATIONS, SIMPLER, SlurmModel
from podwright.replay.grounds._scheduling_ways import ReplayWay
from podwright.replay.traces._trace import Trace

Progress = Callable[[int, int], None]


def replay(
    trace: Trace,
    ways: Sequence[ReplayWay],
    slurm: SlurmModel,
    chances: Chances,
    *,
    processes: int = 0,
    progress: Progress | None = None,
) -> ReportFigures:
    """Simulate a trace under these ways, and return the report.

    The same trace, ways, model and seed give the same figures, byte for byte. Raises
    SimulationFailed.
    """
    tasks = [ReplayTask(way, slurm, chances) for way in ways]
    outcomes = run_all(trace, tasks, processes=processes, progress=progress)
    jobs = common_jobs(outcomes)
    way_rows = [figures(trace, outcome, jobs) for outcome in outcomes]
    way_kinds = {way.kind for way in ways}
    simpler = [*SIMPLER, *(sentence for row in way_rows for sentence in row["simpler"])]
    return {
        "trace": _trace_figures(trace),
        "slurm": asdict(slurm),
        "chances": {name: value for name, value in asdict(chances).items() if value < math.inf},
        "common_jobs": len(jobs),
        "ways": way_rows,
        "differences": [differences(trace, outcomes[0], other, jobs) for other in outcomes[1:]],
        "deviations": [text for kind, text in DEVIATIONS.items() if kind in way_kinds],
        "simpler": list(dict.fromkeys(simpler)),
    }


def _trace_figures(trace: Trace) -> TraceFigures:
    return {
        "source": trace.source,
        "jobs": len(trace),
        "users": len(trace.users),
        "days": trace.span / 86400,
        "device_hours": trace.device_seconds / 3600,
        "largest": max(trace.devices),
        **trace.skipped.figures(),
        "notes": trace.notes,
    }
