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
from podwright.ground.plural import counted
from podwright.replay.traces._csv import FIELDS, is_csv, read_csv
from podwright.replay.traces._sacct import SACCT_COMMAND, is_sacct, read_sacct
from podwright.replay.traces._swf import is_swf, read_swf
from podwright.replay.traces._trace import Skipped, Trace, TraceJob


def read_trace(path: str, *, zone: tzinfo | None = None, tres: str = "") -> Trace:
    """Read the jobs of a file: sacct's output, CSV or SWF, plain or compressed by gzip.

    `-` reads standard input. Raises InvalidRequest for a file that is none of these or has no job.

    zone, tres: see `read_sacct`.
    """
    source_name = "standard input" if path == "-" else Path(path).name
    try:
        path_or_descriptor = sys.stdin.fileno() if path == "-" else path
        with (
            open(path_or_descriptor, "rb", closefd=path != "-") as binary_file,
            _decode_line(binary_file) as text_lines,
        ):
            return read_lines(text_lines, source_name, zone=zone, tres=tres)
    except OSError as error:
        raise InvalidRequest(f"{error.strerror or error}", operation=f"read {path}") from None
    except (EOFError, zlib.error) as error:
        raise InvalidRequest(
            f"the file is cut off or damaged: {error}", operation=f"read {source_name}"
        ) from None


def read_lines(
    lines: Iterable[str], source: str, *, zone: tzinfo | None = None, tres: str = ""
) -> Trace:
    """Do as `read_trace` does, for lines."""
    remaining_lines = iter(lines)
    skipped = Skipped()
    first_line = next(remaining_lines, "").lstrip("\ufeff")
    while first_line and not first_line.strip():
        skipped.blank += 1
        first_line = next(remaining_lines, "")
    remaining_lines = chain([first_line], remaining_lines)
    jobs: Iterator[TraceJob]
    if is_sacct(first_line):
        jobs = read_sacct(remaining_lines, skipped, zone=zone, tres_name=tres)
    elif is_csv(first_line):
        jobs = read_csv(remaining_lines, skipped, zone=zone)
    elif is_swf(first_line):
        jobs = read_swf(remaining_lines, skipped)
    else:
        raise InvalidRequest(
            f"{source} is neither sacct's output nor CSV nor SWF: {first_line.strip()[:80]!r}",
            operation="read jobs from it",
            would_work=f"{SACCT_COMMAND} > sacct.txt; or CSV with a first line {','.join(FIELDS)}",
        )
    trace = Trace(source, jobs, skipped)
    if is_sacct(first_line):
        trace.drop_repeated()
    if not len(trace):
        tres_hint = f"--tres NAME, one of {', '.join(sorted(skipped.tres))}" if skipped.tres else ""
        raise InvalidRequest(
            _no_jobs_message(source, skipped),
            operation="replay it",
            would_work=tres_hint or SACCT_COMMAND,
        )
    trace.notes += _missing_data_notes(trace)
    return trace


def _decode_line(binary_file: io.BufferedReader) -> IO[str]:
    """Decode a line. Bytes that are not UTF-8, usually in a name, are escaped."""
    is_gzip = binary_file.peek(2)[:2] == b"\x1f\x8b"
    stream = gzip.GzipFile(fileobj=binary_file) if is_gzip else binary_file
    return io.TextIOWrapper(stream, encoding="utf-8", errors="backslashreplace", newline="")


def _no_jobs_message(source: str, skipped: Skipped) -> str:
    no_jobs_text = f"{source} holds no job with devices"
    skipped_counts = [f"{count} {reason}" for reason, count in skipped.reasons.items()]
    skipped_counts += [f"{counted(skipped.bad, 'line')} that cannot be read"] if skipped.bad else []
    if skipped.shown:
        number, problem, _ = skipped.shown[0]
        skipped_counts.append(f"line {number}: {problem}")
    return f"{no_jobs_text} ({'; '.join(skipped_counts)})" if skipped_counts else no_jobs_text


def _missing_data_notes(trace: Trace) -> list[str]:
    """Return what the trace does not contain, and what that means for a simulation of it."""
    notes = []
    if not trace.has_limits:
        notes.append(
            "It has no time limits. Each job's limit is taken to be unknown to Slurm: nothing is "
            "planned around the end of a running job."
        )
    if trace.skipped.local_times:
        notes.append(
            "Its times have no offset: an hour that the clock had twice, at the end of summer "
            "time, is taken for the first of the two."
        )
    if trace.skipped.still_running:
        notes.append(
            f"{counted(trace.skipped.still_running, 'job', ('was', 'were'))} still running, and "
            f"{'counts' if trace.skipped.still_running == 1 else 'count'} as ended when it "
            "was written."
        )
    if not any(trace.user):
        notes.append("It names no users, or one: fair share has nothing to weigh.")
    return notes
