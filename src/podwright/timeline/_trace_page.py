"""The timeline as a self-contained page: drawn in SVG, without scripts and without network.

A collective is drawn as two boxes: waiting, until its last member has entered it, and transfer. The
colours and the legend come from one table, _COLOURS.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from podwright.timeline._account import Account, account, in_sentences, seconds_text, size_text
from podwright.timeline._collective_times import Arrivals, arrivals, split_time
from podwright.timeline._read_back import Timeline, TrackSlice

_WIDTH, _LEFT, _LANE = 1200.0, 150.0, 18.0
#: The limit of drawn instances. A browser slows down with more, and nobody reads them.
_LANES = 256
#: The distance in pixels below which neighbours of one kind are merged.
_CLOSE = 0.4
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --faint: #d8dee4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ea; --paper: #16191d; --faint: #3a4048; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 2rem auto; max-width: 80rem; padding: 0 1rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 11px; }
table { border-collapse: collapse; margin: 1rem 0; } caption { text-align: left; font-weight: 600; }
th, td { padding: .15rem .7rem; border-bottom: 1px solid var(--faint); text-align: right; }
th:first-child, td:first-child { text-align: left; }
.grid { stroke: var(--faint); } .mark { stroke: #1a7f5a; stroke-width: 1.5; }
.launch { stroke: var(--ink); stroke-width: .3; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; }
.legend svg { width: .9em; height: .9em; margin-right: .4em; vertical-align: -.1em; }
"""


class _Colour(NamedTuple):
    """The look and the meaning of boxes of one kind. The kind is their class in the SVG."""

    kind: str
    fill: str
    meaning: str


#: In the order of drawing: a later kind covers an earlier one.
_COLOURS = (
    _Colour("launch", "var(--faint)", "phases of the launch"),
    _Colour("start", "#8c6d1f", "starting all instances"),
    _Colour("instance", "#3f7fbf", "computing"),
    _Colour("join", "#c2a83e", "starting an instance, until it has joined the others"),
    _Colour("leave", "#9a9a9a", "leaving the others"),
    _Colour("waiting", "#a58bd0", "waiting for other instances in a collective"),
    _Colour("collective", "#d9772b", "transfer of a collective"),
    _Colour("slowest", "#b3261e", "waiting of all instances for the last one"),
)
_STYLE += "".join(f".{colour.kind} {{ fill: {colour.fill}; }}\n" for colour in _COLOURS)
_MEANINGS = {colour.kind: colour.meaning for colour in _COLOURS}
_ORDER = {colour.kind: number for number, colour in enumerate(_COLOURS)}
#: The kinds of which there may be a million boxes.
_MERGED = ("waiting", "collective", "slowest")


class _Box(NamedTuple):
    kind: str
    left: float
    right: float
    row: int
    words: str
    number: int = 1
    seconds: float = 0.0


def trace_page(timeline: Timeline) -> str:
    """Return the page. All strings of the launch are escaped."""
    times = account(timeline)
    launch = next(iter(timeline.of("launch")), None)
    annotations = launch.annotations if launch else {}
    title = html.escape(str(annotations.get("program", "a launch")))
    sentences = "".join(f"<p>{html.escape(line)}</p>" for line in in_sentences(times))
    cut = "" if timeline.whole else "<p>The end of the file is cut off.</p>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'\">"
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>{title}</h1>{sentences}{cut}"
        f"{_legend()}{_drawing(timeline)}{_tables(timeline, times)}</main></body></html>\n"
    )


def _legend() -> str:
    """Return the legend: each colour, and the lines of marks."""
    boxes = [
        (f'<rect class="{colour.kind}" width="14" height="14"/>', colour.meaning)
        for colour in _COLOURS
    ]
    line = '<line class="mark" x1="7" x2="7" y1="0" y2="14"/>'
    entries = [*boxes, (line, "a mark: something that happened at one time")]
    items = "".join(
        f'<li><svg viewBox="0 0 14 14" aria-hidden="true">{shape}</svg>{html.escape(meaning)}</li>'
        for shape, meaning in entries
    )
    return f'<ul class="legend">{items}</ul>'


