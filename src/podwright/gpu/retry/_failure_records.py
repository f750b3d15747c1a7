"""Which process of a job failed first, by the records that launchers write.

torchrun copies the record of the child that failed first into the file that its own
TORCHELASTIC_ERROR_FILE names; each node has one. poprun appends to `failures.jsonl` in `--log-dir`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

#: Where torchrun and torch's @record write how their program failed. The file is on each node.
ERROR_FILE_VARIABLE = "TORCHELASTIC_ERROR_FILE"
#: The beginning of the name of such a file where the user named none.
OWN_ERROR_FILE = "/tmp/podwright-retry-"


class FailureRecord(NamedTuple):
    """A process that failed. at: in seconds since 1970. text: all that it says of its end."""

    node: str
    at: float
    message: str
    text: str
    source: str


class _PoprunLine(msgspec.Struct):
    host: str
    time: float
    code: int
    first: bool = False
    message: str | None = None
    traceback: str | None = None
    last_lines: list[str] = []


def read_error_file(node: str, text: str) -> FailureRecord | None:
    """The record in a node's error file; None where there is none that can be read."""
    try:
        said = msgspec.json.decode(text)["message"]
        message, details = str(said["message"]), said["extraInfo"]
        at, traceback = float(details["timestamp"]), str(details["py_callstack"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return None
    source = f"the error file of torch elastic on {node}"
    return FailureRecord(node, at, message, f"{message}\n{traceback}", source)


def poprun_files(command: Sequence[str]) -> list[str]:
    """The files of records in the folders that a command names by --log-dir."""
    folders = re.findall(r"--log-dir[= ](\S+)", os.path.expandvars(" ".join(command)))
    return [f"{folder}/failures.jsonl" for folder in folders]


def read_poprun_lines(text: str) -> list[FailureRecord]:
    """The records in the text of `failures.jsonl`: those that poprun has as first, or all."""
    lines = []
    for line in text.splitlines():
        try:
            lines.append(msgspec.json.decode(line, type=_PoprunLine))
        except msgspec.DecodeError:
            continue
    source = "failures.jsonl of poprun"
    return [
        FailureRecord(
            line.host,
            line.time,
            line.message or f"it ended with {line.code}",
            "\n".join((line.message or "", line.traceback or "", *line.last_lines)),
            source,
        )
        for line in [line for line in lines if line.first] or lines
    ]


def first_failures(records: Iterable[FailureRecord]) -> list[FailureRecord]:
    """The earliest records. torch's have whole seconds, so there may be several."""
    ordered = sorted(records, key=lambda record: record.at)
    return [record for record in ordered if int(record.at) == int(ordered[0].at)]
