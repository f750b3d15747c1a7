"""Jobs out of a CSV file, and into one that may be shared.

`job,submit_s,runtime_s,devices,walltime_s,status,user`, in any order; `eligible_s`, `start_s`,
`nodes`, `cpus`, `memory_mb` and `after` (a job's name) may be there as well. The format is ours.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import IO

from podwright.errors import InvalidRequest
from podwright.replay._trace import UNKNOWN, Skipped, Status, Trace, TraceJob

FIELDS = ("job", "submit_s", "runtime_s", "devices", "walltime_s", "status", "user")
_NEEDED = ("submit_s", "runtime_s", "devices")


def is_csv(header: str) -> bool:
    """Is this the first line of such a file?"""
    return "submit_s" in header.strip().split(",")


def read_csv(lines: Iterable[str], skipped: Skipped) -> Iterator[TraceJob]:
    """Jobs of a CSV file's lines, the header first. Raises InvalidRequest."""
    rows = csv.DictReader(lines)
    header = [name.strip() for name in rows.fieldnames or ()]
    missing = [name for name in _NEEDED if name not in header]
    if missing:
        raise InvalidRequest(
            f"the file has no column {missing[0]}",
            asked="read jobs from it",
            would_work=f"a first line {','.join(FIELDS)}",
        )
    rows.fieldnames = header
    for row in rows:
        text = ",".join(str(value) for value in row.values())
        if None in row or None in row.values():
            skipped.line(rows.line_num, "it has not as many fields as the first line", text)
            continue
        try:
            job = _job(row, rows.line_num)
        except (ValueError, OverflowError) as error:
            skipped.line(rows.line_num, str(error), text)
            continue
        if job.devices <= 0:
            skipped.count("jobs without devices")
        else:
            yield job


def _job(row: Mapping[str, str], number: int) -> TraceJob:
    submit, runtime = _seconds(row["submit_s"]), _seconds(row["runtime_s"])
    if math.isnan(submit) or math.isnan(runtime):
        raise ValueError("it has no submit_s or no runtime_s")
    if runtime < 0:
        raise ValueError(f"a run time of {runtime:g} s")
    state = (row.get("status") or "COMPLETED").strip().upper()
    if state not in Status.__members__:
        raise ValueError(f"{state!r} is no state of a job")
    return TraceJob(
        name=row.get("job") or str(number - 2),
        submit=submit,
        runtime=runtime,
        devices=_whole(row["devices"]),
        limit=_seconds(row.get("walltime_s", "")),
        status=Status[state],
        user=row.get("user", ""),
        eligible=_seconds(row.get("eligible_s", "")),
        start=_seconds(row.get("start_s", "")),
        nodes=_whole(row.get("nodes", "")),
        cpus=_whole(row.get("cpus", "")),
        memory=_whole(row.get("memory_mb", "")) << 20,
        after=row.get("after", ""),
    )


def _seconds(text: str) -> float:
    return float(text) if text.strip() else UNKNOWN


def _whole(text: str) -> int:
    return int(float(text)) if text.strip() else 0


def write_anonymous(trace: Trace, out: IO[str]) -> None:
    """What may be shared: numbers in order of appearance for jobs and users, times counted from
    the first submission, no names, no dates, no accounts."""
    rows = csv.writer(out, lineterminator="\n")
    starts = ("start_s",) if trace.has_starts else ()
    hosts = ("nodes", "cpus", "memory_mb") if any(trace.nodes) else ()
    rows.writerow([*FIELDS, "eligible_s", *starts, *hosts])
    users: dict[int, int] = {}
    for i in range(len(trace)):
        limit = trace.limit[i]
        rows.writerow(
            [
                i,
                _text(trace.submit[i]),
                _text(trace.runtime[i]),
                trace.devices[i],
                _text(limit),
                Status(trace.status[i]).name,
                users.setdefault(trace.user[i], len(users)),
                _text(trace.eligible[i]),
                *([_text(trace.start[i])] if starts else []),
                *([trace.nodes[i], trace.cpus[i], -(-trace.memory[i] >> 20)] if hosts else []),
            ]
        )


def _text(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.10g}"