def _drawing(timeline: Timeline) -> str:
    begin = min((s.begin for s in timeline.slices), default=0)
    end = max([s.end for s in timeline.slices] + [begin + 1])
    scale = (_WIDTH - _LEFT - 10) / (end - begin)
    rows: list[str] = []
    out: list[str] = []

    def at(when: int) -> float:
        return _LEFT + (when - begin) * scale

    entered = arrivals(timeline)
    lanes = _lanes(timeline)
    for name, pieces, marks in lanes:
        row = len(rows)
        deepest = max((s.depth for s in pieces if s.category == "launch"), default=0)
        rows += [name, *[""] * deepest]
        boxes: list[_Box] = []
        for piece in _drawn(pieces, entered):
            below = piece.depth if piece.category == "launch" else 0
            duration = (piece.end - piece.begin) / 1e9
            words = f"{piece.name}, {seconds_text(duration)}"
            box = _Box(
                piece.category, at(piece.begin), at(piece.end), row + below, words, 1, duration
            )
            boxes.append(box)
        out += [_rect(box) for box in _merged(boxes)]
        last = -1.0
        for when, words in marks:
            x = at(when)
            if x - last >= 1:
                # Marks are short lines, because a program that marks each step would hide
                # everything below.
                y = 24 + row * _LANE
                out.append(
                    f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 3}" y2="{y + 4}">'
                    f"<title>{html.escape(words)}</title></line>"
                )
                last = x
    height = 30 + len(rows) * _LANE
    names = "".join(
        f'<text x="4" y="{36 + i * _LANE}">{html.escape(name)}</text>'
        for i, name in enumerate(rows)
        if name
    )
    grid = "".join(
        f'<line class="grid" x1="{at(when):.1f}" x2="{at(when):.1f}" y1="18" y2="{height}"/>'
        f'<text x="{at(when) + 2:.1f}" y="14">{html.escape(words)}</text>'
        for when, words in _ticks(begin, end)
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} {height:g}" role="img" '
        f'aria-label="The launch from its beginning to its end; the tables below say the same">'
        f"{grid}{names}{''.join(out)}</svg>"
    )


_Lane = tuple[str, list[TrackSlice], list[tuple[int, str]]]


def _lanes(timeline: Timeline) -> list[_Lane]:
    by_track: dict[int, list[TrackSlice]] = {}
    for piece in timeline.slices:
        by_track.setdefault(piece.track, []).append(piece)
    marks: dict[int, list[tuple[int, str]]] = {}
    for instant in timeline.instants:
        words = ", ".join([instant.name, *(f"{k}: {v}" for k, v in instant.annotations.items())])
        marks.setdefault(instant.track, []).append((instant.at, words[:500]))
    lanes: list[_Lane] = []

    def place(track: int) -> tuple[int, int, int]:
        name, parent = timeline.tracks.get(track, ("", 0))
        number = name.rpartition(" ")[2]
        return parent, int(number) if number.isdecimal() else 0, track

    for track in sorted(by_track, key=place):
        name, parent = timeline.tracks.get(track, (str(track), 0))
        where = timeline.tracks.get(parent, ("", 0))[0].removeprefix("host ")
        label = f"{name} ({where})" if where else name
        lanes.append((label[:26], by_track[track], marks.get(track, [])))
    if len(lanes) > _LANES:
        rest = len(lanes) - _LANES
        lanes = [*lanes[:_LANES], (f"and {rest} more", [], [])]
    return lanes


def _drawn(pieces: Sequence[TrackSlice], entered: dict[int, Arrivals]) -> Iterator[TrackSlice]:
    """Yield the slices in the shape in which they are drawn.

    Joining lasts from an instance's beginning, and leaving until its end. A collective is split
    into its waiting and its transfer. A part that took no time is left out.
    """
    instance: TrackSlice | None = None
    for piece in pieces:
        if piece.category == "instance":
            instance = piece
        elif instance and piece.category == "join":
            piece = piece._replace(begin=instance.begin)
        elif instance and piece.category == "leave":
            piece = piece._replace(end=instance.end)
        elif piece.category == "collective":
            middle = piece.begin + split_time(piece, entered).waiting
            if middle > piece.begin:
                name = f"{piece.name}: waiting for other instances"
                yield piece._replace(category="waiting", name=name, end=middle)
            piece = piece._replace(begin=middle)
            if middle == piece.end:
                continue
        yield piece


