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
    InstanceRecord,
)

#: Collectives of which not all instances have been heard, and templates, that are kept.
_OPEN, _TEMPLATES = 4096, 8192

_Key = tuple[int, int, str, int]


class SaidPackets:
    """Packets of records. collectives: the track that shows for whom all waited."""

    def __init__(self, collectives: int) -> None:
        self._track = collectives
        self._templates: dict[_Key, bytes] = {}
        self._ends: dict[int, bytes] = {}
        self._high, self._rest = -1, b""
        self._met_end = 0
        #: By flow: how many came, when the first and the last did, and which was the last.
        self._met: OrderedDict[int, list[int]] = OrderedDict()

    def forget(self) -> None:
        """All instances are started anew: who has not come to a collective never will."""
        self._met.clear()

    def of(
        self,
        found: Sequence[InstanceRecord],
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
        out: list[bytes] = []
        low = packets.FOURTEEN
        lost = 0
        for kind, name, begin, end, size, group, nth, members in found:
            begin += offset
            end += offset
            if begin > latest:
                begin = latest
            if begin < since:
                begin = since
            if end > latest:
                end = latest
            if end < begin:
                end = begin
            if kind == LEFT_OUT:
                lost += size
                continue
            since = end
            if begin >> 28 != self._high:
                self._turn(begin >> 28)
            template = self._templates.get((kind, uuid, name, size))
            if template is None:
                template = self._template((kind, uuid, name, size))
            times = low[begin & 0x3FFF], low[begin >> 14 & 0x3FFF], self._rest
            if kind == COLLECTIVE:
                flow = (attempt & 0xFFF) << 52 | (group & 0xFFFFF) << 32 | nth
                out += (template, packets.FLOW_AND_TIME(flow, packets.TIMESTAMP), *times)
                met = self._met.get(flow)
                if met is None:
                    self._met[flow] = [1, begin, begin, rank]
                    if len(self._met) > _OPEN:
                        self._met.popitem(last=False)
                else:
                    met[0] += 1
                    if begin < met[1]:
                        met[1] = begin
                    if begin >= met[2]:
                        met[2], met[3] = begin, rank
                    if met[0] >= members:
                        del self._met[flow]
                        self._slowest(out, met, name, size)
            else:
                out += (template, *times)
                if kind == MARK:
                    continue
            if end >> 28 != self._high:
                self._turn(end >> 28)
            last = self._ends.get(uuid) or self._end(uuid)
            out += (last, low[end & 0x3FFF], low[end >> 14 & 0x3FFF], self._rest)
        return b"".join(out), since, lost

    def _slowest(self, out: list[bytes], met: list[int], name: str, size: int) -> None:
        """From the first to the last that came: for whom the others waited."""
        _, first, last, rank = met
        first = max(first, self._met_end)
        last = self._met_end = max(last, first)
        key = (-1 - rank, self._track, name, size)
        for at in (first, last):
            if at >> 28 != self._high:
                self._turn(at >> 28)
            if key:
                template = self._templates.get(key) or self._template(key)
                key = ()  # type: ignore[assignment]
            else:
                template = self._ends.get(self._track) or self._end(self._track)
            low = packets.FOURTEEN
            out += (template, low[at & 0x3FFF], low[at >> 14 & 0x3FFF], self._rest)

    def _turn(self, high: int) -> None:
        """The upper bits of the time have changed; if there are more of them, all is longer."""
        rest = packets.varint(high)
        if len(rest) != len(self._rest):
            self._templates.clear()
            self._ends.clear()
        self._high, self._rest = high, rest

    def _end(self, uuid: int) -> bytes:
        fields = packets.event(packets.END, uuid)
        made = self._ends[uuid] = packets.before_time(fields, len(self._rest))
        return made

    def _template(self, key: _Key) -> bytes:
        kind, uuid, name, size = key
        if kind == COLLECTIVE:
            fields = packets.flowing(packets.BEGIN, uuid, name, "collective", {"bytes": size})
            made = packets.before_flow(fields, len(self._rest))
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
            made = packets.before_time(fields, len(self._rest))
        if len(self._templates) < _TEMPLATES:
            self._templates[key] = made
        return made
