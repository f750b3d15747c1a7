"""Reads jobs from the output of `sacct --parsable2`, with any order of fields, of every release.

Fields may also be between commas or tabs. A line is one run of a job. A requeued job has a line for
each start if sacct was called with --duplicates, and otherwise only its last. Each component of a
heterogeneous job is a job. From 24.11 on, Slurm counts the licences of all components with the
first one, so the note that job_submit writes to a component's AdminComment says how many devices
are its own. Source: sacct(1); the output of releases was observed in the project's lab.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import tzinfo

from podwright.errors import InvalidRequest
from podwright.replay.traces._csv import split_csv_line
from podwright.replay.traces._parse_sacct_values import (
    DEVICE_TRES_NAMES,
    count,
    devices,
    duration,
    memory,
    tres,
    when,
)
from podwright.replay.traces._trace import Skipped, Status, TraceJob
from podwright.slurm.reader import accounting_columns, accounting_format

#: The fields that a site should request.
_REQUESTED_COLUMNS = (
    *("job", "user", "state", "submitted", "eligible", "start", "end", "seconds"),
    *("limit_minutes", "requested", "granted", "nodes", "cpus", "requested_memory", "comment"),
)
SACCT_COMMAND = (
    "SLURM_TIME_FORMAT=%s sacct --allusers --allocations --duplicates --parsable2 "
    f"--starttime now-30days --format {accounting_format(*_REQUESTED_COLUMNS)}"
)
#: One field of each row is required.
_REQUIRED_COLUMNS = {
    "a job's number": ("job", "raw_job"),
    "its state": ("state",),
    "its submission": ("submitted",),
    "a run time": ("seconds", "elapsed"),
    "devices": ("granted", "requested"),
}
_STEP_ID_PATTERN = re.compile(r"^[\d_+]+\.")
_HET_PART_PATTERN = re.compile(r"^(\d+)\+\d+$")
#: A component's own devices, as Podwright's job_submit notes them.
_COMPONENT_NOTE = re.compile(r"\b(?:ipus|vipu)=(\d+)")
_DELIMITERS = ("|", "\t", ",")
_TRES_ENTRY = re.compile(r"[a-z][\w/.:-]*=[\w.:/-]*")
_STATUS_BY_STATE = {
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
    return bool(_delimiter_of(header))


def _delimiter_of(header: str) -> str:
    """Return the character between the fields; empty where these are not sacct's."""
    for delimiter in _DELIMITERS:
        fields = _split(header, delimiter)
        if len(fields) > 2 and not {"job", "raw_job"}.isdisjoint(accounting_columns(fields)):
            return delimiter
    return ""


def _split(line_text: str, delimiter: str) -> list[str]:
    """Return the fields of a line. Raises ValueError."""
    line_text = line_text.rstrip("\r\n")
    return split_csv_line(line_text) if delimiter == "," else line_text.split(delimiter)


def _join_tres(fields: Sequence[str]) -> list[str]:
    """Return the fields of a line with commas between them, in which each TRES has commas, too.

    Slurm writes the entries of a TRES in the order of their names, each once. So one that is there
    already, or comes earlier in that order, begins the next field.
    """
    joined: list[str] = []
    names: list[str] = []  # of the entries of the last field; empty where it is no TRES
    for field in fields:
        name = field.partition("=")[0] if _TRES_ENTRY.fullmatch(field) else ""
        if name and names and name not in names and _resource(name) >= _resource(names[-1]):
            joined[-1] += f",{field}"
            names.append(name)
        else:
            joined.append(field)
            names = [name] if name else []
    return joined


def _resource(tres_name: str) -> str:
    """Return `gres/gpu` of `gres/gpu:a100`, which stands before or after it, by release."""
    return tres_name.partition(":")[0]


def read_sacct(
    lines: Iterable[str], skipped: Skipped, *, zone: tzinfo | None = None, tres_name: str = ""
) -> Iterator[TraceJob]:
    """Read jobs from sacct's lines, the header first. Raises InvalidRequest for a missing field.

    zone: of times without an offset; None: this machine's. tres_name: the TRES that counts as
    devices (`gres/gpu`, `license/ipu`, `node`); empty: whichever of these a job has.
    """
    line_iterator = iter(lines)
    header = next(line_iterator, "")
    delimiter = _delimiter_of(header) or "|"
    header_fields = _split(header, delimiter)
    columns_by_name = accounting_columns(header_fields)
    for required_value, field_names in _REQUIRED_COLUMNS.items():
        if not any(field_name in columns_by_name for field_name in field_names):
            raise InvalidRequest(
                f"sacct's output has no field for {required_value}: "
                f"{accounting_format(*field_names)}",
                operation="read the jobs",
                would_work=SACCT_COMMAND,
            )
    line_reader = _SacctLineReader(header_fields, delimiter, zone, tres_name)
    components_by_job: dict[str, list[TraceJob]] = {}
    for line_number, line_text in enumerate(line_iterator, start=2):
        if not line_text.strip():
            continue
        try:
            job = line_reader.job(line_text, skipped)
        except (ValueError, OverflowError) as error:
            skipped.line(line_number, str(error), line_text)
            continue
        if job is None:
            continue
        if component := _HET_PART_PATTERN.match(job.name):
            components_by_job.setdefault(f"{component[1]}@{job.start}", []).append(job)
        else:
            yield job
    for components in components_by_job.values():
        yield from line_reader.known_components(components, skipped)


