"""Reads jobs from a CSV file, and writes them to one that may be shared.

The columns are `job,submit_s,runtime_s,devices,walltime_s,status,user`, in any order. A file may
also have `eligible_s`, `start_s`, `nodes`, `cpus`, `memory_mb` and `after` (a job's name). The
format is ours.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import IO

from podwright.errors import InvalidRequest
from podwright.replay.traces._trace import UNKNOWN, Skipped, Status, Trace, TraceJob

FIELDS = ("job", "submit_s", "runtime_s", "devices", "walltime_s", "status", "user")
_NEEDED = ("submit_s", "runtime_s", "devices")


def is_csv(header: str) -> bool:
    """Return whether this is the first line of such a file."""
    try:
        return "submit_s" in _words(header)
    except ValueError:
        return False


def _words(line: str) -> list[str]:
    """Return the fields of a line. Raises ValueError.

    A field ends with its line, so a missing quotation mark spoils no other line.
    """
    if '"' not in line:
        return [word.strip() for word in line.split(",")]
    try:
        (words,) = csv.reader([line.strip()], skipinitialspace=True, strict=True)
    except csv.Error as error:
        raise ValueError(str(error)) from None
    return [word.strip() for word in words]


def read_csv(lines: Iterable[str], skipped: Skipped) -> Iterator[TraceJob]:
    """Read jobs from the lines of a CSV file, the header first. Raises InvalidRequest."""
    rows = iter(lines)
    header = _words(next(rows, ""))
    missing = [name for name in _NEEDED if name not in header]
    if missing:
        raise InvalidRequest(
            f"the file has no column {missing[0]}",
            operation="read jobs from it",
            would_work=f"begin with a first line {','.join(FIELDS)}",
        )
    for number, text in enumerate(rows, start=2):
        if not text.strip():
            continue
        try:
            words = _words(text)
            if len(words) != len(header):
                raise ValueError(f"{len(words)} fields where the first line has {len(header)}")
            job = _job(dict(zip(header, words, strict=True)), number)
        except (ValueError, OverflowError) as error:
            skipped.line(number, str(error), text)
            continue
        if job.devices <= 0:
            skipped.count("jobs without devices")
        else:
            yield job


def _job(row: Mapping[str, str], number: int) -> TraceJob:
    submit, runtime = _seconds(row["submit_s"]), _seconds(row["runtime_s"])
    if math.isnan(submit) or math.isnan(runtime):
        raise ValueError("it has no submit_s or no runtime_s")
    state = (row.get("status") or "COMPLETED").upper()
    if state not in Status.__members__:
        raise ValueError(f"{state!r} is not a job state")
    return TraceJob(
        name=row.get("job") or str(number - 2),
        submit=submit,
        runtime=runtime,
        devices=_integer(row["devices"]),
        limit=_seconds(row.get("walltime_s", "")),
        status=Status[state],
        user=row.get("user", ""),
        eligible=_seconds(row.get("eligible_s", "")),
        start=_seconds(row.get("start_s", "")),
        nodes=_integer(row.get("nodes", "")),
        cpus=_integer(row.get("cpus", "")),
        memory=_integer(row.get("memory_mb", "")) << 20,
        after=row.get("after", ""),
    ).with_times()


def _seconds(text: str) -> float:
    return float(text) if text else UNKNOWN


def _integer(text: str) -> int:
    return int(float(text)) if text else 0


def write_anonymous(trace: Trace, out: IO[str]) -> None:
    """Write the columns that may be shared.

    Jobs and users get numbers in the order of their appearance. Times count from the first
    submission. The file has no names, dates or accounts.
    """
    rows = csv.writer(out, lineterminator="\n")
    starts = ("start_s",) if trace.has_starts else ()
    has_hosts = any(trace.nodes) or any(trace.cpus) or any(trace.memory)
    hosts = ("nodes", "cpus", "memory_mb") if has_hosts else ()
    after = ("after",) if trace.has_dependencies else ()
    rows.writerow([*FIELDS, "eligible_s", *starts, *hosts, *after])
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
                *([trace.after[i] if trace.after[i] >= 0 else ""] if after else []),
            ]
        )


def _text(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.10g}"
