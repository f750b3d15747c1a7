"""Writes the timeline of a launch while it runs: `poprun --trace FILE`.

Each event is a packet at the end of the file. So the file can be read at any time, and after any
end, up to the last complete packet. The records of instances are bounded: each instance has a share
of LIMIT bytes, and records beyond it are left out and counted. `open` loads the library of the
format, after the launch has forked everything that it forks; earlier events wait in memory.

Tracks: the launch; the start of its instances; collectives, which show whom all waited for; and one
for each instance, below its host.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from podwright.errors import InvalidRequest
from podwright.timeline._clock_offset import HostClock
from podwright.timeline._instance_records import InstanceRecords

if TYPE_CHECKING:
    from types import ModuleType

    from podwright.timeline._instance_packets import InstancePackets

#: The limit in bytes of all instances' records in the file.
LIMIT = 128 << 20
#: The limit of files that are named for a report's folder.
LISTED = 50
LAUNCH, START, COLLECTIVES = 1, 2, 3
_FIRST_HOST_TRACK, _FIRST_INSTANCE_TRACK = 1000, 1_000_000

Told = str | int | float | bool


def clock() -> int:
    """Return the nanoseconds since this host started."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def open_file(trace_path: str) -> int:
    """Open a file for a trace, private and empty. Raises InvalidRequest when that is impossible.

    A file that is not a trace is not overwritten, since `--trace train.py` is a slip.
    """
    open_flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(trace_path, open_flags, 0o600)
    except OSError as error:
        raise InvalidRequest(f"--trace: {trace_path}: {error.strerror}") from None
    try:
        file_status = os.fstat(descriptor)
        if not stat.S_ISREG(file_status.st_mode):
            raise InvalidRequest(f"--trace: {trace_path} is not a file", would_work="Name a file")
        if file_status.st_size and not _is_trace(os.pread(descriptor, 64, 0)):
            raise InvalidRequest(
                f"--trace: {trace_path} is there, and is not a trace",
                would_work="Name another file, or remove this one",
            )
        os.fchmod(descriptor, 0o600)
        os.ftruncate(descriptor, 0)
    except OSError as error:
        os.close(descriptor)
        raise InvalidRequest(f"--trace: {trace_path}: {error.strerror}") from None
    except InvalidRequest:
        os.close(descriptor)
        raise
    return descriptor


def _is_trace(first_bytes: bytes) -> bool:
    """Return whether a file begins like a trace: with a packet of a sequence and a clock
    snapshot.
    """
    return (
        first_bytes[:1] == b"\x0a" and first_bytes[2:3] == b"\x32" and first_bytes[4:5] == b"\x0a"
    )


