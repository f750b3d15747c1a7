"""Jobs out of the Standard Workload Format, as the Parallel Workloads Archive has it.

Eighteen fields a line, -1 for what is not known, comments after `;`. Source: the archive's page
"The Standard Workload Format", version 2.2. Its processors are taken for devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from podwright.replay.traces._trace import UNKNOWN_TIME, Skipped, Status, TraceJob

_JOB_LINE = re.compile(r"\s*(-?\d+(\.\d+)?\s+){17}-?\d+(\.\d+)?\s*")
_STATUS_BY_CODE = {0: Status.FAILED, 1: Status.COMPLETED, 5: Status.CANCELLED}


def is_swf(line: str) -> bool:
    """Return whether this is a line of such a file."""
    return line.startswith(";") or bool(_JOB_LINE.fullmatch(line))


def read_swf(lines: Iterable[str], skipped: Skipped) -> Iterator[TraceJob]:
    """Read the jobs of the lines.

    The parts of checkpointed jobs (status 2 to 4) are left out, because the whole job has a line
    too.
    """
    for line_number, line_text in enumerate(lines, start=1):
        if line_text.startswith(";") or not line_text.strip():
            continue
        try:
            job = _parse_job(line_text.split(), skipped)
        except (ValueError, OverflowError) as error:
            skipped.line(line_number, str(error), line_text)
            continue
        if job is not None:
            yield job


def _parse_job(fields: list[str], skipped: Skipped) -> TraceJob | None:
    if len(fields) != 18:
        raise ValueError(f"{len(fields)} fields, not 18")
    field_numbers = [float(text) for text in fields]
    job_name, submit_seconds, wait_seconds, runtime_seconds, granted_processors = (
        fields[0],
        *field_numbers[1:5],
    )
    requested_processors, limit_seconds, kib_per_processor = (
        field_numbers[7],
        field_numbers[8],
        field_numbers[9],
    )
    status_number, user_number, previous_job = (
        int(field_numbers[10]),
        field_numbers[11],
        int(field_numbers[16]),
    )
    if status_number in (2, 3, 4):
        skipped.count("parts of jobs")
        return None
    processor_count = int(requested_processors if requested_processors > 0 else granted_processors)
    if submit_seconds < 0 or processor_count <= 0:
        raise ValueError("it has no time of submission, or no processors")
    if runtime_seconds < 0 or (status_number == 5 and runtime_seconds == 0):
        skipped.count("jobs that were cancelled before they began")
        return None
    return TraceJob(
        name=job_name,
        submit=submit_seconds,
        runtime=runtime_seconds,
        devices=processor_count,
        limit=limit_seconds if limit_seconds > 0 else UNKNOWN_TIME,
        status=_STATUS_BY_CODE.get(status_number, Status.COMPLETED),
        user="" if user_number < 0 else fields[11],
        start=submit_seconds + wait_seconds if wait_seconds >= 0 else UNKNOWN_TIME,
        memory=max(0, int(kib_per_processor * processor_count) << 10),
        after=fields[16] if previous_job > 0 else "",
    ).with_checked_times()
