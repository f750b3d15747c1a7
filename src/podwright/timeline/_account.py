"""Where the time of a launch went, in shares and in words. Pure: of a timeline that was read.

Waiting, fabric and the end are the launch's own. Between them, instances differ: starting,
computing and talking are their means. Starting is whatever lies before an instance has joined the
others (or, where it never does, before its script began); talking is what collectives took;
computing all else until it leaves them or ends. So the shares are those of the whole time, and
nothing is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from podwright.timeline._read_back import Timeline, TrackSlice

#: Collectives that are told apart.
_MOST = 20


class CollectiveKind(NamedTuple):
    """Collectives of one name and size, of an instance each. seconds: of all of them, in all."""

    name: str
    size: int
    calls: int
    seconds: float


class Slowest(NamedTuple):
    """For whom the others waited most. last: how often it came last, of how many collectives.

    waited: seconds that each of the others waited for it, on average.
    """

    rank: int
    last: int
    collectives: int
    waited: float


class Account(NamedTuple):
    """Where the time went: seconds. total: of the launch; starts: how often all were started;
    moves: how often it was given other devices.

    by_rank: of each instance, its seconds of starting, computing, talking.
    clock_error: seconds by which the times of different hosts may differ.
    """

    total: float
    waiting: float
    starting: float
    computing: float
    talking: float
    ending: float
    starts: int
    moves: int
    by_rank: dict[int, tuple[float, float, float]]
    kinds: list[CollectiveKind]
    slowest: Slowest | None
    marks: dict[str, int]
    clock_error: float
    left_out: int


def account(timeline: Timeline) -> Account:
    """Where the time of a launch went."""
    launch = next(iter(timeline.of("launch")), None)
    total = launch.end - launch.begin if launch else 0
    waiting = sum(s.end - s.begin for s in timeline.of("launch") if s.name == "waiting")
    by_track: dict[int, list[TrackSlice]] = defaultdict(list)
    for piece in timeline.slices:
        by_track[piece.track].append(piece)
    by_start: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    leaving: dict[int, list[int]] = defaultdict(list)
    by_rank: dict[int, tuple[float, float, float]] = {}
    last_end = launch.begin if launch else 0
    for instance in timeline.of("instance"):
        within = [
            s
            for s in by_track[instance.track]
            if s.depth == 1 and instance.begin <= s.begin and s.end <= instance.end
        ]
        joined = max((s.end for s in within if s.category == "join"), default=instance.begin)
        talking = sum(s.end - s.begin for s in within if s.category == "collective")
        left = min((s.begin for s in within if s.category == "leave"), default=instance.end)
        mine = joined - instance.begin, left - joined - talking, talking
        leaving[instance.told.get("attempt", 1)].append(instance.end - left)
        by_start[instance.told.get("attempt", 1)].append(mine)
        last_end = max(last_end, instance.end)
        rank = instance.told.get("rank", 0)
        before = by_rank.get(rank, (0.0, 0.0, 0.0))
        by_rank[rank] = tuple(b + m / 1e9 for b, m in zip(before, mine, strict=True))  # type: ignore[assignment]
    computing = sum(_mean(c for _, c, _ in some) for some in by_start.values())
    talking_mean = sum(_mean(t for _, _, t in some) for some in by_start.values())
    ending = float(launch.end - last_end if launch and by_start else 0)
    ending += sum(_mean(some) for some in leaving.values())
    starting = max(total - waiting - computing - talking_mean - ending, 0)
    errors = [i.told.get("error", 0) for i in timeline.instants if i.name == "clock"]
    marks: dict[str, int] = defaultdict(int)
    for instant in timeline.instants:
        if instant.category == "mark":
            marks[instant.name] += 1
    return Account(
        total=total / 1e9,
        waiting=waiting / 1e9,
        starting=starting / 1e9,
        computing=computing / 1e9,
        talking=talking_mean / 1e9,
        ending=ending / 1e9,
        starts=len(by_start),
        moves=sum(s.name == "move" for s in timeline.of("launch")),
        by_rank=dict(sorted(by_rank.items())),
        kinds=_kinds(timeline),
        slowest=_slowest(timeline),
        marks=dict(marks),
        clock_error=max(errors, default=0) / 1e9,
        left_out=sum(i.told.get("records", 0) for i in timeline.instants if i.name == "left out"),
    )


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def _kinds(timeline: Timeline) -> list[CollectiveKind]:
    found: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for piece in timeline.of("collective"):
        entry = found[piece.name, piece.told.get("bytes", 0)]
        entry[0] += 1
        entry[1] += piece.end - piece.begin
    kinds = [CollectiveKind(*key, calls, ns / 1e9) for key, (calls, ns) in found.items()]
    return sorted(kinds, key=lambda k: -k.seconds)[:_MOST]


def _slowest(timeline: Timeline) -> Slowest | None:
    """Of each collective, who came last, and how long the others had waited for it."""
    ranks = {s.track: s.told.get("rank", 0) for s in timeline.of("instance")}
    met: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for piece in timeline.of("collective"):
        for flow in piece.flows:
            met[flow].append((piece.begin, ranks.get(piece.track, 0)))
    last: dict[int, int] = defaultdict(int)
    waited: dict[int, float] = defaultdict(float)
    whole = [some for some in met.values() if len(some) > 1]
    for some in whole:
        some.sort()
        at, rank = some[-1]
        last[rank] += 1
        waited[rank] += _mean(at - other for other, _ in some[:-1])
    if not waited:
        return None
    worst = max(waited, key=lambda rank: waited[rank])
    return Slowest(worst, last[worst], len(whole), waited[worst] / 1e9)


def in_sentences(found: Account) -> list[str]:
    """Where the time went, a sentence each."""
    total = found.total or 1.0
    parts = [
        ("waiting for devices", found.waiting),
        ("starting", found.starting),
        ("computing", found.computing),
        ("talking to each other", found.talking),
        ("ending", found.ending),
    ]
    shares = ", ".join(f"{seconds / total:.0%} {what}" for what, seconds in parts)
    lines = [f"It took {seconds_text(found.total)}: {shares}."]
    if found.starts > 1:
        moved = f", {found.moves} of them after a move" if found.moves else ""
        lines.append(f"All instances were started {found.starts} times{moved}.")
    if found.slowest:
        slow = found.slowest
        lines.append(
            f"Instance {slow.rank} was the slowest: it came last to {slow.last} of "
            f"{slow.collectives} collectives, and the others waited {seconds_text(slow.waited)} "
            "for it."
        )
    if found.kinds:
        kind = found.kinds[0]
        each = kind.seconds / kind.calls
        lines.append(
            f"Most of the talking was {kind.name} of {size_text(kind.size)}: "
            f"{seconds_text(each)} each."
        )
    if found.clock_error:
        lines.append(
            f"Times of different hosts may differ by {seconds_text(found.clock_error)}, since "
            "their clocks do."
        )
    if found.left_out:
        lines.append(f"{found.left_out} records were left out: there were too many.")
    return lines


def seconds_text(seconds: float) -> str:
    """A time for people."""
    if seconds >= 120:
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def size_text(size: int) -> str:
    """Bytes for people."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"
