"""The report, a plain dict: the trace, the record, each way's figures, and what to change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from podwright.replay._advice import advice
from podwright.replay._figures import distance, figures
from podwright.replay._outcome import Outcome
from podwright.replay._parallel import ReplayTask, run_all
from podwright.replay._ranking import trace_noise
from podwright.replay._recorded_starts import recorded
from podwright.replay._report_values import (
    ChangedFigures,
    ReportFigures,
    TraceFigures,
    WayFigures,
)
from podwright.replay._run_state import Chances
from podwright.replay._slurm_settings import DEVIATIONS, SIMPLER, SlurmModel
from podwright.replay.grounds._ways import ReplayWay
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
    base = next(
        (
            row_index
            for row_index, ways_row in enumerate(ways)
            if ways_row.kind in ("native", "plugin")
        ),
        0,
    )
    tried = _what_if(ways[base], slurm, chances) if what_if else {}
    tasks += tried.values()
    before = recorded(trace, ways[0].ground()) if trace.has_starts else None
    if before:
        counted = ReplayWay("as recorded", "native", before["peak"], "no-shape")
        unbroken = replace(chances, mtbf_s=math.inf)  # the recorded runs include failures already
        tasks.append(ReplayTask(counted, replace(slurm, room_s=0.0), unbroken))
    outcomes = run_all(trace, tasks, processes=processes, progress=progress)
    rows = [figures(trace, out) for out in outcomes[: len(ways)]]
    changed = {
        words: figures(trace, out) for words, out in zip(tried, outcomes[len(ways) :], strict=False)
    }
    summary: ReportFigures = {
        "trace": _about(trace),
        "recorded": before,
        "distance": distance(trace, figures(trace, outcomes[-1])) if before else None,
        "slurm": asdict(slurm),
        "chances": {k: v for k, v in asdict(chances).items() if v < math.inf},
        "ways": rows,
        "what_if": {words: _short(row) for words, row in changed.items()},
        "what_to_change": advice(
            trace,
            rows,
            changed,
            rows[base],
            noise=trace_noise(trace, outcomes[: len(ways)]),
            rounds=ways[0].cluster is None,
        ),
        "deviations": [
            words for kind, words in DEVIATIONS.items() if kind in {name.kind for name in ways}
        ],
        "simpler": list(
            dict.fromkeys([*SIMPLER, *(name for row in rows for name in row["simpler"])])
        ),
    }
    return Report(trace, outcomes[: len(ways)], summary)


def _what_if(variant: ReplayWay, slurm: SlurmModel, chances: Chances) -> dict[str, ReplayTask]:
    """Return simulations with one thing changed each, by a description of the change."""
    if variant.cluster is not None or variant.kind not in ("native", "plugin"):
        return {}
    larger = replace(variant, name="larger", size=2 * variant.size)
    free = replace(variant, name="no shape", policy="no-shape")
    out = {}
    if variant.size >= 64:
        out[f"With a pod of {2 * variant.size} devices"] = ReplayTask(larger, slurm, chances)
    if slurm.room_s > 0:
        roomless = replace(slurm, room_s=0.0)
        out["With --room-after 0, so that small jobs may pass large ones for ever"] = ReplayTask(
            variant, roomless, chances
        )
    if variant.policy != "no-shape":
        out["Without shape, any devices as good as others"] = ReplayTask(free, slurm, chances)
    if variant.policy == "best-fit":
        moved = replace(variant, name="moves", policy="moves")
        words = f"If {chances.movable:.0%} of the jobs could be moved ({chances.move_s:g} s each)"
        out[words] = ReplayTask(moved, slurm, chances)
    return out


def _about(trace: Trace) -> TraceFigures:
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


def _short(row: WayFigures) -> ChangedFigures:
    return {
        "devices": row["devices"],
        "used": row["used"],
        "held": row["held"],
        "wait": row["wait"],
    }
