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

NONE: Told = {}
_PACKET = b"\x0a"  # Trace.packet, length-delimited
TIMESTAMP = 0x40  # TracePacket.timestamp, a varint
#: Encodes a flow (TrackEvent.flow_ids, fixed64), and the key of the time after it.
FLOW_AND_TIME = struct.Struct("<QB").pack
_SEQUENCE = 1
_BOOTTIME, _REALTIME = 6, 1  # perfetto's builtin clocks
#: Times in packets of which there are many are below this: two years after the start of a host.
LATEST = (1 << 56) - 1
_TIME = 8  # bytes of such a time
_ONE = struct.Struct(f"{_TIME}s")
_AT_ONCE = 512  # such times


def _each(bits: int) -> int:
    return int.from_bytes(bits.to_bytes(_TIME, "little") * _AT_ONCE, "little")


#: The steps that divide 56 bits into eight groups of seven: (bits that stay, bits that move up, by
#: how far).
_SPREAD = [
    (_each(0x000000000FFFFFFF), _each(0x00FFFFFFF0000000), 4),
    (_each(0x00003FFF00003FFF), _each(0x0FFFC0000FFFC000), 2),
    (_each(0x007F007F007F007F), _each(0x3F803F803F803F80), 1),
]
_MORE_FOLLOW = b"\x80" * (_TIME - 1) + b"\0"


def varint(number: int) -> bytes:
    """Encode a number as a varint of protobuf."""
    out = bytearray()
    while number > 0x7F:
        out.append(0x80 | number & 0x7F)
        number >>= 7
    out.append(number)
    return bytes(out)


def stamp(nanoseconds: int) -> bytes:
    """Encode the timestamp of a packet. nanoseconds: not below 0."""
    return bytes((TIMESTAMP,)) + varint(nanoseconds)


def times(numbers: Sequence[int]) -> list[bytes]:
    """Encode times from 0 to LATEST as varints of equal length.

    Many are encoded at once: together they form one long number, on which each step works.
    """
    out: list[bytes] = []
    for start in range(0, len(numbers), _AT_ONCE):
        chunk = numbers[start : start + _AT_ONCE]
        size = len(chunk)
        long = int.from_bytes(struct.pack(f"<{size}Q", *chunk), "little")
        for low, high, shift in _SPREAD:
            long = long & low | (long & high) << shift
        long |= int.from_bytes(_MORE_FOLLOW * size, "little")
        out += [time for (time,) in _ONE.iter_unpack(long.to_bytes(_TIME * size, "little"))]
    return out


def before_time(fields: bytes) -> bytes:
    """Return a packet up to its time."""
    return _PACKET + varint(len(fields) + 1 + _TIME) + fields + bytes((TIMESTAMP,))


def before_flow(fields: bytes) -> bytes:
    """Return a packet with a flow, up to FLOW_AND_TIME."""
    return _PACKET + varint(len(fields) + 8 + 1 + _TIME) + fields


def packet(fields: bytes) -> bytes:
    """Return a packet of a trace, with these serialized fields."""
    size = len(fields)
    return _PACKET + (bytes((size,)) if size < 0x80 else varint(size)) + fields


def opening(boottime: int, realtime: int) -> bytes:
    """Return the first packet, which relates the clock of all others to the time of day, in
    nanoseconds.
    """
    first_packet = perfetto.TracePacket(trusted_packet_sequence_id=_SEQUENCE)
    for clock, time in ((_BOOTTIME, boottime), (_REALTIME, realtime)):
        first_packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=time)
    return packet(first_packet.SerializeToString())


def track(uuid: int, name: str, parent: int = 0, rank: int = 0) -> bytes:
    """Return the packet of a track. parent: the track above it. rank: its position below the
    parent.
    """
    track_packet = perfetto.TracePacket(trusted_packet_sequence_id=_SEQUENCE)
    descriptor = track_packet.track_descriptor
    descriptor.uuid, descriptor.name = uuid, name
    descriptor.child_ordering = perfetto.TrackDescriptor.EXPLICIT
    descriptor.sibling_order_rank = rank
    if parent:
        descriptor.parent_uuid = parent
    return packet(track_packet.SerializeToString())


def event(
    kind: Any, track: int, name: str = "", category: str = "", annotations: Told = NONE
) -> bytes:
    """Return the fields of an event, without its time. kind: BEGIN, END or INSTANT."""
    fields: bytes = _event(kind, track, name, category, annotations).SerializeToString()
    return fields


def flowing(kind: Any, track: int, name: str, category: str, annotations: Told) -> bytes:
    """Return the fields of an event with a flow, up to the flow's id, which comes last."""
    packet = _event(kind, track, name, category, annotations)
    packet.track_event.flow_ids.append(0)
    fields: bytes = packet.SerializeToString()
    assert fields.endswith(bytes(8))
    return fields[:-8]


def _event(kind: Any, track: int, name: str, category: str, annotations: Told) -> Any:
    packet = perfetto.TracePacket(trusted_packet_sequence_id=_SEQUENCE)
    event = packet.track_event
    event.type, event.track_uuid = kind, track
    if name:
        event.name = name
    if category:
        event.categories.append(category)
    for key, value in annotations.items():
        note = event.debug_annotations.add(name=key)
        if isinstance(value, bool):
            note.bool_value = value
        elif isinstance(value, int):
            note.int_value = value
        elif isinstance(value, float):
            note.double_value = value
        else:
            note.string_value = value
    return packet
