"""Perfetto's TrackEvents as bytes, by the classes of its own package.

A trace is packets one after another, so a file that ends in the middle of one can be read up to
there. What is alike in many packets is made once, by the classes; what differs in each, its time
and the flow that it belongs to, is put beside it as protobuf has it: a message's fields may come in
any order, and a number may have more bytes than it needs. So times are all of one length, and some
hundred of them are made at once. That makes a packet in a fifth of the time, and there may be a
million.
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
#: A flow (TrackEvent.flow_ids, fixed64), and the key of the time after it.
FLOW_AND_TIME = struct.Struct("<QB").pack
_SEQUENCE = 1
_BOOTTIME, _REALTIME = 6, 1  # perfetto's builtin clocks
#: A time in a packet that is one of many is below this: two years after the start of a host.
LATEST = (1 << 56) - 1
_TIME = 8  # bytes of such a time
_ONE = struct.Struct(f"{_TIME}s")
_AT_ONCE = 512  # such times


def _each(bits: int) -> int:
    return int.from_bytes(bits.to_bytes(_TIME, "little") * _AT_ONCE, "little")


#: Groups of bits, of which the upper half goes up by some: 56 bits become eight times seven.
_SPREAD = [
    (_each(0x000000000FFFFFFF), _each(0x00FFFFFFF0000000), 4),
    (_each(0x00003FFF00003FFF), _each(0x0FFFC0000FFFC000), 2),
    (_each(0x007F007F007F007F), _each(0x3F803F803F803F80), 1),
]
_MORE_FOLLOW = b"\x80" * (_TIME - 1) + b"\0"


def varint(number: int) -> bytes:
    """A number as protobuf has it."""
    out = bytearray()
    while number > 0x7F:
        out.append(0x80 | number & 0x7F)
        number >>= 7
    out.append(number)
    return bytes(out)


def stamp(at: int) -> bytes:
    """The field of a packet that says when: nanoseconds, not below 0."""
    return bytes((TIMESTAMP,)) + varint(at)


def times(numbers: Sequence[int]) -> list[bytes]:
    """Times of 0 to LATEST as protobuf has them, each in as many bytes; many at once, since all of
    them together are one long number."""
    out: list[bytes] = []
    for at in range(0, len(numbers), _AT_ONCE):
        some = numbers[at : at + _AT_ONCE]
        size = len(some)
        long = int.from_bytes(struct.pack(f"<{size}Q", *some), "little")
        for low, high, by in _SPREAD:
            long = long & low | (long & high) << by
        long |= int.from_bytes(_MORE_FOLLOW * size, "little")
        out += [time for (time,) in _ONE.iter_unpack(long.to_bytes(_TIME * size, "little"))]
    return out


def before_time(fields: bytes) -> bytes:
    """A packet up to its time."""
    return _PACKET + varint(len(fields) + 1 + _TIME) + fields + bytes((TIMESTAMP,))


def before_flow(fields: bytes) -> bytes:
    """The same of one that belongs to a flow: up to FLOW_AND_TIME."""
    return _PACKET + varint(len(fields) + 8 + 1 + _TIME) + fields


def packet(fields: bytes) -> bytes:
    """A packet of a trace, of its serialized fields."""
    size = len(fields)
    return _PACKET + (bytes((size,)) if size < 0x80 else varint(size)) + fields


def opening(boottime: int, realtime: int) -> bytes:
    """The first packet: what the clock of all others says at which time of day, in nanoseconds."""
    found = perfetto.TracePacket(trusted_packet_sequence_id=_SEQUENCE)
    for clock, at in ((_BOOTTIME, boottime), (_REALTIME, realtime)):
        found.clock_snapshot.clocks.add(clock_id=clock, timestamp=at)
    return packet(found.SerializeToString())


def track(uuid: int, name: str, parent: int = 0, rank: int = 0) -> bytes:
    """A track. parent: the one that it stands below; rank: its place there."""
    found = perfetto.TracePacket(trusted_packet_sequence_id=_SEQUENCE)
    told = found.track_descriptor
    told.uuid, told.name = uuid, name
    told.child_ordering = perfetto.TrackDescriptor.EXPLICIT
    told.sibling_order_rank = rank
    if parent:
        told.parent_uuid = parent
    return packet(found.SerializeToString())


def event(kind: Any, track: int, name: str = "", category: str = "", told: Told = NONE) -> bytes:
    """The fields of an event, but its time. kind: BEGIN, END or INSTANT. told: what it says."""
    fields: bytes = _event(kind, track, name, category, told).SerializeToString()
    return fields


def flowing(kind: Any, track: int, name: str, category: str, told: Told) -> bytes:
    """The same of one that belongs to a flow, up to the flow's id, which comes last."""
    found = _event(kind, track, name, category, told)
    found.track_event.flow_ids.append(0)
    fields: bytes = found.SerializeToString()
    assert fields.endswith(bytes(8))
    return fields[:-8]


def _event(kind: Any, track: int, name: str, category: str, told: Told) -> Any:
    found = perfetto.TracePacket(trusted_packet_sequence_id=_SEQUENCE)
    event = found.track_event
    event.type, event.track_uuid = kind, track
    if name:
        event.name = name
    if category:
        event.categories.append(category)
    for key, value in told.items():
        note = event.debug_annotations.add(name=key)
        if isinstance(value, bool):
            note.bool_value = value
        elif isinstance(value, int):
            note.int_value = value
        elif isinstance(value, float):
            note.double_value = value
        else:
            note.string_value = value
    return found
