"""Reads a trace in any format, which the first line determines, and lists what the format lacks."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterable, Iterator
from datetime import tzinfo
from itertools import chain
from pathlib import Path
from typing import IO

from podwright.errors import InvalidRequest
from podwright.replay.traces._csv import FIELDS, is_csv, read_csv
from podwright.replay.traces._sacct import SACCT_COMMAND, is_sacct, read_sacct
from podwright.replay.traces._swf import is_swf, read_swf
from podwright.replay.traces._trace import Skipped, Trace, TraceJob


def read_trace(path: str, *, zone: tzinfo | None = None, tres: str = "") -> Trace:
    """Read the jobs of a file: sacct's output, CSV or SWF, plain or compressed by gzip.

    `-` reads standard input. Raises InvalidRequest for a file that is none of these or has no job.

    zone, tres: see `read_sacct`.
    """
    name = "standard input" if path == "-" else Path(path).name
    try:
        file = sys.stdin.fileno() if path == "-" else path
        with open(file, "rb", closefd=path != "-") as raw, _text(raw) as lines:
            return read_lines(lines, name, zone=zone, tres=tres)
    except OSError as error:
        raise InvalidRequest(f"{error.strerror or error}", operation=f"read {path}") from None
    except (EOFError, zlib.error) as error:
        raise InvalidRequest(
            f"the file is cut off or damaged: {error}", operation=f"read {name}"
        ) from None


def read_lines(
    lines: Iterable[str], source: str, *, zone: tzinfo | None = None, tres: str = ""
) -> Trace:
    """Do as `read_trace` does, for lines."""
    rows = iter(lines)
    skipped = Skipped()
    first = next(rows, "").lstrip("\ufeff")
    while first and not first.strip():
        skipped.blank += 1
        first = next(rows, "")
    rows = chain([first], rows)
    jobs: Iterator[TraceJob]
    if is_sacct(first):
        jobs = read_sacct(rows, skipped, zone=zone, tres_name=tres)
    elif is_csv(first):
        jobs = read_csv(rows, skipped)
    elif is_swf(first):
        jobs = read_swf(rows, skipped)
    else:
        raise InvalidRequest(
            f"{source} is neither sacct's output nor CSV nor SWF: {first.strip()[:80]!r}",
            operation="read jobs from it",
            would_work=f"{SACCT_COMMAND} > sacct.txt; or CSV with a first line {','.join(FIELDS)}",
        )
    trace = Trace(source, jobs, skipped)
    if is_sacct(first):
        trace.drop_repeated()
    if not len(trace):
        wanted = f"--tres NAME, one of {', '.join(sorted(skipped.tres))}" if skipped.tres else ""
        raise InvalidRequest(
            _empty(source, skipped), operation="replay it", would_work=wanted or SACCT_COMMAND
        )
    trace.notes += _silent(trace)
    return trace


def _text(raw: io.BufferedReader) -> IO[str]:
    """Decode a line. Bytes that are not UTF-8, usually in a name, are escaped."""
    packed = raw.peek(2)[:2] == b"\x1f\x8b"
    stream = gzip.GzipFile(fileobj=raw) if packed else raw
    return io.TextIOWrapper(stream, encoding="utf-8", errors="backslashreplace", newline="")


def _empty(source: str, skipped: Skipped) -> str:
    words = f"{source} holds no job with devices"
    counted = [f"{count} {reason}" for reason, count in skipped.reasons.items()]
    counted += [f"{skipped.bad} lines that cannot be read"] if skipped.bad else []
    if skipped.shown:
        number, problem, _ = skipped.shown[0]
        counted.append(f"line {number}: {problem}")
    return f"{words} ({'; '.join(counted)})" if counted else words


def _silent(trace: Trace) -> list[str]:
    """Return what the trace does not contain, and what that means for a simulation of it."""
    notes = []
    if not trace.has_limits:
        notes.append(
            "It has no time limits. Each job's limit is taken to be unknown to Slurm: nothing is "
            "planned around the end of a running job."
        )
    if not trace.has_starts:
        notes.append(
            "It does not say when jobs began, so the simulation cannot be held against the "
            "recorded site."
        )
    if trace.skipped.local_times:
        notes.append(
            "Its times have no offset: an hour that the clock had twice, at the end of summer "
            "time, is taken for the first of the two."
        )
    if trace.skipped.still_running:
        notes.append(
            f"{trace.skipped.still_running} jobs were still running: they count as ended when it "
            "was written."
        )
    if not any(trace.user):
        notes.append("It names no users, or one: fair share has nothing to weigh.")
    return notes