def _merged(boxes: Sequence[_Box]) -> Iterator[_Box]:
    """Merge neighbours of one kind that a screen could not show apart."""
    last: dict[tuple[str, int], _Box] = {}
    done: list[_Box] = []
    for box in boxes:
        key = box.kind, box.row
        before = last.get(key)
        if before is None:
            last[key] = box
        elif box.kind in _MERGED and box.left - before.right < _CLOSE:
            last[key] = before._replace(
                right=max(before.right, box.right),
                number=before.number + 1,
                seconds=before.seconds + box.seconds,
            )
        else:
            done.append(before)
            last[key] = box
    done += last.values()
    yield from sorted(done, key=lambda box: _ORDER.get(box.kind, len(_ORDER)))


def _rect(box: _Box) -> str:
    y = 24 + box.row * _LANE
    width = max(box.right - box.left, 0.5)
    words = box.words
    if box.number > 1:
        words = f"{box.number} times {_MEANINGS[box.kind]}, {seconds_text(box.seconds)} in all"
    kind = box.kind if box.kind in _ORDER else "launch"
    text_element = ""
    if kind == "launch" and width > 7 * len(box.words):
        text_element = (
            f'<text x="{box.left + 4:.1f}" y="{y + 11:g}">{html.escape(box.words)}</text>'
        )
    return (
        f'<rect class="{kind}" x="{box.left:.2f}" y="{y:g}" width="{width:.2f}" '
        f'height="{_LANE - 4:g}"><title>{html.escape(words)}</title></rect>{text_element}'
    )


def _ticks(begin: int, end: int) -> Iterator[tuple[int, str]]:
    seconds = (end - begin) / 1e9
    step = next((s for s in _STEPS if seconds / s <= 10), 86400.0)
    if seconds < 5:
        step = next(
            (s / 1000 for s in (1, 2, 5, 10, 20, 50, 100, 200, 500) if seconds * 1000 / s <= 10), 1
        )
    count = int(seconds / step)
    for i in range(min(count, 400) + 1):
        yield begin + int(i * step * 1e9), f"{i * step:g} s"


def _tables(timeline: Timeline, times: Account) -> str:
    ranks = (
        (f"instance {rank}", *map(seconds_text, each))
        for rank, each in list(times.by_rank.items())[:1024]
    )
    kinds = (
        (
            *(kind.name, size_text(kind.size), kind.collectives),
            *(seconds_text(seconds / kind.calls) for seconds in (kind.waiting, kind.transfer)),
        )
        for kind in times.kinds
    )
    reports = (
        (
            i.annotations.get("folder", ""),
            ", ".join(
                f"{key.removeprefix('file ')} ({size_text(value)})"
                for key, value in i.annotations.items()
                if key.startswith("file ")
            ),
        )
        for i in timeline.instants
        if i.category == "report"
    )
    begin = min((s.begin for s in timeline.slices), default=0)
    events = [(i.at, i.name, i.annotations) for i in timeline.instants if i.category == "launch"]
    events += [(s.begin, s.name, s.annotations) for s in timeline.of("launch") if s.name == "move"]
    happened = (
        (f"{(time - begin) / 1e9:.3f} s", name, ", ".join(f"{k}: {v}" for k, v in notes.items()))
        for time, name, notes in sorted(events, key=lambda event: event[0])
    )
    return "".join(
        (
            _table("Instances", ("", "starting", "computing", "waiting", "transfer"), ranks),
            _table("Collectives", ("name", "size", "times", "waiting", "transfer"), kinds),
            _table("Marks", ("name", "times"), times.marks.items()),
            _table("Reports for PopVision", ("folder", "files"), reports),
            _table("What happened", ("at", "what", ""), happened),
        )
    )


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    if not lines:
        return ""
    head = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in heads)
    return f"<table><caption>{caption}</caption><tr>{head}</tr>{lines}</table>"
