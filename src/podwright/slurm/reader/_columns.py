"""Columns of sacct and sinfo by our own names, as `_listing` has those of squeue.

sacct refuses a column that it does not know. A file with sacct's output names its columns in the
first line; a column that is not in that line is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: sacct's names of the columns (for --format, and in the first line of its output).
_ACCOUNTING: Final = {
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
_NODES: Final = {
    "node": "%N",
    "partition": "%R",
    "state": "%T",
    "since": "%H",
    "reason": "%E",
}
#: The separator of the columns that we ask for. No job's name and no path contains it.
CUT: Final = "\x1f"


def accounting_format(*names: str) -> str:
    """Return the value of sacct's --format for these columns."""
    return ",".join(_ACCOUNTING[name] for name in names)


def accounting_command(*names: str) -> list[str]:
    """Return the sacct command that prints these columns in the form that `read_accounting`
    reads.
    """
    shape = ["--noheader", "--parsable2", f"--delimiter={CUT}"]
    return ["sacct", *shape, f"--format={accounting_format(*names)}"]


def read_accounting(text: str, *names: str) -> list[dict[str, str]]:
    """Return the rows that `accounting_command` printed for these columns, by name.

    A line with fewer columns is left out: it is a further line of a value that has line breaks.
    """
    rows = [line.split(CUT) for line in text.splitlines()]
    return [dict(zip(names, row, strict=False)) for row in rows if len(row) >= len(names)]


def accounting_columns(header: Sequence[str]) -> dict[str, int]:
    """Return the index of each column, by name, from the first line of sacct's output.

    header: the words of that line, which may have a width (`JobName%30`). Columns that nothing here
    reads are left out.
    """
    columns = {word.partition("%")[0]: index for index, word in enumerate(header)}
    return {name: columns[column] for name, column in _ACCOUNTING.items() if column in columns}


def node_listing_command(*names: str) -> list[str]:
    """Return the sinfo command that prints these columns of each node in each partition.

    The value of the last column may contain the separator.
    """
    return ["sinfo", "-h", "-N", "-o", "|".join(_NODES[name] for name in names)]


def read_node_listing(text: str, *names: str) -> list[dict[str, str]]:
    """Return the rows that `node_listing_command` printed for these columns, by name."""
    rows = [line.strip().split("|", len(names) - 1) for line in text.splitlines()]
    return [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]
