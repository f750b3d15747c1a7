"""Encodes Perfetto's TrackEvents, by the classes of Perfetto's own package.

A trace is a sequence of packets, so a file that ends in the middle of a packet can be read up to
there. The classes make once what many packets have in common. The time and the flow of each packet
are added in protobuf's encoding. A message's fields may come in any order, and a number may have
more bytes than it needs. So all times have one length, and some hundred of them are encoded
together. A packet takes a fifth of the time that way, and there may be a million packets.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

Told = Mapping[str, str | int | float | bool]
BEGIN = perfetto.TrackEvent.TYPE_SLICE_BEGIN
END = perfetto.TrackEvent.TYPE_SLICE_END
INSTANT = perfetto.TrackEvent.TYPE_INSTANT

NO_ANNOTATIONS: Told = {}
_PACKET_KEY = b"\x0a"  # Trace.packet, length-delimited
TIMESTAMP_KEY = 0x40  # TracePacket.timestamp, a varint
#: Encodes a flow (TrackEvent.flow_ids, fixed64), and the key of the time after it.
FLOW_AND_TIME = struct.Struct("<QB").pack
_SEQUENCE_ID = 1
_BOOTTIME, _REALTIME = 6, 1  # perfetto's builtin clocks
#: Times in packets of which there are many are below this: two years after the start of a host.
LATEST = (1 << 56) - 1
_TIME_BYTES = 8  # bytes of such a time
_TIME_FORMAT = struct.Struct(f"{_TIME_BYTES}s")
_TIMES_AT_ONCE = 512  # such times


def _mask_for_each_time(bit_mask: int) -> int:
    return int.from_bytes(bit_mask.to_bytes(_TIME_BYTES, "little") * _TIMES_AT_ONCE, "little")


#: The steps that divide 56 bits into eight groups of seven: (bits that stay, bits that move up, by
#: how far).
_SPREAD_STEPS = [
    (_mask_for_each_time(0x000000000FFFFFFF), _mask_for_each_time(0x00FFFFFFF0000000), 4),
    (_mask_for_each_time(0x00003FFF00003FFF), _mask_for_each_time(0x0FFFC0000FFFC000), 2),
    (_mask_for_each_time(0x007F007F007F007F), _mask_for_each_time(0x3F803F803F803F80), 1),
]
_CONTINUATION_BITS = b"\x80" * (_TIME_BYTES - 1) + b"\0"


def varint(number: int) -> bytes:
    """Encode a number as a varint of protobuf."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(0x80 | number & 0x7F)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def stamp(nanoseconds: int) -> bytes:
    """Encode the timestamp of a packet. nanoseconds: not below 0."""
    return bytes((TIMESTAMP_KEY,)) + varint(nanoseconds)


def times(nanosecond_times: Sequence[int]) -> list[bytes]:
    """Encode times from 0 to LATEST as varints of equal length.

    Many are encoded at once: together they form one long number, on which each step works.
    """
    encoded_times: list[bytes] = []
    for chunk_start in range(0, len(nanosecond_times), _TIMES_AT_ONCE):
        time_chunk = nanosecond_times[chunk_start : chunk_start + _TIMES_AT_ONCE]
        chunk_length = len(time_chunk)
        long_number = int.from_bytes(struct.pack(f"<{chunk_length}Q", *time_chunk), "little")
        for kept_mask, moved_mask, bits in _SPREAD_STEPS:
            long_number = long_number & kept_mask | (long_number & moved_mask) << bits
        long_number |= int.from_bytes(_CONTINUATION_BITS * chunk_length, "little")
        encoded_times += [
            encoded_time
            for (encoded_time,) in _TIME_FORMAT.iter_unpack(
                long_number.to_bytes(_TIME_BYTES * chunk_length, "little")
            )
        ]
    return encoded_times


def before_time(fields: bytes) -> bytes:
    """Return a packet up to its time."""
    return _PACKET_KEY + varint(len(fields) + 1 + _TIME_BYTES) + fields + bytes((TIMESTAMP_KEY,))


def before_flow(fields: bytes) -> bytes:
    """Return a packet with a flow, up to FLOW_AND_TIME."""
    return _PACKET_KEY + varint(len(fields) + 8 + 1 + _TIME_BYTES) + fields


def packet(fields: bytes) -> bytes:
    """Return a packet of a trace, with these serialized fields."""
    length = len(fields)
    return _PACKET_KEY + (bytes((length,)) if length < 0x80 else varint(length)) + fields


def opening(boottime_ns: int, realtime_ns: int) -> bytes:
    """Return the first packet, which relates the clock of all others to the time of day, in
    nanoseconds.
    """
    first_packet = perfetto.TracePacket(trusted_packet_sequence_id=_SEQUENCE_ID)
    for clock_id, clock_time in ((_BOOTTIME, boottime_ns), (_REALTIME, realtime_ns)):
        first_packet.clock_snapshot.clocks.add(clock_id=clock_id, timestamp=clock_time)
    return packet(first_packet.SerializeToString())


def track(track_uuid: int, track_name: str, parent_uuid: int = 0, sibling_rank: int = 0) -> bytes:
    """Return the packet of a track. parent_uuid: the track above it. sibling_rank: its position
    below the parent.
    """
    track_packet = perfetto.TracePacket(trusted_packet_sequence_id=_SEQUENCE_ID)
    descriptor = track_packet.track_descriptor
    descriptor.uuid, descriptor.name = track_uuid, track_name
    descriptor.child_ordering = perfetto.TrackDescriptor.EXPLICIT
    descriptor.sibling_order_rank = sibling_rank
    if parent_uuid:
        descriptor.parent_uuid = parent_uuid
    return packet(track_packet.SerializeToString())


def event(
    event_type: Any,
    track_uuid: int,
    event_name: str = "",
    category: str = "",
    annotations: Told = NO_ANNOTATIONS,
) -> bytes:
    """Return the fields of an event, without its time. event_type: BEGIN, END or INSTANT."""
    fields: bytes = _event_packet(
        event_type, track_uuid, event_name, category, annotations
    ).SerializeToString()
    return fields


def flow_event(
    event_type: Any, track_uuid: int, event_name: str, category: str, annotations: Told
) -> bytes:
    """Return the fields of an event with a flow, up to the flow's id, which comes last."""
    event_packet = _event_packet(event_type, track_uuid, event_name, category, annotations)
    event_packet.track_event.flow_ids.append(0)
    fields: bytes = event_packet.SerializeToString()
    assert fields.endswith(bytes(8))
    return fields[:-8]


def _event_packet(
    event_type: Any, track_uuid: int, event_name: str, category: str, annotations: Told
) -> Any:
    event_packet = perfetto.TracePacket(trusted_packet_sequence_id=_SEQUENCE_ID)
    track_event = event_packet.track_event
    track_event.type, track_event.track_uuid = event_type, track_uuid
    if event_name:
        track_event.name = event_name
    if category:
        track_event.categories.append(category)
    for annotation_name, annotation_value in annotations.items():
        annotation = track_event.debug_annotations.add(name=annotation_name)
        if isinstance(annotation_value, bool):
            annotation.bool_value = annotation_value
        elif isinstance(annotation_value, int):
            annotation.int_value = annotation_value
        elif isinstance(annotation_value, float):
            annotation.double_value = annotation_value
        else:
            annotation.string_value = annotation_value
    return event_packet
