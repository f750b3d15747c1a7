"""The report, a plain dict: the trace, the record, each way's figures, and what to change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from podwright.replay._advice import advice
from podwright.replay._outcome import Outcome
from podwright.replay._outcome_figures import distance, figures
from podwright.replay._parallel import ReplayTask, run_all
from podwright.replay._ranking import trace_noise
from podwright.replay._recorded_starts import recorded
from podwright.replay._report_types import (
    ChangedFigures,
    ReportFigures,
    TraceFigures,
    WayFigures,
)
from podwright.replay._run_state import Chances
from podwright.replay._slurm_model import DEVIATIONS, SIMPLER, SlurmModel
from podwright.replay.grounds._scheduling_ways import ReplayWay
from podwright.replay.traces._trace import Trace

Progress = Callable[[int, int], None]


@dataclass
class Report:
    """figures: of all ways, in the shape of the JSON. outcomes: of the ways, for drawings."""

    trace: Trace
    outcomes: list[Outcome]
    figures: ReportFigures


def replay(
    trace: Trace,
    ways: Sequence[ReplayWay],
    slurm: SlurmModel,
    chances: Chances,
    *,
    what_if: bool = True,
    processes: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Simulate a trace under these ways, and return the report.

    what_if: also simulate the first way in native mode (or else the first way) with single changes.

    The same trace, ways, model and seed give the same figures, byte for byte. Raises
    SimulationFailed.
    """
    tasks = [ReplayTask(ways_row, slurm, chances) for ways_row in ways]
    base_index = next(
        (
            row_index
            for row_index, ways_row in enumerate(ways)
            if ways_row.kind in ("native", "plugin")
        ),
        0,
    )
    changed_tasks = _what_if(ways[base_index], slurm, chances) if what_if else {}
    tasks += changed_tasks.values()
    recorded_figures = recorded(trace, ways[0].ground()) if trace.has_starts else None
    if recorded_figures:
        recorded_way = ReplayWay("as recorded", "native", recorded_figures["peak"], "no-shape")
        # The recorded runs already include failures.
        failure_free_chances = replace(chances, mtbf_s=math.inf)
        tasks.append(ReplayTask(recorded_way, replace(slurm, room_s=0.0), failure_free_chances))
    outcomes = run_all(trace, tasks, processes=processes, progress=progress)
    way_rows = [figures(trace, outcome) for outcome in outcomes[: len(ways)]]
    changed_figures = {
        description: figures(trace, outcome)
        for description, outcome in zip(changed_tasks, outcomes[len(ways) :], strict=False)
    }
    report_figures: ReportFigures = {
        "trace": _trace_figures(trace),
        "recorded": recorded_figures,
        "distance": distance(trace, figures(trace, outcomes[-1])) if recorded_figures else None,
        "slurm": asdict(slurm),
        "chances": {
            chance_name: chance_value
            for chance_name, chance_value in asdict(chances).items()
            if chance_value < math.inf
        },
        "ways": way_rows,
        "what_if": {
            description: _changed_figures(way_row)
            for description, way_row in changed_figures.items()
        },
        "what_to_change": advice(
            trace,
            way_rows,
            changed_figures,
            way_rows[base_index],
            noise=trace_noise(trace, outcomes[: len(ways)]),
            rounds=ways[0].cluster is None,
        ),
        "deviations": [
            description
            for way_kind, description in DEVIATIONS.items()
            if way_kind in {name.kind for name in ways}
        ],
        "simpler": list(
            dict.fromkeys(
                [*SIMPLER, *(name for way_row in way_rows for name in way_row["simpler"])]
            )
        ),
    }
    return Report(trace, outcomes[: len(ways)], report_figures)


def _what_if(base_way: ReplayWay, slurm: SlurmModel, chances: Chances) -> dict[str, ReplayTask]:
    """Return simulations with one thing changed each, by a description of the change."""
    if base_way.cluster is not None or base_way.kind not in ("native", "plugin"):
        return {}
    larger_way = replace(base_way, name="larger", size=2 * base_way.size)
    shapeless_way = replace(base_way, name="no shape", policy="no-shape")
    changed_tasks = {}
    if base_way.size >= 64:
        changed_tasks[f"With a pod of {2 * base_way.size} devices"] = ReplayTask(
            larger_way, slurm, chances
        )
    if slurm.room_s > 0:
        roomless_model = replace(slurm, room_s=0.0)
        changed_tasks["With --room-after 0, so that small jobs may pass large ones for ever"] = (
            ReplayTask(base_way, roomless_model, chances)
        )
    if base_way.policy != "no-shape":
        changed_tasks["Without shape, any devices as good as others"] = ReplayTask(
            shapeless_way, slurm, chances
        )
    if base_way.policy == "best-fit":
        moving_way = replace(base_way, name="moves", policy="moves")
        change_text = (
            f"If {chances.movable:.0%} of the jobs could be moved ({chances.move_s:g} s each)"
        )
        changed_tasks[change_text] = ReplayTask(moving_way, slurm, chances)
    return changed_tasks


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


def _changed_figures(way_row: WayFigures) -> ChangedFigures:
    return {
        "devices": way_row["devices"],
        "used": way_row["used"],
        "held": way_row["held"],
        "wait": way_row["wait"],
    }
