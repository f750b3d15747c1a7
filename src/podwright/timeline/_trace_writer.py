"""A launch as a timeline, written while it goes on: `poprun --trace FILE`.

Each thing that happens is a packet at the end of the file, which so can be read at any time, and
after any end, up to the last whole one. What instances say is bounded: a share of LIMIT bytes for
each, and what is more is left out and counted. The library of the form is loaded by `open`, once
everything that a launch forks is forked; what happens before waits for it.

Tracks: the launch; the start of its instances; collectives, which show for whom all waited; and one
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

#: Bytes of the file that records of instances may take, all together.
LIMIT = 128 << 20
#: Files that are named of a report's folder.
LISTED = 50
LAUNCH, START, COLLECTIVES = 1, 2, 3
_HOSTS, _INSTANCES = 1000, 1_000_000

Told = str | int | float | bool


def clock() -> int:
    """Nanoseconds since this host started."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def open_file(path: str) -> int:
    """A file for a trace, private and empty. Raises InvalidRequest where there cannot be one.

    What is no trace is not written over: `--trace train.py` is a slip.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        handle = os.open(path, flags, 0o600)
    except OSError as error:
        raise InvalidRequest(f"--trace: {path}: {error.strerror}") from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidRequest(f"--trace: {path} is no file", would_work="Name a file")
        if found.st_size and not _is_trace(os.pread(handle, 64, 0)):
            raise InvalidRequest(
                f"--trace: {path} is there, and is no trace",
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
    """Whether a file begins as ours do: with a packet that has a sequence and a clock snapshot."""
    return begin[:1] == b"\x0a" and begin[2:3] == b"\x32" and begin[4:5] == b"\x0a"


class TraceWriter:
    """Writes the timeline of one launch. handle: the file; below 0: nothing is written.

    All methods may be called at any time, and none raises: problem says what went wrong, if
    anything did; nothing is written from then on.
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

    # The launch

    def begin(self, name: str, **told: Told) -> None:
        """A phase begins, within those that have begun and not ended."""
        self._open.append(name)
        self._event("BEGIN", LAUNCH, name, "launch", told)

    def end(self, at: int | None = None, **told: Told) -> None:
        """The phase that began last ends; at: when it did, if that was before."""
        if self._open:
            self._open.pop()
            self._event("END", LAUNCH, "", "", told, at)

    def end_to(self, depth: int) -> None:
        """All phases end but the first `depth`."""
        while len(self._open) > depth:
            self.end()

    def past(self, name: str, begin: int, end: int, **told: Told) -> None:
        """A phase that is known only now: from one time to another, in nanoseconds."""
        self._event("BEGIN", LAUNCH, name, "launch", told, begin)
        self._event("END", LAUNCH, "", "", {}, max(begin, end))

    def happened(self, name: str, at: int | None = None, **told: Told) -> None:
        """Something happened to the launch; at: when, if that was before.

        Whatever is done to a running launch is told so: a restart, a move to other devices.
        """
        self._event("INSTANT", LAUNCH, name, "launch", told, at)

    def attempt(self, number: int) -> None:
        """All instances are started, for the how manieth time, from 1."""
        self._attempt = number
        self._current.clear()
        self._spoken.clear()
        self._streams.clear()
        if self._said:
            self._said.forget()
        self.begin(f"start {number}" if number > 1 else "run", attempt=number)

    def starting(self, how: str) -> None:
        """What starts the instances begins."""
        self.started()
        self._start_open = True
        self._event("BEGIN", START, how, "start", {"attempt": self._attempt})

    def started(self) -> None:
        """All instances have begun, or never will."""
        if self._start_open:
            self._start_open = False
            self._event("END", START, "", "", {})

    # Instances

    def instance_began(self, rank: int, host: str) -> None:
        """The script in front of an instance began."""
        self._current[rank] = (self._track(rank, host), host)
        told: dict[str, Told] = {"rank": rank, "host": host, "attempt": self._attempt}
        self._event("BEGIN", self._current[rank][0], f"instance {rank}", "instance", told)

    def instance_wrote(self, rank: int) -> None:
        """An instance wrote something: the first line is told."""
        if rank not in self._spoken and rank in self._current:
            self._spoken.add(rank)
            self._event("INSTANT", self._current[rank][0], "first line", "line", {})

    def instance_ended(self, rank: int, code: int) -> None:
        """An instance ended."""
        if rank in self._current:
            uuid, _ = self._current.pop(rank)
            self._event("END", uuid, "", "", {"code": code})

    def report(self, rank: int, folder: str, files: Sequence[tuple[str, int]], more: int) -> None:
        """The folder of an instance's profile. files: names and bytes; more: how many besides."""
        uuid = self._current[rank][0] if rank in self._current else self._latest(rank)
        told: dict[str, Told] = {"folder": folder, "more": more}
        told |= {f"file {name}": size for name, size in files[:LISTED]}
        self._event("INSTANT", uuid, "report", "report", told)

    def clock_answered(self, host: str, asked: int, there: int, heard: int) -> None:
        """Another host said the time there (HostClock)."""
        self._clocks.setdefault(host, HostClock()).answered(asked, there, heard)

    def records(self, rank: int, data: bytes) -> None:
        """What an instance wrote into its pipe, here or on another host."""
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
        found = stream.feed(data)
        if self._used.get(rank, 0) > self._share:
            self._left_out[rank] = self._left_out.get(rank, 0) + sum(map(len, found))
            return
        if not found or self._said is None:
            return
        since = self._last.get(uuid, 0)
        out, self._last[uuid], lost = self._said.of(
            found, (uuid, rank), (offset, latest), since, self._attempt
        )
        if lost:
            self._left_out[rank] = self._left_out.get(rank, 0) + lost
        self._used[rank] = self._used.get(rank, 0) + len(out)
        self._write(out)

    # Tracks

    def _latest(self, rank: int) -> int:
        found = [uuid for (of, _), uuid in self._tracks.items() if of == rank]
        return found[-1] if found else LAUNCH

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
        told: Mapping[str, Told],
        at: int | None = None,
    ) -> None:
        at = max(self._now() if at is None else at, self._last.get(uuid, 0))
        if kind != "INSTANT":
            self._last[uuid] = at
        self._put("event", kind, uuid, name, category, dict(told), at)

    def _put(self, what: str, *values: Any) -> None:
        if self.problem:
            return
        if self._packets is None:
            self._queue.append((what, *values))
        elif what == "track":
            self._write(self._packets.track(*values))
        else:
            kind, uuid, name, category, told, at = values
            fields = self._packets.event(getattr(self._packets, kind), uuid, name, category, told)
            self._write(self._packets.packet(fields + self._packets.stamp(at)))

    def open(self) -> None:
        """Load what writes packets, and write what has happened so far."""
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
        for what, *values in queue:
            self._put(what, *values)

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self.handle, data) :]
        except OSError as error:
            self.problem = error.strerror or str(error)

    def close(self, **told: Told) -> None:
        """The launch is over: end what has not ended, and say how sure the clocks are."""
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
        self.end(None, **told)
        os.close(self.handle)


#: Where nothing is traced.
OFF = TraceWriter(-1, 0)
