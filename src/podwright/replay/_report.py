"""One report: the trace, what was recorded, each way's figures, what to change. A plain dict."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from podwright.replay._advice import advice
from podwright.replay._figures import distance, figures
from podwright.replay._outcome import Outcome
from podwright.replay._parallel import ReplayTask, run_all
from podwright.replay._recorded import recorded
from podwright.replay._simulate import Chances
from podwright.replay._slurm_settings import SIMPLER, SlurmModel
from podwright.replay._trace import Trace
from podwright.replay._ways import ReplayWay

Progress = Callable[[int, int], None]


@dataclass
class Report:
    """figures: of all, as JSON has them. outcomes: of the ways, for drawings."""

    trace: Trace
    outcomes: list[Outcome]
    figures: dict[str, Any] = field(default_factory=dict)


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
    """Everything about a trace under these ways. what_if: change one thing of native mode, too, of
    the first of its ways.

    The same trace, ways, model and seed give the same figures, byte for byte.
    Raises SimulationFailed.
    """
    tasks = [ReplayTask(way, slurm, chances) for way in ways]
    base = next((at for at, way in enumerate(ways) if way.kind in ("native", "plugin")), 0)
    tried = _what_if(ways[base], slurm, chances) if what_if else {}
    tasks += tried.values()
    before = recorded(trace, ways[0].ground()) if trace.has_starts else None
    if before:
        counted = ReplayWay("as recorded", "native", before["peak"], "no-shape")
        unbroken = replace(chances, mtbf_s=math.inf)  # its ends are those that were
        tasks.append(ReplayTask(counted, replace(slurm, room_s=0.0), unbroken))
    outcomes = run_all(trace, tasks, processes=processes, progress=progress)
    rows = [figures(trace, out) for out in outcomes[: len(ways)]]
    changed = {
        words: figures(trace, out) for words, out in zip(tried, outcomes[len(ways) :], strict=False)
    }
    found = {
        "trace": _about(trace),
        "recorded": before,
        "distance": distance(trace, figures(trace, outcomes[-1])) if before else None,
        "slurm": asdict(slurm),
        "chances": {k: v for k, v in asdict(chances).items() if v < math.inf},
        "ways": rows,
        "what_if": {words: _short(row) for words, row in changed.items()},
        "what_to_change": advice(trace, rows, changed, rows[base], rounds=ways[0].cluster is None),
        "simpler": list(dict.fromkeys([*SIMPLER, *(w for row in rows for w in row["simpler"])])),
    }
    return Report(trace, outcomes[: len(ways)], found)


def _what_if(way: ReplayWay, slurm: SlurmModel, chances: Chances) -> dict[str, ReplayTask]:
    """One thing changed, in words."""
    if way.cluster is not None or way.kind not in ("native", "plugin"):
        return {}
    larger = replace(way, name="larger", size=2 * way.size)
    free = replace(way, name="no shape", policy="no-shape")
    out = {}
    if way.size >= 64:
        out[f"With a pod of {2 * way.size} devices"] = ReplayTask(larger, slurm, chances)
    if slurm.room_s > 0:
        roomless = replace(slurm, room_s=0.0)
        out["With --room-after 0, so that small jobs may pass large ones for ever"] = ReplayTask(
            way, roomless, chances
        )
    if way.policy != "no-shape":
        out["Without shape, any devices as good as others"] = ReplayTask(free, slurm, chances)
    if way.policy == "best-fit":
        moved = replace(way, name="moves", policy="moves")
        words = f"If {chances.movable:.0%} of the jobs could be moved ({chances.move_s:g} s each)"
        out[words] = ReplayTask(moved, slurm, chances)
    return out


def _about(trace: Trace) -> dict[str, Any]:
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


def _short(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("devices", "used", "held", "wait")}
