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
from podwright.timeline._clocks import HostClock
from podwright.timeline._instance_records import InstanceRecords

if TYPE_CHECKING:
    from types import ModuleType

    from podwright.timeline._instance_packets import InstancePackets

#: The limit in bytes of all instances' records in the file.
LIMIT = 128 << 20
#: The limit of files that are named for a report's folder.
LISTED = 50
LAUNCH, START, COLLECTIVES = 1, 2, 3
_HOSTS, _INSTANCES = 1000, 1_000_000

Told = str | int | float | bool


def clock() -> int:
    """Return the nanoseconds since this host started."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def open_file(path: str) -> int:
    """Open a file for a trace, private and empty. Raises InvalidRequest when that is impossible.

    A file that is not a trace is not overwritten, since `--trace train.py` is a slip.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        handle = os.open(path, flags, 0o600)
    except OSError as error:
        raise InvalidRequest(f"--trace: {path}: {error.strerror}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidRequest(f"--trace: {path} is not a file", would_work="Name a file")
        if status.st_size and not _is_trace(os.pread(handle, 64, 0)):
            raise InvalidRequest(
                f"--trace: {path} is there, and is not a trace",
                would_work="Name another file, or remove this one",
            )
        os.fchmod(handle, 0o600)
        os.ftruncate(handle, 0)
    except OSError as error:
        os.close(handle)
        raise InvalidRequest(f"--trace: {path}: {error.strerror}") from None
    except InvalidRequest:
        os.close(handle)
        raise
    return handle


def _is_trace(begin: bytes) -> bool:
    """Return whether a file begins like a trace: with a packet of a sequence and a clock
    snapshot.
    """
    return begin[:1] == b"\x0a" and begin[2:3] == b"\x32" and begin[4:5] == b"\x0a"


class TraceWriter:
    """Writes the timeline of one launch. handle: the file's descriptor; below 0: nothing is
    written.

    All methods may be called at any time, and none raises. `problem` has the first error; nothing
    is written after it.
    """

    def __init__(
        self,
        handle: int,
        instances: int,
        now: Callable[[], int] = clock,
        limit: int = LIMIT,
    ) -> None:
        self.handle, self.on = handle, handle >= 0
        self.problem = "" if self.on else "off"
        self._now = now
        self._share = limit // max(instances, 1)
        self._queue: list[tuple[Any, ...]] = []
        self._packets: ModuleType | None = None
        self._open: list[str] = []
        self._start_open = False
        self._attempt = 0
        self._hosts: dict[str, int] = {}
        self._clocks: dict[str, HostClock] = {}
        self._tracks: dict[tuple[int, str], int] = {}
        self._current: dict[int, tuple[int, str]] = {}
        self._spoken: set[int] = set()
        self._streams: dict[int, InstanceRecords] = {}
        self._used: dict[int, int] = {}
        self._left_out: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._said: InstancePackets | None = None

    # Events of the launch

    def begin(self, name: str, **annotations: Told) -> None:
        """Begin a phase, within the phases that have not ended."""
        self._open.append(name)
        self._event("BEGIN", LAUNCH, name, "launch", annotations)

    def end(self, at: int | None = None, **annotations: Told) -> None:
        """End the phase that began last. at: its end, if that was earlier."""
        if self._open:
            self._open.pop()
            self._event("END", LAUNCH, "", "", annotations, at)

    def end_to(self, depth: int) -> None:
        """End all phases but the first `depth`."""
        while len(self._open) > depth:
            self.end()

    def past(self, name: str, begin: int, end: int, **annotations: Told) -> None:
        """Write a phase that is known only afterwards. begin, end: nanoseconds."""
        self._event("BEGIN", LAUNCH, name, "launch", annotations, begin)
        self._event("END", LAUNCH, "", "", {}, max(begin, end))

    def happened(self, name: str, at: int | None = None, **annotations: Told) -> None:
        """Write an event of the launch. at: its time, if that was earlier.

        Everything that is done to a running launch is such an event: a restart, a move to other
        devices.
        """
        self._event("INSTANT", LAUNCH, name, "launch", annotations, at)

    def attempt(self, number: int) -> None:
        """Begin a start of all instances. number: which start this is, from 1."""
        self._attempt = number
        self._current.clear()
        self._spoken.clear()
        self._streams.clear()
        if self._said:
            self._said.forget()
        self.begin(f"start {number}" if number > 1 else "run", attempt=number)

    def starting(self, how: str) -> None:
        """Begin the start of the instances. how: what starts them."""
        self.started()
        self._start_open = True
        self._event("BEGIN", START, how, "start", {"attempt": self._attempt})

    def started(self) -> None:
        """End the start: all instances have begun, or never will."""
        if self._start_open:
            self._start_open = False
            self._event("END", START, "", "", {})

    # Events of instances

    def instance_began(self, rank: int, host: str) -> None:
        """Note that the script in front of an instance began."""
        self._current[rank] = (self._track(rank, host), host)
        annotations: dict[str, Told] = {"rank": rank, "host": host, "attempt": self._attempt}
        self._event("BEGIN", self._current[rank][0], f"instance {rank}", "instance", annotations)

    def instance_wrote(self, rank: int) -> None:
        """Note that an instance wrote something; only its first line is written to the trace."""
        if rank not in self._spoken and rank in self._current:
            self._spoken.add(rank)
            self._event("INSTANT", self._current[rank][0], "first line", "line", {})

    def instance_ended(self, rank: int, code: int) -> None:
        """Note that an instance ended."""
        if rank in self._current:
            uuid, _ = self._current.pop(rank)
            self._event("END", uuid, "", "", {"code": code})

    def report(self, rank: int, folder: str, files: Sequence[tuple[str, int]], more: int) -> None:
        """Note the folder of an instance's profile.

        files: names and bytes. more: the number of further files.
        """
        uuid = self._current[rank][0] if rank in self._current else self._latest(rank)
        annotations: dict[str, Told] = {"folder": folder, "more": more}
        annotations |= {f"file {name}": size for name, size in files[:LISTED]}
        self._event("INSTANT", uuid, "report", "report", annotations)

    def clock_answered(self, host: str, asked_at: int, remote_time: int, heard: int) -> None:
        """Note that another host answered with its time (see HostClock)."""
        self._clocks.setdefault(host, HostClock()).answered(asked_at, remote_time, heard)

    def records(self, rank: int, data: bytes) -> None:
        """Write the records from an instance's pipe, on this host or another."""
        if rank not in self._current or self.problem:
            return
        if self._packets is None:
            self.open()
        stream = self._streams.get(rank)
        if stream is None:
            stream = self._streams[rank] = InstanceRecords()
        uuid, host = self._current[rank]
        known = self._clocks.get(host)
        offset = known.offset if known else 0
        latest = self._now() + (known.error or 0 if known else 0)
        pieces = stream.feed(data)
        if self._used.get(rank, 0) > self._share:
            self._left_out[rank] = self._left_out.get(rank, 0) + sum(map(len, pieces))
            return
        if not pieces or self._said is None:
            return
        since = self._last.get(uuid, 0)
        out, self._last[uuid], lost = self._said.of(
            pieces, (uuid, rank), (offset, latest), since, self._attempt
        )
        if lost:
            self._left_out[rank] = self._left_out.get(rank, 0) + lost
        self._used[rank] = self._used.get(rank, 0) + len(out)
        self._write(out)

    # Tracks

    def _latest(self, rank: int) -> int:
        tracks = [uuid for (track_rank, _), uuid in self._tracks.items() if track_rank == rank]
        return tracks[-1] if tracks else LAUNCH

    def _track(self, rank: int, host: str) -> int:
        if host not in self._hosts:
            self._hosts[host] = _HOSTS + len(self._hosts)
            self._put("track", self._hosts[host], f"host {host}", 0, self._hosts[host])
        uuid = self._tracks.get((rank, host))
        if uuid is None:
            uuid = self._tracks[rank, host] = _INSTANCES + len(self._tracks)
            self._put("track", uuid, f"instance {rank}", self._hosts[host], rank)
        return uuid

    # Writing

    def _event(
        self,
        kind: str,
        uuid: int,
        name: str,
        category: str,
        annotations: Mapping[str, Told],
        time: int | None = None,
    ) -> None:
        time = max(self._now() if time is None else time, self._last.get(uuid, 0))
        if kind != "INSTANT":
            self._last[uuid] = time
        self._put("event", kind, uuid, name, category, dict(annotations), time)

    def _put(self, phase: str, *values: Any) -> None:
        if self.problem:
            return
        if self._packets is None:
            self._queue.append((phase, *values))
        elif phase == "track":
            self._write(self._packets.track(*values))
        else:
            kind, uuid, name, category, annotations, time = values
            fields = self._packets.event(
                getattr(self._packets, kind), uuid, name, category, annotations
            )
            self._write(self._packets.packet(fields + self._packets.stamp(time)))

    def open(self) -> None:
        """Load the module that writes packets, and write all events so far."""
        if self._packets is not None or self.problem:
            return
        try:
            from podwright.timeline import _packets as packets
            from podwright.timeline._instance_packets import InstancePackets
        except ImportError as error:
            self.problem = f"{error.name} is not installed; pip install 'podwright[pods]'"
            return
        self._packets, self._said = packets, InstancePackets(COLLECTIVES)
        self._write(packets.opening(self._now(), time.time_ns()))
        for uuid, name in ((LAUNCH, "launch"), (START, "start"), (COLLECTIVES, "collectives")):
            self._write(packets.track(uuid, name, 0, uuid))
        queue, self._queue = self._queue, []
        for kind, *values in queue:
            self._put(kind, *values)

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self.handle, data) :]
        except OSError as error:
            self.problem = error.strerror or str(error)

    def close(self, **annotations: Told) -> None:
        """End the trace of a launch: end all phases, and write how exact the clocks are."""
        if not self.on:
            return
        self.open()
        for host, known in self._clocks.items():
            if known.error is not None:
                self.happened("clock", host=host, offset=known.offset, error=known.error)
        for rank, count in sorted(self._left_out.items()):
            self.happened("left out", rank=rank, records=count)
        self.started()
        for rank in list(self._current):
            uuid, _ = self._current.pop(rank)
            self._event("END", uuid, "", "", {})
        self.end_to(1)
        self.end(None, **annotations)
        os.close(self.handle)


#: For a launch without a trace.
OFF = TraceWriter(-1, 0)
