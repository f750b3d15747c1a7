"""Columns of squeue by our own names. squeue refuses a name that it does not know."""

from __future__ import annotations

from typing import Final

#: squeue's names of the columns (for -O).
_COLUMNS: Final = {
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
    "node_list": "NodeList",
}


def listing_format(**widths: int) -> str:
    """Return the value of squeue's -O for these columns, each with its width in characters."""
    return ",".join(f"{_COLUMNS[name]}:{width}" for name, width in widths.items())


def read_listing(text: str, **widths: int) -> list[dict[str, str]]:
    """Return the rows that squeue printed for that format, by column."""
    rows = []
    for line in text.splitlines():
        row, column = {}, 0
        for name, width in widths.items():
            row[name] = line[column : column + width].strip()
            column += width
        rows.append(row)
    return rows
