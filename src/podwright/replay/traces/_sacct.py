"""Reads jobs from the output of `sacct --parsable2`, with any order of fields, of every release.

A line is one run of a job. A requeued job has a line for each start if sacct was called with
--duplicates, and otherwise only its last. The components of a heterogeneous job are one job with
the devices of all. Source: sacct(1); the output of releases was observed in the project's lab.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import tzinfo
from functools import reduce

from podwright.errors import InvalidRequest
from podwright.replay.traces._trace import Skipped, Status, TraceJob
from podwright.replay.traces._tres import count, devices, duration, memory, tres, when
from podwright.slurm.reader import accounting_columns, accounting_format

#: The fields that a site should request.
_ASKED = (
    *("job", "user", "state", "submitted", "eligible", "start", "end", "seconds"),
    *("limit_minutes", "requested", "granted", "nodes", "cpus", "requested_memory"),
)
SACCT_COMMAND = (
    "SLURM_TIME_FORMAT=%s sacct --allusers --allocations --duplicates --parsable2 "
    f"--starttime now-30days --format {accounting_format(*_ASKED)}"
)
#: One field of each row is required.
_NEEDED = {
    "a job's number": ("job", "raw_job"),
    "its state": ("state",),
    "its submission": ("submitted",),
    "a run time": ("seconds", "elapsed"),
    "devices": ("granted", "requested"),
}
_STEP = re.compile(r"^[\d_+]+\.")
_PART = re.compile(r"^(\d+)\+(\d+)$")
_STATES = {
    "BOOT_FAIL": Status.NODE_FAIL,
    "CANCELLED": Status.CANCELLED,
    "COMPLETED": Status.COMPLETED,
    "COMPLETING": Status.RUNNING,
    "DEADLINE": Status.CANCELLED,
    "FAILED": Status.FAILED,
    "NODE_FAIL": Status.NODE_FAIL,
    "OUT_OF_MEMORY": Status.OUT_OF_MEMORY,
    "PREEMPTED": Status.PREEMPTED,
    "REQUEUED": Status.REQUEUED,
    "RESIZING": Status.RUNNING,
    "REVOKED": Status.CANCELLED,
    "RUNNING": Status.RUNNING,
    "SUSPENDED": Status.RUNNING,
    "TIMEOUT": Status.TIMEOUT,
}


def is_sacct(header: str) -> bool:
    """Return whether this is the first line of sacct's output."""
    words = header.strip().split("|")
    return len(words) > 2 and not {"job", "raw_job"}.isdisjoint(accounting_columns(words))


def read_sacct(
    lines: Iterable[str], skipped: Skipped, *, zone: tzinfo | None = None, tres_name: str = ""
) -> Iterator[TraceJob]:
    """Read jobs from sacct's lines, the header first. Raises InvalidRequest for a missing field.

    zone: of times without an offset; None: this machine's. tres_name: the TRES that counts as
    devices (`gres/gpu`, `license/ipu`, `node`); empty: whichever of these a job has.
    """
    rows = iter(lines)
    header = next(rows, "").strip().split("|")
    columns = accounting_columns(header)
    for need, names in _NEEDED.items():
        if not any(name in columns for name in names):
            raise InvalidRequest(
                f"sacct's output has no field for {need}: {accounting_format(*names)}",
                operation="read the jobs",
                would_work=SACCT_COMMAND,
            )
    reader = _Reader(header, zone, tres_name)
    parts: dict[str, dict[str, TraceJob]] = {}
    for number, text in enumerate(rows, start=2):
        if not text.strip():
            continue
        try:
            job = reader.job(text.rstrip("\n"), skipped)
        except (ValueError, OverflowError) as error:
            skipped.line(number, str(error), text)
            continue
        if job is None:
            continue
        part = _PART.match(job.name)
        if part is None:
            yield job
        else:
            same = parts.setdefault(f"{part[1]}@{job.start}", {})
            same[part[2]] = job._replace(name=part[1])
    for same in parts.values():
        yield reduce(_joined, same.values())


class _Reader:
    """Reads lines by the positions of their fields."""

    def __init__(self, header: Sequence[str], zone: tzinfo | None, tres_name: str) -> None:
        self._column_of = accounting_columns(header)
        self._width = len(header)
        self._zone, self._tres = zone, tres_name

    def job(self, text: str, skipped: Skipped) -> TraceJob | None:
        """Return the job of a line; None when there is none to simulate. Raises ValueError."""
        words = text.split("|")
        if len(words) != self._width:
            raise ValueError(f"{len(words)} fields where the header has {self._width}")

        def field(*names: str) -> str:
            texts = (
                words[self._column_of[name]].strip() for name in names if name in self._column_of
            )
            return next((word for word in texts if word), "")

        name = field("job", "raw_job")
        if not name[:1].isdecimal():
            raise ValueError(f"{name!r} is not a job")
        if _STEP.match(name):
            skipped.count("steps of jobs")
            return None
        state = field("state").partition(" ")[0].rstrip("+")
        if state in ("PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT"):
            skipped.count("jobs that were still waiting")
            return None
        if state not in _STATES:
            raise ValueError(f"{state!r} is not a job state")
        submit, start = when(field("submitted"), self._zone), when(field("start"), self._zone)
        if math.isnan(submit):
            raise ValueError("it has no time of submission")
        raw = field("seconds")
        runtime = float(raw) if raw else duration(field("elapsed"))
        if math.isnan(start) or (not runtime and _STATES[state] is Status.CANCELLED):
            skipped.count("jobs that were cancelled before they began")
            return None
        granted, requested = tres(field("granted")), tres(field("requested"))
        nodes = _number(field("nodes", "granted_nodes", "requested_nodes"))
        cpus = _number(field("cpus", "granted_cpus", "requested_cpus")) or count(
            granted.get("cpu", "0")
        )
        size = devices(granted, self._tres) or devices(requested, self._tres)
        if self._tres == "node":
            size = size or nodes
        if size <= 0:
            skipped.count("jobs without devices")
            skipped.tres.update(granted, requested)
            return None
        if _STATES[state] is Status.RUNNING:
            skipped.still_running += 1
        skipped.local_times |= len(field("submitted")) == len("2026-10-25T02:30:00")
        return TraceJob(
            name=name,
            submit=submit,
            runtime=runtime,
            devices=size,
            limit=duration(field("limit_minutes", "limit")),
            status=_STATES[state],
            user=field("user"),
            eligible=when(field("eligible"), self._zone),
            start=start,
            nodes=nodes,
            cpus=cpus,
            memory=memory(field("requested_memory"), cpus, nodes),
        ).with_times()


def _number(text: str) -> int:
    return count(text) if text and text != "Unknown" else 0


def _joined(job: TraceJob, other: TraceJob) -> TraceJob:
    """Join the components of a heterogeneous job into one job."""
    return job._replace(
        devices=job.devices + other.devices,
        nodes=job.nodes + other.nodes,
        cpus=job.cpus + other.cpus,
        memory=job.memory + other.memory,
        runtime=max(job.runtime, other.runtime),
        submit=min(job.submit, other.submit),
    )
