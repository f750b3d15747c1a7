"""The report of a rehearsal, as data for JSON and as text for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podwright.gpu.rehearse._compare import AnswerChange
from podwright.gpu.rehearse._rehearse import Side
from podwright.gpu.rehearse._sides import cautions
from podwright.gpu.rehearse._submissions import Submissions
from podwright.slurm.twin import Submission
from podwright.tables import table


def as_json(
    sides: tuple[Side, Side],
    submissions: Submissions,
    chosen: Sequence[tuple[Submission, list[str]]],
    changed: Sequence[AnswerChange],
) -> dict[str, Any]:
    """Return what was asked of both sides, what was not, and which answers differ.

    chosen: the submissions that were asked about, each with its jobs.
    """
    before, after = sides
    jobs = sum(len(names) for _, names in chosen)
    return {
        "before": f"Slurm {before.slurm.release}, {before.name}",
        "after": f"Slurm {after.slurm.release}, {after.name}",
        "submissions": len(chosen),
        "jobs": jobs,
        "nodes": "as the cluster stands" if before.present is not None else "on idle nodes",
        "beyond_most": submissions.count - jobs,
        "not_looked_at": submissions.skipped,
        "options_not_looked_at": submissions.left_out,
        "cautions": cautions(before, after),
        "differences": [_row(difference) for difference in changed],
    }


def _row(difference: AnswerChange) -> dict[str, Any]:
    return {
        "kind": difference.kind,
        "jobs": list(difference.jobs),
        "options": difference.options,
        "before": difference.before,
        "after": difference.after,
        "reason": difference.reason,
    }


def as_text(body: Mapping[str, Any]) -> str:
    """Return the report for people."""
    lines = [f"Before: {body['before']}\nAfter:  {body['after']}"]
    rows = body["differences"]
    if rows:
        cells: list[tuple[object, ...]] = [
            (row["kind"], _jobs(row["jobs"]), row["options"], row["before"], row["after"])
            for row in rows
        ]
        header = ("Differs", "Jobs", "Submission", "Before", "After")
        lines.append(table(header, cells))
    jobs = {job for row in rows for job in row["jobs"]}
    lines.append(
        f"{len(jobs)} of {body['jobs']} jobs ({body['submissions']} different submissions) "
        f"are answered differently, {body['nodes']}."
    )
    if body["beyond_most"]:
        lines.append(
            f"Not asked about: {body['beyond_most']} further jobs; --most asks about more."
        )
    for reason, names in body["not_looked_at"].items():
        lines.append(f"Not looked at: {_jobs(names)}, because {reason}.")
    for name, names in body["options_not_looked_at"].items():
        lines.append(f"Note: --{name} of {_jobs(names)} is not looked at.")
    for caution in body["cautions"]:
        lines.append(f"Note: {caution}.")
    return "\n".join(lines)


def _jobs(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
