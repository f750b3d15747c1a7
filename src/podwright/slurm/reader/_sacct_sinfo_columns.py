"""Columns of sacct and sinfo by our own names, as `_listing` has those of squeue.

sacct refuses a column that it does not know. A file with sacct's output names its columns in the
first line; a column that is not in that line is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: sacct's names of the columns (for --format, and in the first line of its output).
_SACCT_COLUMNS: Final = {
    "job": "JobID",
    "raw_job": "JobIDRaw",
    "name": "JobName",
    "user": "User",
    "partition": "Partition",
    "state": "State",
    "submitted": "Submit",
    "eligible": "Eligible",
    "start": "Start",
    "end": "End",
    "seconds": "ElapsedRaw",
    "elapsed": "Elapsed",
    "limit_minutes": "TimelimitRaw",
    "limit": "Timelimit",
    "granted": "AllocTRES",
    "requested": "ReqTRES",
    "nodes": "NNodes",
    "granted_nodes": "AllocNodes",
    "requested_nodes": "ReqNodes",
    "node_list": "NodeList",
    "cpus": "NCPUS",
    "granted_cpus": "AllocCPUS",
    "requested_cpus": "ReqCPUS",
    "requested_memory": "ReqMem",
    "cpu_time": "TotalCPU",
    "peak_memory": "MaxRSS",
    "used": "TRESUsageInTot",
    "most_used": "TRESUsageInMax",
    "tasks": "NTasks",
    "comment": "AdminComment",
    "folder": "WorkDir",
    "submit_line": "SubmitLine",
}
#: sinfo's names of the columns (for -o).
_SINFO_COLUMNS: Final = {
    "node": "%N",
    "partition": "%R",
    "state": "%T",
    "since": "%H",
    "reason": "%E",
}
#: The separator of the columns that we ask for. No job's name and no path contains it.
CUT: Final = "\x1f"


def accounting_format(*column_names: str) -> str:
    """Return the value of sacct's --format for these columns."""
    return ",".join(_SACCT_COLUMNS[name] for name in column_names)


def accounting_command(*column_names: str) -> list[str]:
    """Return the sacct command that prints these columns in the form that `read_accounting`
    reads.
    """
    options = ["--noheader", "--parsable2", f"--delimiter={CUT}"]
    return ["sacct", *options, f"--format={accounting_format(*column_names)}"]


def read_accounting(sacct_output: str, *column_names: str) -> list[dict[str, str]]:
    """Return the rows that `accounting_command` printed for these columns, by name.

    A line with fewer columns is left out: it is a further line of a value that has line breaks.
    """
    split_lines = [line.split(CUT) for line in sacct_output.splitlines()]
    return [
        dict(zip(column_names, cells, strict=False))
        for cells in split_lines
        if len(cells) >= len(column_names)
    ]


def accounting_columns(header_words: Sequence[str]) -> dict[str, int]:
    """Return the index of each column, by name, from the first line of sacct's output.

    header_words: the words of that line, which may have a width (`JobName%30`). Columns that
    nothing here reads are left out.
    """
    index_by_header = {word.partition("%")[0]: index for index, word in enumerate(header_words)}
    return {
        column_name: index_by_header[sacct_name]
        for column_name, sacct_name in _SACCT_COLUMNS.items()
        if sacct_name in index_by_header
    }


def node_listing_command(*column_names: str) -> list[str]:
    """Return the sinfo command that prints these columns of each node in each partition.

    The value of the last column may contain the separator.
    """
    return [
        "sinfo",
        "-h",
        "-N",
        "-o",
        "|".join(_SINFO_COLUMNS[name] for name in column_names),
    ]


def read_node_listing(sinfo_output: str, *column_names: str) -> list[dict[str, str]]:
    """Return the rows that `node_listing_command` printed for these columns, by name."""
    split_lines = [
        line.strip().split("|", len(column_names) - 1) for line in sinfo_output.splitlines()
    ]
    return [
        dict(zip(column_names, cells, strict=True))
        for cells in split_lines
        if len(cells) == len(column_names)
    ]
