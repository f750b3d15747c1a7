"""Reads a timeline back from its file, by Perfetto's own classes, up to the last complete
packet.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple

from podwright.errors import InvalidRequest, NotFound

#: The size in bytes beyond which a file is not one of ours.
LARGEST = 1 << 30


class TrackSlice(NamedTuple):
    """An interval, from begin to end, in nanoseconds. depth: the number of slices around it.

    flows: the ids that it shares with slices of other tracks. done: whether its end was recorded;
    if not, it lasts as long as the timeline.
    """

    track: int
    name: str
    category: str
    begin: int
    end: int
    depth: int = 0
    annotations: dict[str, Any] = {}
    flows: tuple[int, ...] = ()
    done: bool = True


class Instant(NamedTuple):
    """An event at one time, in nanoseconds."""

    track: int
    name: str
    category: str
    at: int
    annotations: dict[str, Any] = {}


class Timeline(NamedTuple):
    """One launch. slices: in the order of their beginnings. tracks: name and parent of each.

    realtime: nanoseconds to add to a time for the time of day. whole: whether nothing is cut off.
    """

    tracks: dict[int, tuple[str, int]]
    slices: list[TrackSlice]
    instants: list[Instant]
    realtime: int
    whole: bool

    def of(self, category: str) -> list[TrackSlice]:
        """Return the slices of one kind."""
        return [s for s in self.slices if s.category == category]


def read_timeline(path: str) -> Timeline:
    """Read a file of `poprun --trace`. Raises NotFound, and InvalidRequest for any other file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise NotFound(f"{path}: {error.strerror}") from None
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            raise _strange(path)
        data = file.read()
    try:
        return parse_timeline(data)
    except ValueError:
        raise _strange(path) from None


def _strange(path: str) -> InvalidRequest:
    return InvalidRequest(
        f"{path} is not a trace of a launch", would_work="poprun --trace FILE … writes one"
    )


def parse_timeline(data: bytes) -> Timeline:
    """Return the timeline in a file's bytes. Raises ValueError for anything else."""
    from google.protobuf.message import DecodeError
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

    BEGIN, END = perfetto.TrackEvent.TYPE_SLICE_BEGIN, perfetto.TrackEvent.TYPE_SLICE_END

    tracks: dict[int, tuple[str, int]] = {}
    open_slices: dict[int, list[TrackSlice]] = {}
    slices: list[TrackSlice] = []
    instants: list[Instant] = []
    realtime = last = used = 0
    for body, used in _frames(data):  # noqa: B007
        try:
            packet = perfetto.TracePacket.FromString(body)
        except DecodeError as error:
            raise ValueError(str(error)) from None
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            tracks[track.uuid] = track.name, track.parent_uuid
        elif packet.HasField("clock_snapshot"):
            clocks = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
            realtime = clocks.get(1, 0) - clocks.get(6, 0)
        elif packet.HasField("track_event"):
            event, timestamp = packet.track_event, packet.timestamp
            last = max(last, timestamp)
            stack = open_slices.setdefault(event.track_uuid, [])
            annotations = {note.name: _value(note) for note in event.debug_annotations}
            category = event.categories[0] if event.categories else ""
            if event.type == BEGIN:
                flows = tuple(event.flow_ids)
                depth = len(stack)
                stack.append(
                    TrackSlice(
                        event.track_uuid,
                        event.name,
                        category,
                        timestamp,
                        timestamp,
                        depth,
                        annotations,
                        flows,
                    )
                )
            elif event.type == END:
                if stack:
                    opened = stack.pop()
                    annotations = {**opened.annotations, **annotations}
                    slices.append(opened._replace(end=timestamp, annotations=annotations))
            else:
                instants.append(
                    Instant(event.track_uuid, event.name, category, timestamp, annotations)
                )
    if not tracks and data:
        raise ValueError("there is no track")
    for stack in open_slices.values():
        slices += [opened._replace(end=last, done=False) for opened in stack]
    slices.sort(key=lambda s: (s.begin, s.depth))
    instants.sort(key=lambda i: i.at)
    return Timeline(tracks, slices, instants, realtime, used == len(data))


def _frames(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield each complete packet, and where it ends. Raises ValueError for anything else."""
    position, size = 0, len(data)
    while position < size:
        if data[position] != 0x0A:
            raise ValueError("this is not a packet")
        length, shift, begin = 0, 0, position + 1
        while begin < size:
            byte = data[begin]
            begin += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 35:
                raise ValueError("this is not a packet")
        else:
            return
        if begin + length > size:
            return
        position = begin + length
        yield data[begin:position], position


def _value(note: Any) -> Any:
    kind = note.WhichOneof("value")
    return getattr(note, kind) if kind else None
