"""What instances say, as packets: the part of a trace that may be a million times as long.

Whatever packets have in common is made once, and kept with the bytes in front of it; of each there
remain its time and its flow. So no function is called for a record that need not be.
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

#: Collectives of which not all instances have been heard, and templates, that are kept.
_OPEN, _TEMPLATES = 4096, 8192
_Key = tuple[int, int, str, int]
#: A kind: which it is, what stands before the flow or the time, its flow but the count.
_Made = tuple[int, bytes, int, RecordKind]


class InstancePackets:
    """Packets of records. collectives: the track that shows for whom all waited."""

    def __init__(self, collectives: int) -> None:
        self._track = collectives
        self._templates: dict[_Key, bytes] = {}
        self._ends: dict[int, bytes] = {}
        self._met_end = 0
        #: By flow: how many came, when the first and the last did, and which was the last.
        self._met: OrderedDict[int, list[int]] = OrderedDict()

    def forget(self) -> None:
        """All instances are started anew: who has not come to a collective never will."""
        self._met.clear()

    def of(
        self,
        found: Sequence[RecordPiece],
        track: tuple[int, int],
        clock: tuple[int, int],
        since: int,
        attempt: int,
    ) -> tuple[bytes, int, int]:
        """The packets; until when they lie; how many records the instance had to leave out.

        track: its number, and the instance's. clock: what to add to the times that they have, and
        what is now: nothing is later. since: nothing is earlier; so on one track nothing begins
        before the last has ended, whatever clocks say.
        """
        uuid, rank = track
        offset, latest = clock
        latest = min(max(latest, since), packets.LATEST)
        before: list[bytes] = []
        times: list[int] = []
        flow_and_time, stamp, heard = packets.FLOW_AND_TIME, packets.TIMESTAMP, self._met
        last = self._ends.get(uuid) or self._end(uuid)
        lost = 0
        for piece in found:
            kinds = [self._made(kind, uuid, attempt) for kind in piece.kinds]
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

    def _made(self, kind: RecordKind, uuid: int, attempt: int) -> _Made:
        """What packets of a kind begin with."""
        flow = (attempt & 0xFFF) << 52 | (kind.group & 0xFFFFF) << 32
        key = kind.kind, uuid, kind.name, kind.size
        template = b"" if kind.kind == LEFT_OUT else self._templates.get(key) or self._template(key)
        return kind.kind, template, flow, kind

    def _slowest(self, met: list[int], kind: RecordKind, times: list[int]) -> tuple[bytes, bytes]:
        """From the first to the last that came: for whom the others waited. Adds the times."""
        _, first, last, rank = met
        first = max(first, self._met_end)
        last = self._met_end = max(last, first)
        times += (first, last)
        key = (-1 - rank, self._track, kind.name, kind.size)
        template = self._templates.get(key) or self._template(key)
        return template, self._ends.get(self._track) or self._end(self._track)

    def _end(self, uuid: int) -> bytes:
        fields = packets.event(packets.END, uuid)
        made = self._ends[uuid] = packets.before_time(fields)
        return made

    def _template(self, key: _Key) -> bytes:
        kind, uuid, name, size = key
        if kind == COLLECTIVE:
            fields = packets.flowing(packets.BEGIN, uuid, name, "collective", {"bytes": size})
            made = packets.before_flow(fields)
        else:
            if kind == MARK:
                fields = packets.event(packets.INSTANT, uuid, name, "mark")
            elif kind in (JOINED, LEFT):
                what = "join" if kind == JOINED else "leave"
                fields = packets.event(packets.BEGIN, uuid, f"{what} by {name}", what)
            else:
                told = {"bytes": size, "slowest": -1 - kind}
                text = f"{name}: instance {-1 - kind} comes last"
                fields = packets.event(packets.BEGIN, uuid, text, "slowest", told)
            made = packets.before_time(fields)
        if len(self._templates) < _TEMPLATES:
            self._templates[key] = made
        return made