class _SacctLineReader:
    """Reads lines by the positions of their fields."""

    def __init__(
        self, header: Sequence[str], delimiter: str, zone: tzinfo | None, tres_name: str
    ) -> None:
        self._column_of = accounting_columns(header)
        self._width, self._delimiter = len(header), delimiter
        #: Names of components with a note, and of those whose devices are counted as licences.
        self._noted: set[str] = set()
        self._licensed: set[str] = set()
        self._zone, self._tres = zone, tres_name

    def job(self, line_text: str, skipped: Skipped) -> TraceJob | None:
        """Return the job of a line; None when there is none to simulate. Raises ValueError."""
        fields = _split(line_text, self._delimiter)
        if self._delimiter == "," and len(fields) > self._width:
            fields = _join_tres(fields)
        if len(fields) != self._width:
            raise ValueError(f"{len(fields)} fields where the header has {self._width}")

        def field(*field_names: str) -> str:
            field_texts = (
                fields[self._column_of[field_name]].strip()
                for field_name in field_names
                if field_name in self._column_of
            )
            return next((field_text for field_text in field_texts if field_text), "")

        job_id = field("job", "raw_job")
        if not job_id[:1].isdecimal():
            raise ValueError(f"{job_id!r} is not a job")
        if _STEP_ID_PATTERN.match(job_id):
            skipped.count("steps of jobs")
            return None
        state_name = field("state").partition(" ")[0].rstrip("+")
        if state_name in ("PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT"):
            skipped.count("jobs that were still waiting")
            return None
        if state_name not in _STATUS_BY_STATE:
            raise ValueError(f"{state_name!r} is not a job state")
        submit_time, start_time = (
            when(field("submitted"), self._zone),
            when(field("start"), self._zone),
        )
        if math.isnan(submit_time):
            raise ValueError("it has no time of submission")
        runtime_text = field("seconds")
        runtime_seconds = float(runtime_text) if runtime_text else duration(field("elapsed"))
        if math.isnan(start_time) or (
            not runtime_seconds and _STATUS_BY_STATE[state_name] is Status.CANCELLED
        ):
            skipped.count("jobs that were cancelled before they began")
            return None
        granted_tres, requested_tres = tres(field("granted")), tres(field("requested"))
        node_count = _parse_count(field("nodes", "granted_nodes", "requested_nodes"))
        cpu_count = _parse_count(field("cpus", "granted_cpus", "requested_cpus")) or count(
            granted_tres.get("cpu", "0")
        )
        device_count = devices(granted_tres, self._tres) or devices(requested_tres, self._tres)
        if self._tres == "node":
            device_count = device_count or node_count
        is_component = bool(_HET_PART_PATTERN.match(job_id))
        if is_component:
            counted_tres = self._tres or DEVICE_TRES_NAMES[0]
            if (
                counted_tres.startswith("license/")
                and counted_tres in granted_tres | requested_tres
            ):
                self._licensed.add(job_id)
            if note := _COMPONENT_NOTE.search(field("comment")):
                self._noted.add(job_id)
                device_count = int(note[1])
        if device_count <= 0 and not is_component:
            skipped.count("jobs without devices")
            skipped.tres.update(granted_tres, requested_tres)
            return None
        if _STATUS_BY_STATE[state_name] is Status.RUNNING:
            skipped.still_running += 1
        skipped.local_times |= len(field("submitted")) == len("2026-10-25T02:30:00")
        return TraceJob(
            name=job_id,
            submit=submit_time,
            runtime=runtime_seconds,
            devices=device_count,
            limit=duration(field("limit_minutes", "limit")),
            status=_STATUS_BY_STATE[state_name],
            user=field("user"),
            eligible=when(field("eligible"), self._zone),
            start=start_time,
            nodes=node_count,
            cpus=cpu_count,
            memory=memory(field("requested_memory"), cpu_count, node_count),
        ).with_checked_times()

    def known_components(
        self, components: Sequence[TraceJob], skipped: Skipped
    ) -> Iterator[TraceJob]:
        """Return the components of one job that have devices.

        A component without licences and without a note may have its devices counted with another
        one's. Then no component's own devices are known.
        """
        is_sum = any(job.name in self._licensed - self._noted for job in components) and any(
            not job.devices and job.name not in self._noted for job in components
        )
        for job in components:
            if is_sum:
                skipped.count("components of heterogeneous jobs of which sacct has only the sum")
            elif job.devices:
                yield job
            else:
                skipped.count("jobs without devices")


def _parse_count(count_text: str) -> int:
    return count(count_text) if count_text and count_text != "Unknown" else 0
