"""Converts the records of instances into packets, the part of a trace that may have a million of
them.

The bytes that many packets have in common are made once, as a template with the bytes in front of
them. Only the time and the flow of each packet are made anew. So no function is called for a single
record if that can be avoided.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from podwright.timeline import _packets as packets
from podwright.timeline._instance_records import (
    COLLECTIVE,
    JOINED,
    LEFT,
    LEFT_OUT,
    MARK,
    RecordKind,
    RecordPiece,
)

#: The limits of unfinished collectives, of which some instances are missing, and of templates.
_MOST_OPEN_COLLECTIVES, _MOST_TEMPLATES = 4096, 8192
_TemplateKey = tuple[int, int, str, int]
#: A kind of records: its number, the bytes before the flow or the time, the flow without its count,
#: and the kind itself.
_KindTemplate = tuple[int, bytes, int, RecordKind]


class InstancePackets:
    """Converts records into packets. collectives_track: that which shows whom all waited for."""

    def __init__(self, collectives_track: int) -> None:
        self._track = collectives_track
        self._templates: dict[_TemplateKey, bytes] = {}
        self._ends: dict[int, bytes] = {}
        self._slowest_end = 0
        #: By flow: how many instances have entered, when the first and the last did, and which was
        #: last.
        self._met: OrderedDict[int, list[int]] = OrderedDict()

    def forget(self) -> None:
        """Discard unfinished collectives: after a restart of all instances, nobody enters them any
        more.
        """
        self._met.clear()

    def of(
        self,
        record_pieces: Sequence[RecordPiece],
        track_and_rank: tuple[int, int],
        offset_and_now: tuple[int, int],
        earliest: int,
        attempt: int,
    ) -> tuple[bytes, int, int]:
        """Return the packets, the end of their times, and how many records the instance had to
        leave out.

        track_and_rank: the number of the track, and of the instance. offset_and_now: the offset to
        add to the instance's times, and the present time, which is the upper limit of all times.
        earliest: the lower limit. So on one track nothing begins before the last packet has ended,
        whatever the clocks say.
        """
        track_uuid, rank = track_and_rank
        clock_offset, latest_ns = offset_and_now
        latest_ns = min(max(latest_ns, earliest), packets.LATEST)
        packet_prefixes: list[bytes] = []
        packet_times: list[int] = []
        flow_and_time, timestamp_key, open_collectives = (
            packets.FLOW_AND_TIME,
            packets.TIMESTAMP_KEY,
            self._met,
        )
        end_template = self._ends.get(track_uuid) or self._end(track_uuid)
        lost_records = 0
        for record_piece in record_pieces:
            kind_templates = [
                self._kind_template(kind, track_uuid, attempt) for kind in record_piece.kinds
            ]
            for kind_index, group_sequence, begin_ns, end_ns in record_piece.records():
                begin_ns += clock_offset
                end_ns += clock_offset
                if not earliest <= begin_ns <= end_ns <= latest_ns:
                    begin_ns = min(max(begin_ns, earliest), latest_ns)
                    end_ns = min(max(end_ns, begin_ns), latest_ns)
                kind, kind_template, flow_id, shared_kind = kind_templates[kind_index]
                if kind == COLLECTIVE:
                    flow_id |= group_sequence
                    packet_prefixes += (
                        kind_template + flow_and_time(flow_id, timestamp_key),
                        end_template,
                    )
                    packet_times += (begin_ns, end_ns)
                    collective = open_collectives.get(flow_id)
                    if collective is None:
                        open_collectives[flow_id] = [1, begin_ns, begin_ns, rank]
                        if len(open_collectives) > _MOST_OPEN_COLLECTIVES:
                            open_collectives.popitem(last=False)
                    else:
                        collective[0] += 1
                        if begin_ns < collective[1]:
                            collective[1] = begin_ns
                        if begin_ns >= collective[2]:
                            collective[2], collective[3] = begin_ns, rank
                        if collective[0] >= shared_kind.members:
                            del open_collectives[flow_id]
                            packet_prefixes += self._slowest_packets(
                                collective, shared_kind, packet_times
                            )
                elif kind == MARK:
                    packet_prefixes.append(kind_template)
                    packet_times.append(begin_ns)
                    end_ns = begin_ns
                elif kind == LEFT_OUT:
                    lost_records += shared_kind.size
                    continue
                else:
                    packet_prefixes += (kind_template, end_template)
                    packet_times += (begin_ns, end_ns)
                earliest = end_ns
        packet_parts = [b""] * (2 * len(packet_prefixes))
        packet_parts[::2], packet_parts[1::2] = packet_prefixes, packets.times(packet_times)
        return b"".join(packet_parts), earliest, lost_records

    def _kind_template(
        self, record_kind: RecordKind, track_uuid: int, attempt: int
    ) -> _KindTemplate:
        """Return what the packets of a kind have in common."""
        flow_id = (attempt & 0xFFF) << 52 | (record_kind.group & 0xFFFFF) << 32
        key = record_kind.kind, track_uuid, record_kind.name, record_kind.size
        template_bytes = (
            b""
            if record_kind.kind == LEFT_OUT
            else self._templates.get(key) or self._begin_template(key)
        )
        return record_kind.kind, template_bytes, flow_id, record_kind

    def _slowest_packets(
        self, collective: list[int], record_kind: RecordKind, packet_times: list[int]
    ) -> tuple[bytes, bytes]:
        """Return the packets that show from the first to the last arrival whom the others waited
        for.

        Adds the two times to `packet_times`.
        """
        _, first_arrival, last_arrival, rank = collective
        first_arrival = max(first_arrival, self._slowest_end)
        last_arrival = self._slowest_end = max(last_arrival, first_arrival)
        packet_times += (first_arrival, last_arrival)
        key = (-1 - rank, self._track, record_kind.name, record_kind.size)
        template = self._templates.get(key) or self._begin_template(key)
        return template, self._ends.get(self._track) or self._end(self._track)

    def _end(self, track_uuid: int) -> bytes:
        fields = packets.event(packets.END, track_uuid)
        template_bytes = self._ends[track_uuid] = packets.before_time(fields)
        return template_bytes

    def _begin_template(self, template_key: _TemplateKey) -> bytes:
        kind_number, track_uuid, kind_name, byte_count = template_key
        if kind_number == COLLECTIVE:
            event_fields = packets.flow_event(
                packets.BEGIN, track_uuid, kind_name, "collective", {"bytes": byte_count}
            )
            template_bytes = packets.before_flow(event_fields)
        else:
            if kind_number == MARK:
                event_fields = packets.event(packets.INSTANT, track_uuid, kind_name, "mark")
            elif kind_number in (JOINED, LEFT):
                event_name = "join" if kind_number == JOINED else "leave"
                event_fields = packets.event(
                    packets.BEGIN, track_uuid, f"{event_name} by {kind_name}", event_name
                )
            else:
                annotations = {"bytes": byte_count, "slowest": -1 - kind_number}
                event_text = f"{kind_name}: instance {-1 - kind_number} arrives last"
                event_fields = packets.event(
                    packets.BEGIN, track_uuid, event_text, "slowest", annotations
                )
            template_bytes = packets.before_time(event_fields)
        if len(self._templates) < _MOST_TEMPLATES:
            self._templates[template_key] = template_bytes
        return template_bytes
