"""Reads jobs from a CSV file, and writes them to one that may be shared.

The columns are `job,submit_s,runtime_s,devices,walltime_s,status,user`, in any order. A file may
also have `eligible_s`, `start_s`, `nodes`, `cpus`, `memory_mb` and `after` (a job's name). Times
are seconds, or dates. The format is ours.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import IO

from podwright.errors import InvalidRequest
from podwright.replay.traces._parse_sacct_values import when
from podwright.replay.traces._trace import UNKNOWN_TIME, Skipped, Status, Trace, TraceJob

FIELDS = ("job", "submit_s", "runtime_s", "devices", "walltime_s", "status", "user")
#: The required columns, and words in the names that other programs give them.
_REQUIRED_FIELDS = {
    "submit_s": r"submi|arriv|queued|eligible",
    "runtime_s": r"run_?time|duration|elapsed",
    "devices": r"gpu|npu|ipu|device|accel",
}


def is_csv(header: str) -> bool:
    """Return whether this is the first line of a CSV file: names of columns."""
    try:
        column_names = split_csv_line(header)
    except ValueError:
        return False
    return len(column_names) > 2 and all(re.match(r"[A-Za-z_]", name) for name in column_names)


def split_csv_line(csv_line: str) -> list[str]:
    """Return the fields of a line. Raises ValueError.

    A field ends with its line, so a missing quotation mark spoils no other line.
    """
    if '"' not in csv_line:
        return [text.strip() for text in csv_line.split(",")]
    try:
        (fields,) = csv.reader([csv_line.strip()], skipinitialspace=True, strict=True)
    except csv.Error as error:
        raise ValueError(str(error)) from None
    return [text.strip() for text in fields]


def read_csv(
    lines: Iterable[str], skipped: Skipped, *, zone: tzinfo | None = None
) -> Iterator[TraceJob]:
    """Read jobs from the lines of a CSV file, the header first. Raises InvalidRequest.

    zone: of dates without an offset; None: this machine's.
    """
    line_iterator = iter(lines)
    column_names = split_csv_line(next(line_iterator, ""))
    missing_columns = [name for name in _REQUIRED_FIELDS if name not in column_names]
    if missing_columns:
        raise InvalidRequest(
            f"the first line does not name the columns {', '.join(missing_columns)}",
            operation="read jobs from CSV",
            would_work=_renaming_advice(missing_columns, column_names),
        )
    for line_number, line_text in enumerate(line_iterator, start=2):
        if not line_text.strip():
            continue
        try:
            fields = split_csv_line(line_text)
            if len(fields) != len(column_names):
                raise ValueError(
                    f"{len(fields)} fields where the first line has {len(column_names)}"
                )
            job = _parse_job(dict(zip(column_names, fields, strict=True)), line_number, zone)
        except (ValueError, OverflowError) as error:
            skipped.line(line_number, str(error), line_text)
            continue
        if job.devices <= 0:
            skipped.count("jobs without devices")
        else:
            yield job


def _renaming_advice(missing_columns: Sequence[str], column_names: Sequence[str]) -> str:
    """Return what to call the columns, with those of the file that may be meant."""
    changes = []
    for column in missing_columns:
        pattern = _REQUIRED_FIELDS[column]
        alike = [name for name in column_names if re.search(pattern, name, re.I)]
        changes.append(f"{' or '.join(alike)} as {column}" if alike else column)
    return (
        f"name them in the first line: {', '.join(changes)} (submit_s: seconds, or a date; "
        "runtime_s: seconds)"
    )


def _parse_job(
    fields_by_name: Mapping[str, str], line_number: int, zone: tzinfo | None
) -> TraceJob:
    submit_seconds, runtime = (
        _parse_time(fields_by_name["submit_s"], zone),
        _parse_seconds(fields_by_name["runtime_s"]),
    )
    if math.isnan(submit_seconds) or math.isnan(runtime):
        raise ValueError("it has no submit_s or no runtime_s")
    status_name = (fields_by_name.get("status") or "COMPLETED").upper()
    if status_name not in Status.__members__:
        raise ValueError(f"{status_name!r} is not a job state")
    return TraceJob(
        name=fields_by_name.get("job") or str(line_number - 2),
        submit=submit_seconds,
        runtime=runtime,
        devices=_parse_integer(fields_by_name["devices"]),
        limit=_parse_seconds(fields_by_name.get("walltime_s", "")),
        status=Status[status_name],
        user=fields_by_name.get("user", ""),
        eligible=_parse_time(fields_by_name.get("eligible_s", ""), zone),
        start=_parse_time(fields_by_name.get("start_s", ""), zone),
        nodes=_parse_integer(fields_by_name.get("nodes", "")),
        cpus=_parse_integer(fields_by_name.get("cpus", "")),
        memory=_parse_integer(fields_by_name.get("memory_mb", "")) << 20,
        after=fields_by_name.get("after", ""),
    ).with_checked_times()


def _parse_time(time_text: str, zone: tzinfo | None) -> float:
    return when(time_text, zone) if ":" in time_text else _parse_seconds(time_text)


def _parse_seconds(seconds_text: str) -> float:
    return float(seconds_text) if seconds_text else UNKNOWN_TIME


def _parse_integer(number_text: str) -> int:
    return int(float(number_text)) if number_text else 0


def write_anonymous(trace: Trace, output_file: IO[str]) -> None:
    """Write the columns that may be shared.

    Jobs and users get numbers in the order of their appearance. Times count from the first
    submission. The file has no names, dates or accounts.
    """
    csv_writer = csv.writer(output_file, lineterminator="\n")
    start_columns = ("start_s",) if trace.has_starts else ()
    has_hosts = any(trace.nodes) or any(trace.cpus) or any(trace.memory)
    host_columns = ("nodes", "cpus", "memory_mb") if has_hosts else ()
    after_columns = ("after",) if trace.has_dependencies else ()
    csv_writer.writerow([*FIELDS, "eligible_s", *start_columns, *host_columns, *after_columns])
    user_numbers: dict[int, int] = {}
    for job_index in range(len(trace)):
        time_limit = trace.limit[job_index]
        csv_writer.writerow(
            [
                job_index,
                _seconds_text(trace.submit[job_index]),
                _seconds_text(trace.runtime[job_index]),
                trace.devices[job_index],
                _seconds_text(time_limit),
                Status(trace.status[job_index]).name,
                user_numbers.setdefault(trace.user[job_index], len(user_numbers)),
                _seconds_text(trace.eligible[job_index]),
                *([_seconds_text(trace.start[job_index])] if start_columns else []),
                *(
                    [
                        trace.nodes[job_index],
                        trace.cpus[job_index],
                        -(-trace.memory[job_index] >> 20),
                    ]
                    if host_columns
                    else []
                ),
                *(
                    [trace.after[job_index] if trace.after[job_index] >= 0 else ""]
                    if after_columns
                    else []
                ),
            ]
        )


def _seconds_text(seconds: float) -> str:
    return "" if math.isnan(seconds) else f"{seconds:.10g}"
