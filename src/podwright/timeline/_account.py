"""The account of a launch's time, in shares and in sentences. Pure: a timeline in, values out.

Waiting for devices, configuring the fabric and the end belong to the launch as a whole. Between
them, instances differ, so the shares are their means:

* starting lasts until an instance has joined the others (or, if it never does, until its script
  began);
* waiting for other instances is the part of a collective before its last member has entered it; *
transferring is the rest of the collective; * computing is all other time until the instance leaves
the others or ends.

The shares add up to the whole time: nothing is left out and nothing counts twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from podwright.timeline._collective_times import Arrivals, arrivals, split_time
from podwright.timeline._read_back import Timeline, TrackSlice

#: The limit of kinds of collectives that are listed.
_MOST = 20


class CollectiveKind(NamedTuple):
    """The collectives of one name and size.

    collectives: their number. calls: the number of calls by single instances, so one collective of
    four instances has four calls. waiting, transfer: seconds, summed over all calls.
    """

    name: str
    size: int
    collectives: int
    calls: int
    waiting: float
    transfer: float


class Slowest(NamedTuple):
    """The instance that made the others wait longest.

    last: the number of collectives that it entered last, of `collectives` with at least two
    instances. waited: seconds that each of the others waited for it, on average, in total.
    """

    rank: int
    last: int
    collectives: int
    waited: float


class InstanceTimes(NamedTuple):
    """How one instance spent its time, in seconds."""

    starting: float
    computing: float
    waiting: float
    transfer: float

    def plus(self, other: InstanceTimes) -> InstanceTimes:
        """Return the sums of both."""
        return InstanceTimes(*(a + b for a, b in zip(self, other, strict=True)))


class Account(NamedTuple):
    """How a launch spent its time, in seconds. total: of the launch.

    waiting: for devices. starting, computing, waiting_for_instances, transfer: means over the
    instances (InstanceTimes), summed over all starts. starts: how often all instances were started.
    moves: how often the launch was given other devices. by_rank: the times of each instance.
    clock_error: by how many seconds the times of different hosts may differ. left_out: the number
    of records that instances could not send.
    """

    total: float
    waiting: float
    starting: float
    computing: float
    waiting_for_instances: float
    transfer: float
    ending: float
    starts: int
    moves: int
    by_rank: dict[int, InstanceTimes]
    kinds: list[CollectiveKind]
    slowest: Slowest | None
    marks: dict[str, int]
    clock_error: float
    left_out: int


class _InstanceSpan(NamedTuple):
    """One start of one instance. times: in seconds; leaving: seconds from leaving to its end."""

    rank: int
    attempt: int
    end: int
    times: InstanceTimes
    leaving: float


def account(timeline: Timeline) -> Account:
    """Return how a launch spent its time."""
    launch = next(iter(timeline.of("launch")), None)
    total = (launch.end - launch.begin) / 1e9 if launch else 0.0
    phases = [piece for piece in timeline.of("launch") if piece.name == "waiting"]
    waiting = sum(piece.end - piece.begin for piece in phases) / 1e9
    entered = arrivals(timeline)
    spans = _spans(timeline, entered)
    starts: dict[int, list[_InstanceSpan]] = defaultdict(list)
    by_rank: dict[int, InstanceTimes] = {}
    for span in spans:
        starts[span.attempt].append(span)
        before = by_rank.get(span.rank)
        by_rank[span.rank] = before.plus(span.times) if before else span.times
    computing = sum(_mean(s.times.computing for s in start) for start in starts.values())
    for_instances = sum(_mean(s.times.waiting for s in start) for start in starts.values())
    transfer = sum(_mean(s.times.transfer for s in start) for start in starts.values())
    ending = sum(_mean(s.leaving for s in start) for start in starts.values())
    if launch and spans:
        ending += (launch.end - max(span.end for span in spans)) / 1e9
    errors = [i.annotations.get("error", 0) for i in timeline.instants if i.name == "clock"]
    lost = [i.annotations.get("records", 0) for i in timeline.instants if i.name == "left out"]
    marks: dict[str, int] = defaultdict(int)
    for instant in timeline.instants:
        if instant.category == "mark":
            marks[instant.name] += 1
    return Account(
        total=total,
        waiting=waiting,
        starting=max(total - waiting - computing - for_instances - transfer - ending, 0.0),
        computing=computing,
        waiting_for_instances=for_instances,
        transfer=transfer,
        ending=ending,
        starts=len(starts),
        moves=sum(piece.name == "move" for piece in timeline.of("launch")),
        by_rank=dict(sorted(by_rank.items())),
        kinds=_kinds(timeline, entered),
        slowest=_slowest(timeline, entered),
        marks=dict(marks),
        clock_error=max(errors, default=0) / 1e9,
        left_out=sum(lost),
    )


def _spans(timeline: Timeline, entered: dict[int, Arrivals]) -> list[_InstanceSpan]:
    by_track: dict[int, list[TrackSlice]] = defaultdict(list)
    for piece in timeline.slices:
        if piece.depth == 1:
            by_track[piece.track].append(piece)
    spans = []
    for instance in timeline.of("instance"):
        pieces = [
            piece
            for piece in by_track[instance.track]
            if instance.begin <= piece.begin and piece.end <= instance.end
        ]
        joined = max((p.end for p in pieces if p.category == "join"), default=instance.begin)
        left = min((p.begin for p in pieces if p.category == "leave"), default=instance.end)
        split = [split_time(p, entered) for p in pieces if p.category == "collective"]
        waiting = sum(time.waiting for time in split)
        transfer = sum(time.transfer for time in split)
        starting, computing = joined - instance.begin, left - joined - waiting - transfer
        times = (starting, computing, waiting, transfer)
        spans.append(
            _InstanceSpan(
                rank=instance.annotations.get("rank", 0),
                attempt=instance.annotations.get("attempt", 1),
                end=instance.end,
                times=InstanceTimes(*(nanoseconds / 1e9 for nanoseconds in times)),
                leaving=(instance.end - left) / 1e9,
            )
        )
    return spans


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0


def _kinds(timeline: Timeline, entered: dict[int, Arrivals]) -> list[CollectiveKind]:
    """Return the kinds on which most time was spent, the most expensive first."""
    calls: dict[tuple[str, int], list[TrackSlice]] = defaultdict(list)
    for piece in timeline.of("collective"):
        calls[piece.name, piece.annotations.get("bytes", 0)].append(piece)
    kinds = []
    for (name, size), pieces in calls.items():
        split = [split_time(piece, entered) for piece in pieces]
        flows = {flow for piece in pieces for flow in piece.flows}
        kinds.append(
            CollectiveKind(
                name=name,
                size=size,
                collectives=len(flows) + sum(not piece.flows for piece in pieces),
                calls=len(pieces),
                waiting=sum(time.waiting for time in split) / 1e9,
                transfer=sum(time.transfer for time in split) / 1e9,
            )
        )
    return sorted(kinds, key=lambda kind: -kind.waiting - kind.transfer)[:_MOST]


def _slowest(timeline: Timeline, entered: dict[int, Arrivals]) -> Slowest | None:
    """Return the instance that came last, and how long the others waited, over all collectives."""
    ranks = {i.track: i.annotations.get("rank", 0) for i in timeline.of("instance")}
    last: dict[int, int] = defaultdict(int)
    waited: dict[int, float] = defaultdict(float)
    several = [arrived for arrived in entered.values() if len(arrived.members) > 1]
    for arrived in several:
        rank = ranks.get(arrived.members[-1][1], 0)
        last[rank] += 1
        waited[rank] += _mean(arrived.latest - arrival for arrival, _ in arrived.members[:-1])
    if not waited:
        return None
    worst = max(waited, key=lambda rank: waited[rank])
    return Slowest(worst, last[worst], len(several), waited[worst] / 1e9)


def in_sentences(times: Account) -> list[str]:
    """Return how the time was spent, one sentence for each fact."""
    total = times.total or 1.0
    parts = [
        ("waiting for devices", times.waiting),
        ("starting", times.starting),
        ("computing", times.computing),
        ("waiting for other instances", times.waiting_for_instances),
        ("transferring", times.transfer),
        ("ending", times.ending),
    ]
    shares = ", ".join(f"{seconds / total:.0%} {name}" for name, seconds in parts)
    lines = [f"It took {seconds_text(times.total)}: {shares}."]
    if times.starts > 1:
        moved = f", {times.moves} of them after a move" if times.moves else ""
        lines.append(f"All instances were started {times.starts} times{moved}.")
    if times.slowest:
        slow = times.slowest
        lines.append(
            f"Instance {slow.rank} was the slowest: it came last to {slow.last} of "
            f"{slow.collectives} collectives, and the others waited {seconds_text(slow.waited)} "
            "for it."
        )
    moved_data = [kind for kind in times.kinds if kind.transfer]
    if moved_data:
        kind = max(moved_data, key=lambda kind: kind.transfer)
        lines.append(
            f"Most of the transfer was {kind.name} of {size_text(kind.size)}: "
            f"{seconds_text(kind.transfer / kind.calls)} each."
        )
    if times.clock_error:
        lines.append(
            f"Times of different hosts may differ by {seconds_text(times.clock_error)}, since "
            "their clocks do."
        )
    if times.left_out:
        lines.append(f"{times.left_out} records were left out: there were too many.")
    return lines


def seconds_text(seconds: float) -> str:
    """Return a time for people."""
    if seconds >= 120:
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def size_text(size: int) -> str:
    """Return a number of bytes for people."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"
