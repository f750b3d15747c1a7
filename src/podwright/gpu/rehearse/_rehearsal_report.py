"""The report of a rehearsal, as data for JSON and as text for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podwright.gpu.rehearse._compare_answers import AnswerChange, differences
from podwright.gpu.rehearse._file_changes_seen import (
    broken_lines,
    changed_files,
    twins_are_equal,
    unseen_changes,
)
from podwright.gpu.rehearse._rehearsal_sides import cautions
from podwright.gpu.rehearse._rehearse import Rehearsal, Side
from podwright.gpu.rehearse._submissions import Submissions
from podwright.ground.judgement import Judgement, Says
from podwright.ground.tables import table
from podwright.slurm.twin import Submission

#: What is in no file of Slurm, or reaches no twin.
_NEVER_SEEN = ("accounts", "QOS", "licences", "dependencies")


def as_json(
    sides: tuple[Side, Side],
    submissions: Submissions,
    rehearsed: Sequence[tuple[Submission, list[str]]],
    rehearsal: Rehearsal,
) -> dict[str, Any]:
    """Return what was asked of both sides, what was not, and which answers differ.

    rehearsed: the submissions that were asked about, each with its jobs.
    """
    before, after = sides
    changes = differences(rehearsal.answers)
    unseen = unseen_changes(before.files, after.files)
    not_settled = [job for pair in rehearsal.unsettled for job in pair.jobs]
    job_count = sum(len(names) for _, names in rehearsed)
    return {
        "before": f"Slurm {before.slurm.release}, {before.name}",
        "after": f"Slurm {after.slurm.release}, {after.name}",
        "judgement": _judgement(sides, len(changes), not_settled, unseen).as_json(),
        "files_changed": changed_files(before.files, after.files),
        "changes_not_looked_at": unseen,
        "broken_lines": {side.name: broken_lines(side) for side in sides if broken_lines(side)},
        "equal_twins": twins_are_equal(before, after),
        "not_settled": not_settled,
        "submissions": len(rehearsed),
        "jobs": job_count,
        "nodes": "as the cluster stands" if before.present is not None else "on idle nodes",
        "beyond_most": submissions.count - job_count,
        "not_looked_at": submissions.skipped,
        "options_not_looked_at": submissions.left_out,
        "cautions": cautions(before, after),
        "differences": [_change_row(change) for change in changes],
    }


def _judgement(
    sides: tuple[Side, Side], change_count: int, not_settled: Sequence[str], unseen: Sequence[str]
) -> Judgement:
    """Return whether every job is answered as before."""
    releases = dict.fromkeys(side.slurm.release for side in sides)
    left_out = (*unseen, *_NEVER_SEEN)
    if change_count:
        verdict, because = Says.NO, "jobs are answered differently"
    elif not_settled:
        verdict, because = Says.NOT_KNOWN, "Slurm's answers differ each time that it is asked"
    else:
        verdict, because = Says.YES, "every job is answered as before"
    source = f"Slurm {' and '.join(releases)}"
    return Judgement(says=verdict, because=because, source=source, left_out=left_out)


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
    changed = ", ".join(report["files_changed"]) or "no file"
    lines.append(f"Changed: {changed}. Looked at: what slurmctld does with each job.")
    lines.append(f"Not looked at: {', '.join(report['judgement']['left_out'])}.")
    for side_name, broken in report["broken_lines"].items():
        lines.append(f"No Slurm knows this key, {side_name}: {'; '.join(broken)}.")
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
    if report["equal_twins"]:
        lines.append(
            "Both sides are the same to slurmctld, so none was started: what differs between the "
            "files does not decide about a job, or is not looked at."
        )
    if report["not_settled"]:
        lines.append(
            f"Not known: {_jobs_text(report['not_settled'])}, because Slurm's answers differ each "
            "time that it is asked."
        )
    if report["beyond_most"]:
        lines.append(
            f"Not asked about: {report['beyond_most']} further jobs; --most asks about more."
        )
    for reason, names in report["not_looked_at"].items():
        lines.append(f"Not looked at: {_jobs_text(names)}, because {reason}.")
    for option_name, names in report["options_not_looked_at"].items():
        lines.append(f"Note: --{option_name} of {_jobs_text(names)} is not looked at.")
    for caution in report["cautions"]:
        lines.append(f"Note: {caution}.")
    return "\n".join(lines)


def _jobs_text(job_names: Sequence[str]) -> str:
    rest_text = f" and {len(job_names) - 3} more" if len(job_names) > 3 else ""
    return ", ".join(job_names[:3]) + rest_text