class TraceWriter:
    """Writes the timeline of one launch. descriptor: the file's descriptor; below 0: nothing is
    written.

    All methods may be called at any time, and none raises. `problem` has the first error; nothing
    is written after it.
    """

    def __init__(
        self,
        descriptor: int,
        instances: int,
        now: Callable[[], int] = clock,
        byte_limit: int = LIMIT,
    ) -> None:
        self.handle, self.on = descriptor, descriptor >= 0
        self.problem = "" if self.on else "off"
        self._now = now
        self._share = byte_limit // max(instances, 1)
        self._queue: list[tuple[Any, ...]] = []
        self._packets: ModuleType | None = None
        self._open: list[str] = []
        self._start_is_open = False
        self._attempt = 0
        self._hosts: dict[str, int] = {}
        self._clocks: dict[str, HostClock] = {}
        self._tracks: dict[tuple[int, str], int] = {}
        self._current: dict[int, tuple[int, str]] = {}
        self._ranks_with_output: set[int] = set()
        self._streams: dict[int, InstanceRecords] = {}
        self._used: dict[int, int] = {}
        self._left_out: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._said: InstancePackets | None = None

    # Events of the launch

    def begin(self, phase_name: str, **annotations: Told) -> None:
        """Begin a phase, within the phases that have not ended."""
        self._open.append(phase_name)
        self._put_event("BEGIN", LAUNCH, phase_name, "launch", annotations)

    def end(self, end_time: int | None = None, **annotations: Told) -> None:
        """End the phase that began last. end_time: its end, if that was earlier."""
        if self._open:
            self._open.pop()
            self._put_event("END", LAUNCH, "", "", annotations, end_time)

    def end_to(self, depth: int) -> None:
        """End all phases but the first `depth`."""
        while len(self._open) > depth:
            self.end()

    def past(self, phase_name: str, begin_ns: int, end_ns: int, **annotations: Told) -> None:
        """Write a phase that is known only afterwards. begin, end_ns: nanoseconds."""
        self._put_event("BEGIN", LAUNCH, phase_name, "launch", annotations, begin_ns)
        self._put_event("END", LAUNCH, "", "", {}, max(begin_ns, end_ns))

    def happened(self, event_name: str, event_time: int | None = None, **annotations: Told) -> None:
        """Write an event of the launch. event_time: its time, if that was earlier.

        Everything that is done to a running launch is such an event: a restart, a move to other
        devices.
        """
        self._put_event("INSTANT", LAUNCH, event_name, "launch", annotations, event_time)

    def attempt(self, number: int) -> None:
        """Begin a start of all instances. number: which start this is, from 1."""
        self._attempt = number
        self._current.clear()
        self._ranks_with_output.clear()
        self._streams.clear()
        if self._said:
            self._said.forget()
        self.begin(f"start {number}" if number > 1 else "run", attempt=number)

    def starting(self, start_method: str) -> None:
        """Begin the start of the instances. start_method: what starts them."""
        self.started()
        self._start_is_open = True
        self._put_event("BEGIN", START, start_method, "start", {"attempt": self._attempt})

    def started(self) -> None:
        """End the start: all instances have begun, or never will."""
        if self._start_is_open:
            self._start_is_open = False
            self._put_event("END", START, "", "", {})

    # Events of instances

    def instance_began(self, rank: int, host: str) -> None:
        """Note that the script in front of an instance began."""
        self._current[rank] = (self._track(rank, host), host)
        annotations: dict[str, Told] = {"rank": rank, "host": host, "attempt": self._attempt}
        self._put_event(
            "BEGIN", self._current[rank][0], f"instance {rank}", "instance", annotations
        )

    def instance_wrote(self, rank: int) -> None:
        """Note that an instance wrote something; only its first line is written to the trace."""
        if rank not in self._ranks_with_output and rank in self._current:
            self._ranks_with_output.add(rank)
            self._put_event("INSTANT", self._current[rank][0], "first line", "line", {})

    def instance_ended(self, rank: int, code: int) -> None:
        """Note that an instance ended."""
        if rank in self._current:
            uuid, _ = self._current.pop(rank)
            self._put_event("END", uuid, "", "", {"code": code})

    def report(
        self, rank: int, folder: str, report_files: Sequence[tuple[str, int]], further_files: int
    ) -> None:
        """Note the folder of an instance's profile.

        report_files: names and bytes. further_files: the number of further files.
        """
        uuid = self._current[rank][0] if rank in self._current else self._latest_track(rank)
        annotations: dict[str, Told] = {"folder": folder, "more": further_files}
        annotations |= {f"file {name}": file_bytes for name, file_bytes in report_files[:LISTED]}
        self._put_event("INSTANT", uuid, "report", "report", annotations)

    def clock_answered(self, host: str, asked_at: int, remote_time: int, heard_at: int) -> None:
        """Note that another host answered with its time (see HostClock)."""
        self._clocks.setdefault(host, HostClock()).answered(asked_at, remote_time, heard_at)

    def records(self, rank: int, pipe_bytes: bytes) -> None:
        """Write the records from an instance's pipe, on this host or another."""
        if rank not in self._current or self.problem:
            return
        if self._packets is None:
            self.open()
        instance_records = self._streams.get(rank)
        if instance_records is None:
            instance_records = self._streams[rank] = InstanceRecords()
        track_uuid, host = self._current[rank]
        host_clock = self._clocks.get(host)
        clock_offset = host_clock.offset if host_clock else 0
        latest_ns = self._now() + (host_clock.error or 0 if host_clock else 0)
        record_pieces = instance_records.feed(pipe_bytes)
        if self._used.get(rank, 0) > self._share:
            self._left_out[rank] = self._left_out.get(rank, 0) + sum(map(len, record_pieces))
            return
        if not record_pieces or self._said is None:
            return
        earliest_ns = self._last.get(track_uuid, 0)
        packet_bytes, self._last[track_uuid], lost_records = self._said.of(
            record_pieces, (track_uuid, rank), (clock_offset, latest_ns), earliest_ns, self._attempt
        )
        if lost_records:
            self._left_out[rank] = self._left_out.get(rank, 0) + lost_records
        self._used[rank] = self._used.get(rank, 0) + len(packet_bytes)
        self._write_bytes(packet_bytes)

    # Tracks

    def _latest_track(self, rank: int) -> int:
        rank_tracks = [uuid for (track_rank, _), uuid in self._tracks.items() if track_rank == rank]
        return rank_tracks[-1] if rank_tracks else LAUNCH

    def _track(self, rank: int, host: str) -> int:
        if host not in self._hosts:
            self._hosts[host] = _FIRST_HOST_TRACK + len(self._hosts)
            self._put_packet("track", self._hosts[host], f"host {host}", 0, self._hosts[host])
        uuid = self._tracks.get((rank, host))
        if uuid is None:
            uuid = self._tracks[rank, host] = _FIRST_INSTANCE_TRACK + len(self._tracks)
            self._put_packet("track", uuid, f"instance {rank}", self._hosts[host], rank)
        return uuid

    # Writing

    def _put_event(
        self,
        event_type: str,
        track_uuid: int,
        event_name: str,
        category: str,
        annotations: Mapping[str, Told],
        event_time: int | None = None,
    ) -> None:
        event_time = max(
            self._now() if event_time is None else event_time, self._last.get(track_uuid, 0)
        )
        if event_type != "INSTANT":
            self._last[track_uuid] = event_time
        self._put_packet(
            "event", event_type, track_uuid, event_name, category, dict(annotations), event_time
        )

    def _put_packet(self, packet_kind: str, *packet_values: Any) -> None:
        if self.problem:
            return
        if self._packets is None:
            self._queue.append((packet_kind, *packet_values))
        elif packet_kind == "track":
            self._write_bytes(self._packets.track(*packet_values))
        else:
            event_type, uuid, name, category, annotations, event_time = packet_values
            fields = self._packets.event(
                getattr(self._packets, event_type), uuid, name, category, annotations
            )
            self._write_bytes(self._packets.packet(fields + self._packets.stamp(event_time)))

    def open(self) -> None:
        """Load the module that writes packets, and write all events so far."""
        if self._packets is not None or self.problem:
            return
        try:
            from podwright.timeline import _packets as packets
            from podwright.timeline._instance_packets import InstancePackets
        except ImportError as error:
            from podwright.ground.pods_extra import install_command

            self.problem = f"{error.name} is not installed; this brings it: {install_command()}"
            return
        self._packets, self._said = packets, InstancePackets(COLLECTIVES)
        self._write_bytes(packets.opening(self._now(), time.time_ns()))
        for uuid, name in (
            (LAUNCH, "launch"),
            (START, "start"),
            (COLLECTIVES, "collectives"),
        ):
            self._write_bytes(packets.track(uuid, name, 0, uuid))
        queued_events, self._queue = self._queue, []
        for kind, *packet_values in queued_events:
            self._put_packet(kind, *packet_values)

    def _write_bytes(self, packet_bytes: bytes) -> None:
        try:
            while packet_bytes:
                packet_bytes = packet_bytes[os.write(self.handle, packet_bytes) :]
        except OSError as error:
            self.problem = error.strerror or str(error)

    def close(self, **annotations: Told) -> None:
        """End the trace of a launch: end all phases, and write how exact the clocks are."""
        if not self.on:
            return
        self.open()
        for host, host_clock in self._clocks.items():
            if host_clock.error is not None:
                self.happened("clock", host=host, offset=host_clock.offset, error=host_clock.error)
        for rank, count in sorted(self._left_out.items()):
            self.happened("left out", rank=rank, records=count)
        self.started()
        for rank in list(self._current):
            track_uuid, _ = self._current.pop(rank)
            self._put_event("END", track_uuid, "", "", {})
        self.end_to(1)
        self.end(None, **annotations)
        os.close(self.handle)


#: For a launch without a trace.
OFF = TraceWriter(-1, 0)
