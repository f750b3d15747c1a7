"""Jobs out of `sacct --parsable2`: any order of fields, every release.

A line is a life: a job that was requeued has one for each start where sacct was asked with
--duplicates, and the last alone otherwise. Components of a heterogeneous job are one job with
the devices of all. Source: sacct(1); what releases print was seen in the project's lab.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import tzinfo
from functools import reduce

from podwright.errors import InvalidRequest
from podwright.replay._trace import Skipped, Status, TraceJob
from podwright.replay._tres import count, devices, duration, memory, tres, when

#: What a site should ask for. TimelimitRaw is in minutes.
FIELDS = (
    "JobID", "User", "State", "Submit", "Eligible", "Start", "End", "ElapsedRaw", "TimelimitRaw",
    "ReqTRES", "AllocTRES", "NNodes", "NCPUS", "ReqMem",
)  # fmt: skip
COMMAND = (
    "SLURM_TIME_FORMAT=%s sacct --allusers --allocations --duplicates --parsable2 "
    f"--starttime now-30days --format {','.join(FIELDS)}"
)
_NEEDED = {
    "JobID": ("JobID", "JobIDRaw"),
    "State": ("State",),
    "Submit": ("Submit",),
    "a run time": ("ElapsedRaw", "Elapsed"),
    "devices": ("AllocTRES", "ReqTRES"),
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
    """Is this the first line of sacct's output?"""
    words = header.strip().split("|")
    return len(words) > 2 and any(word in ("JobID", "JobIDRaw") for word in words)


def read_sacct(
    lines: Iterable[str], skipped: Skipped, *, zone: tzinfo | None = None, tres_name: str = ""
) -> Iterator[TraceJob]:
    """Jobs of sacct's lines, the header first. Raises InvalidRequest for a field that is missing.

    zone: of times without an offset; None: this machine's. tres_name: what are devices
    (`gres/gpu`, `license/ipu`, `node`); empty: whatever of these a job has.
    """
    rows = iter(lines)
    header = next(rows, "").strip().split("|")
    for what, names in _NEEDED.items():
        if not any(name in header for name in names):
            raise InvalidRequest(
                f"sacct's output has no field for {what}: {', '.join(names)}",
                asked="read it",
                would_work=COMMAND,
            )
    reader = _Reader(header, zone, tres_name)
    parts: dict[str, dict[str, TraceJob]] = {}
    for number, text in enumerate(rows, start=2):
        if not text.strip():
            continue
        try:
            found = reader.job(text.rstrip("\n"), skipped)
        except (ValueError, OverflowError) as error:
            skipped.line(number, str(error), text)
            continue
        if found is None:
            continue
        part = _PART.match(found.name)
        if part is None:
            yield found
        else:
            same = parts.setdefault(f"{part[1]}@{found.start}", {})
            same[part[2]] = found._replace(name=part[1])
    for same in parts.values():
        yield reduce(_joined, same.values())


class _Reader:
    """Knows where each field stands."""

    def __init__(self, header: Sequence[str], zone: tzinfo | None, tres_name: str) -> None:
        self._at = {name.partition("%")[0]: at for at, name in enumerate(header)}
        self._width = len(header)
        self._zone, self._tres = zone, tres_name

    def job(self, text: str, skipped: Skipped) -> TraceJob | None:
        """The job of a line; None: there is none to simulate. Raises ValueError."""
        words = text.split("|")
        if len(words) != self._width:
            raise ValueError(f"{len(words)} fields where the header has {self._width}")

        def said(*names: str) -> str:
            found = (words[self._at[name]].strip() for name in names if name in self._at)
            return next((word for word in found if word), "")

        name = said("JobID", "JobIDRaw")
        if not name[:1].isdecimal():
            raise ValueError(f"{name!r} is no job")
        if _STEP.match(name):
            skipped.count("steps of jobs")
            return None
        state = said("State").partition(" ")[0].rstrip("+")
        if state in ("PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT"):
            skipped.count("jobs that were still waiting")
            return None
        if state not in _STATES:
            raise ValueError(f"{state!r} is no state of a job")
        submit, begun = when(said("Submit"), self._zone), when(said("Start"), self._zone)
        if math.isnan(submit):
            raise ValueError("it has no time of submission")
        raw = said("ElapsedRaw")
        runtime = float(raw) if raw else duration(said("Elapsed"))
        if math.isnan(begun) or (not runtime and _STATES[state] is Status.CANCELLED):
            skipped.count("jobs that were cancelled before they began")
            return None
        granted, asked = tres(said("AllocTRES")), tres(said("ReqTRES"))
        nodes = _number(said("NNodes", "AllocNodes", "ReqNodes"))
        cpus = _number(said("NCPUS", "AllocCPUS", "ReqCPUS")) or count(granted.get("cpu", "0"))
        size = devices(granted, self._tres) or devices(asked, self._tres)
        if self._tres == "node":
            size = size or nodes
        if size <= 0:
            skipped.count("jobs without devices")
            skipped.tres.update(granted, asked)
            return None
        if _STATES[state] is Status.RUNNING:
            skipped.still_running += 1
        skipped.local_times |= len(said("Submit")) == len("2026-10-25T02:30:00")
        return TraceJob(
            name=name,
            submit=submit,
            runtime=runtime,
            devices=size,
            limit=duration(said("TimelimitRaw", "Timelimit")),
            status=_STATES[state],
            user=said("User"),
            eligible=when(said("Eligible"), self._zone),
            start=begun,
            nodes=nodes,
            cpus=cpus,
            memory=memory(said("ReqMem"), cpus, nodes),
        ).with_times()


def _number(text: str) -> int:
    return count(text) if text and text != "Unknown" else 0


def _joined(one: TraceJob, other: TraceJob) -> TraceJob:
    """Components of a heterogeneous job as one job."""
    return one._replace(
        devices=one.devices + other.devices,
        nodes=one.nodes + other.nodes,
        cpus=one.cpus + other.cpus,
        memory=one.memory + other.memory,
        runtime=max(one.runtime, other.runtime),
        submit=min(one.submit, other.submit),
    )
