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
LARGEST_TRACE_BYTES = 1 << 30


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
        return [track_slice for track_slice in self.slices if track_slice.category == category]


def read_timeline(path: str) -> Timeline:
    """Read a file of `poprun --trace`. Raises NotFound, and InvalidRequest for any other file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise NotFound(f"{path}: {error.strerror}") from None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_TRACE_BYTES:
            raise _not_a_trace_error(path)
        trace_bytes = file.read()
    try:
        return parse_timeline(trace_bytes)
    except ValueError:
        raise _not_a_trace_error(path) from None


def _not_a_trace_error(path: str) -> InvalidRequest:
    return InvalidRequest(
        f"{path} is not a trace of a launch", would_work="poprun --trace FILE … writes one"
    )


def parse_timeline(trace_bytes: bytes) -> Timeline:
    """Return the timeline in a file's bytes. Raises ValueError for anything else."""
    from google.protobuf.message import DecodeError
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

    slice_begin, slice_end = (
        perfetto.TrackEvent.TYPE_SLICE_BEGIN,
        perfetto.TrackEvent.TYPE_SLICE_END,
    )

    tracks: dict[int, tuple[str, int]] = {}
    open_slices: dict[int, list[TrackSlice]] = {}
    slices: list[TrackSlice] = []
    instants: list[Instant] = []
    realtime_offset = last_time = used_bytes = 0
    for packet_bytes, used_bytes in _frames(trace_bytes):  # noqa: B007
        try:
            trace_packet = perfetto.TracePacket.FromString(packet_bytes)
        except DecodeError as error:
            raise ValueError(str(error)) from None
        if trace_packet.HasField("track_descriptor"):
            track_descriptor = trace_packet.track_descriptor
            tracks[track_descriptor.uuid] = track_descriptor.name, track_descriptor.parent_uuid
        elif trace_packet.HasField("clock_snapshot"):
            times_by_clock = {
                reading.clock_id: reading.timestamp
                for reading in trace_packet.clock_snapshot.clocks
            }
            realtime_offset = times_by_clock.get(1, 0) - times_by_clock.get(6, 0)
        elif trace_packet.HasField("track_event"):
            track_event, timestamp_ns = trace_packet.track_event, trace_packet.timestamp
            last_time = max(last_time, timestamp_ns)
            open_stack = open_slices.setdefault(track_event.track_uuid, [])
            annotations = {
                annotation.name: _annotation_value(annotation)
                for annotation in track_event.debug_annotations
            }
            category = track_event.categories[0] if track_event.categories else ""
            if track_event.type == slice_begin:
                flow_ids = tuple(track_event.flow_ids)
                depth = len(open_stack)
                open_stack.append(
                    TrackSlice(
                        track_event.track_uuid,
                        track_event.name,
                        category,
                        timestamp_ns,
                        timestamp_ns,
                        depth,
                        annotations,
                        flow_ids,
                    )
                )
            elif track_event.type == slice_end:
                if open_stack:
                    opened_slice = open_stack.pop()
                    annotations = {**opened_slice.annotations, **annotations}
                    slices.append(opened_slice._replace(end=timestamp_ns, annotations=annotations))
            else:
                instants.append(
                    Instant(
                        track_event.track_uuid,
                        track_event.name,
                        category,
                        timestamp_ns,
                        annotations,
                    )
                )
    if not tracks and trace_bytes:
        raise ValueError("there is no track")
    for open_stack in open_slices.values():
        slices += [opened_slice._replace(end=last_time, done=False) for opened_slice in open_stack]
    slices.sort(key=lambda track_slice: (track_slice.begin, track_slice.depth))
    instants.sort(key=lambda instant: instant.at)
    return Timeline(tracks, slices, instants, realtime_offset, used_bytes == len(trace_bytes))


def _frames(trace_bytes: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield each complete packet, and where it ends. Raises ValueError for anything else."""
    byte_position, total_bytes = 0, len(trace_bytes)
    while byte_position < total_bytes:
        if trace_bytes[byte_position] != 0x0A:
            raise ValueError("this is not a packet")
        packet_length, varint_shift, body_start = 0, 0, byte_position + 1
        while body_start < total_bytes:
            byte_value = trace_bytes[body_start]
            body_start += 1
            packet_length |= (byte_value & 0x7F) << varint_shift
            varint_shift += 7
            if byte_value < 0x80:
                break
            if varint_shift > 35:
                raise ValueError("this is not a packet")
        else:
            return
        if body_start + packet_length > total_bytes:
            return
        byte_position = body_start + packet_length
        yield trace_bytes[body_start:byte_position], byte_position


def _annotation_value(annotation: Any) -> Any:
    field = annotation.WhichOneof("value")
    return getattr(annotation, field) if field else None
