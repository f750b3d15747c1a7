"""Jobs out of the Standard Workload Format, as the Parallel Workloads Archive has it.

Eighteen fields a line, -1 for what is not known, comments after `;`. Source: the archive's page
"The Standard Workload Format", version 2.2. Its processors are taken for devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from podwright.replay.traces._trace import UNKNOWN, Skipped, Status, TraceJob

_ROW = re.compile(r"\s*(-?\d+(\.\d+)?\s+){17}-?\d+(\.\d+)?\s*")
_STATUS = {0: Status.FAILED, 1: Status.COMPLETED, 5: Status.CANCELLED}


def is_swf(line: str) -> bool:
    """Return whether this is a line of such a file."""
    return line.startswith(";") or bool(_ROW.fullmatch(line))


def read_swf(lines: Iterable[str], skipped: Skipped) -> Iterator[TraceJob]:
    """Read the jobs of the lines.

    The parts of checkpointed jobs (status 2 to 4) are left out, because the whole job has a line
    too.
    """
    for number, text in enumerate(lines, start=1):
        if text.startswith(";") or not text.strip():
            continue
        try:
            job = _job(text.split(), skipped)
        except (ValueError, OverflowError) as error:
            skipped.line(number, str(error), text)
            continue
        if job is not None:
            yield job


def _job(words: list[str], skipped: Skipped) -> TraceJob | None:
    if len(words) != 18:
        raise ValueError(f"{len(words)} fields, not 18")
    values = [float(word) for word in words]
    name, submit, wait, runtime, got = words[0], *values[1:5]
    requested, limit, memory = values[7], values[8], values[9]
    status, user, before = int(values[10]), values[11], int(values[16])
    if status in (2, 3, 4):
        skipped.count("parts of jobs")
        return None
    size = int(requested if requested > 0 else got)
    if submit < 0 or size <= 0:
        raise ValueError("it has no time of submission, or no processors")
    if runtime < 0 or (status == 5 and runtime == 0):
        skipped.count("jobs that were cancelled before they began")
        return None
    return TraceJob(
        name=name,
        submit=submit,
        runtime=runtime,
        devices=size,
        limit=limit if limit > 0 else UNKNOWN,
        status=_STATUS.get(status, Status.COMPLETED),
        user="" if user < 0 else words[11],
        start=submit + wait if wait >= 0 else UNKNOWN,
        memory=max(0, int(memory * size) << 10),
        after=words[16] if before > 0 else "",
    ).with_times()
