"""The report of a rehearsal, as data for JSON and as text for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podwright.gpu.rehearse._compare_answers import AnswerChange
from podwright.gpu.rehearse._rehearsal_sides import cautions
from podwright.gpu.rehearse._rehearse import Side
from podwright.gpu.rehearse._submissions import Submissions
from podwright.slurm.twin import Submission
from podwright.tables import table


def as_json(
    sides: tuple[Side, Side],
    submissions: Submissions,
    rehearsed: Sequence[tuple[Submission, list[str]]],
    changes: Sequence[AnswerChange],
) -> dict[str, Any]:
    """Return what was asked of both sides, what was not, and which answers differ.

    rehearsed: the submissions that were asked about, each with its jobs.
    """
    before, after = sides
    job_count = sum(len(job_names) for _, job_names in rehearsed)
    return {
        "before": f"Slurm {before.slurm.release}, {before.name}",
        "after": f"Slurm {after.slurm.release}, {after.name}",
        "submissions": len(rehearsed),
        "jobs": job_count,
        "nodes": "as the cluster stands" if before.present is not None else "on idle nodes",
        "beyond_most": submissions.count - job_count,
        "not_looked_at": submissions.skipped,
        "options_not_looked_at": submissions.left_out,
        "cautions": cautions(before, after),
        "differences": [_change_row(answer_change) for answer_change in changes],
    }


def _change_row(answer_change: AnswerChange) -> dict[str, Any]:
    return {
        "kind": answer_change.kind,
        "jobs": list(answer_change.jobs),
        "options": answer_change.options,
        "before": answer_change.before,
        "after": answer_change.after,
        "reason": answer_change.reason,
    }


def as_text(report: Mapping[str, Any]) -> str:
    """Return the report for people."""
    lines = [f"Before: {report['before']}\nAfter:  {report['after']}"]
    changes = report["differences"]
    if changes:
        table_rows: list[tuple[object, ...]] = [
            (
                change["kind"],
                _jobs_text(change["jobs"]),
                change["options"],
                change["before"],
                change["after"],
            )
            for change in changes
        ]
        header = ("Differs", "Jobs", "Submission", "Before", "After")
        lines.append(table(header, table_rows))
    jobs = {job for change in changes for job in change["jobs"]}
    lines.append(
        f"{len(jobs)} of {report['jobs']} jobs ({report['submissions']} different submissions) "
        f"are answered differently, {report['nodes']}."
    )
    if report["beyond_most"]:
        lines.append(
            f"Not asked about: {report['beyond_most']} further jobs; --most asks about more."
        )
    for skip_reason, job_names in report["not_looked_at"].items():
        lines.append(f"Not looked at: {_jobs_text(job_names)}, because {skip_reason}.")
    for option_name, job_names in report["options_not_looked_at"].items():
        lines.append(f"Note: --{option_name} of {_jobs_text(job_names)} is not looked at.")
    for caution in report["cautions"]:
        lines.append(f"Note: {caution}.")
    return "\n".join(lines)


def _jobs_text(job_names: Sequence[str]) -> str:
    rest_text = f" and {len(job_names) - 3} more" if len(job_names) > 3 else ""
    return ", ".join(job_names[:3]) + rest_text
