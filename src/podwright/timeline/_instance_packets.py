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
_OPEN, _TEMPLATES = 4096, 8192
_Key = tuple[int, int, str, int]
#: A kind of records: its number, the bytes before the flow or the time, the flow without its count,
#: and the kind itself.
_Made = tuple[int, bytes, int, RecordKind]


class InstancePackets:
    """Converts records into packets. collectives: the track that shows whom all waited for."""

    def __init__(self, collectives: int) -> None:
        self._track = collectives
        self._templates: dict[_Key, bytes] = {}
        self._ends: dict[int, bytes] = {}
        self._met_end = 0
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
        pieces: Sequence[RecordPiece],
        track: tuple[int, int],
        clock: tuple[int, int],
        since: int,
        attempt: int,
    ) -> tuple[bytes, int, int]:
        """Return the packets, the end of their times, and how many records the instance had to
        leave out.

        track: the number of the track, and of the instance. clock: the offset to add to the
        instance's times, and the present time, which is the upper limit of all times. since: the
        lower limit. So on one track nothing begins before the last packet has ended, whatever the
        clocks say.
        """
        uuid, rank = track
        offset, latest = clock
        latest = min(max(latest, since), packets.LATEST)
        before: list[bytes] = []
        times: list[int] = []
        flow_and_time, stamp, heard = packets.FLOW_AND_TIME, packets.TIMESTAMP, self._met
        last = self._ends.get(uuid) or self._end(uuid)
        lost = 0
        for piece in pieces:
            kinds = [self._shares(kind, uuid, attempt) for kind in piece.kinds]
            for index, nth, begin, end in piece.records():
                begin += offset
                end += offset
                if not since <= begin <= end <= latest:
                    begin = min(max(begin, since), latest)
                    end = min(max(end, begin), latest)
                kind, template, flow, common = kinds[index]
                if kind == COLLECTIVE:
                    flow |= nth
                    before += (template + flow_and_time(flow, stamp), last)
                    times += (begin, end)
                    met = heard.get(flow)
                    if met is None:
                        heard[flow] = [1, begin, begin, rank]
                        if len(heard) > _OPEN:
                            heard.popitem(last=False)
                    else:
                        met[0] += 1
                        if begin < met[1]:
                            met[1] = begin
                        if begin >= met[2]:
                            met[2], met[3] = begin, rank
                        if met[0] >= common.members:
                            del heard[flow]
                            before += self._slowest(met, common, times)
                elif kind == MARK:
                    before.append(template)
                    times.append(begin)
                    end = begin
                elif kind == LEFT_OUT:
                    lost += common.size
                    continue
                else:
                    before += (template, last)
                    times += (begin, end)
                since = end
        both = [b""] * (2 * len(before))
        both[::2], both[1::2] = before, packets.times(times)
        return b"".join(both), since, lost

    def _shares(self, kind: RecordKind, uuid: int, attempt: int) -> _Made:
        """Return what the packets of a kind have in common."""
        flow = (attempt & 0xFFF) << 52 | (kind.group & 0xFFFFF) << 32
        key = kind.kind, uuid, kind.name, kind.size
        template = b"" if kind.kind == LEFT_OUT else self._templates.get(key) or self._template(key)
        return kind.kind, template, flow, kind

    def _slowest(self, met: list[int], kind: RecordKind, times: list[int]) -> tuple[bytes, bytes]:
        """Return the packets that show from the first to the last arrival whom the others waited
        for.

        Adds the two times to `times`.
        """
        _, first, last, rank = met
        first = max(first, self._met_end)
        last = self._met_end = max(last, first)
        times += (first, last)
        key = (-1 - rank, self._track, kind.name, kind.size)
        template = self._templates.get(key) or self._template(key)
        return template, self._ends.get(self._track) or self._end(self._track)

    def _end(self, uuid: int) -> bytes:
        fields = packets.event(packets.END, uuid)
        prefix = self._ends[uuid] = packets.before_time(fields)
        return prefix

    def _template(self, key: _Key) -> bytes:
        kind, uuid, name, size = key
        if kind == COLLECTIVE:
            fields = packets.flowing(packets.BEGIN, uuid, name, "collective", {"bytes": size})
            prefix = packets.before_flow(fields)
        else:
            if kind == MARK:
                fields = packets.event(packets.INSTANT, uuid, name, "mark")
            elif kind in (JOINED, LEFT):
                event_name = "join" if kind == JOINED else "leave"
                fields = packets.event(packets.BEGIN, uuid, f"{event_name} by {name}", event_name)
            else:
                annotations = {"bytes": size, "slowest": -1 - kind}
                text = f"{name}: instance {-1 - kind} arrives last"
                fields = packets.event(packets.BEGIN, uuid, text, "slowest", annotations)
            prefix = packets.before_time(fields)
        if len(self._templates) < _TEMPLATES:
            self._templates[key] = prefix
        return prefix
