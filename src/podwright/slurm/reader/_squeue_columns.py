"""Columns of squeue by our own names. squeue refuses a name that it does not know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

#: squeue's names of the columns (for -O).
_SQUEUE_COLUMNS: Final = {
    "job": "JobID",
    "state": "State",
    "restarts": "RestartCnt",
    "het_job": "HetJobID",
    "priority": "PriorityLong",
    "reason": "Reason",
    "end": "EndTime",
    "time_limit": "TimeLimit",
    "licences": "Licenses",
    "comment": "admin_comment",
    "user_id": "UserID",
    "submitted": "SubmitTime",
    "array_job": "ArrayJobID",
    "array_task": "ArrayTaskID",
    "eligible": "EligibleTime",
    "node_list": "NodeList",
}


def listing_format(**width_by_column: int) -> str:
    """Return the value of squeue's -O for these columns, each with its width in characters."""
    return ",".join(f"{_SQUEUE_COLUMNS[name]}:{width}" for name, width in width_by_column.items())


def read_listing(squeue_output: str, **width_by_column: int) -> list[dict[str, str]]:
    """Return the rows that squeue printed for that format, by column."""
    rows = []
    for output_line in squeue_output.splitlines():
        value_by_column, start_column = {}, 0
        for name, width in width_by_column.items():
            value_by_column[name] = output_line[start_column : start_column + width].strip()
            start_column += width
        rows.append(value_by_column)
    return rows


def squeue_text(listing_format: str, rows: Iterable[Mapping[str, object]]) -> str:
    """Return what squeue prints for such a format, of rows by our names: for its fake."""
    name_by_column = {column: name for name, column in _SQUEUE_COLUMNS.items()}
    columns = [column.split(":") for column in listing_format.split(",")]
    lines = (
        "".join(str(row[name_by_column[name]]).ljust(int(width)) for name, width in columns)
        for row in rows
    )
    return "".join(f"{line}\n" for line in lines)
