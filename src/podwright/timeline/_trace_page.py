"""A timeline as a page that stands alone: drawn in SVG, without scripts and without network."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from podwright.timeline._account import Account, account, in_sentences, seconds_text, size_text
from podwright.timeline._read_back import Timeline, TrackSlice

_WIDTH, _LEFT, _LANE = 1200.0, 150.0, 18.0
#: Instances that are drawn; a browser slows down with more, and nobody reads them.
_LANES = 256
#: Pixels below which neighbours of one kind become one.
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
.grid { stroke: var(--faint); } .mark { stroke: #b3261e; stroke-width: 1.5; }
.launch { fill: var(--faint); stroke: var(--ink); stroke-width: .3; }
.start { fill: #c2a83e; } .slowest { fill: #b3261e; }
.instance { fill: #3f7fbf; } .join, .leave { fill: #c2a83e; } .collective { fill: #d9772b; }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .4em 0 1em; }
.k1 { background: #3f7fbf; } .k2 { background: #d9772b; } .k3 { background: #c2a83e; }
"""


class _Box(NamedTuple):
    kind: str
    left: float
    right: float
    row: int
    words: str
    number: int = 1
    seconds: float = 0.0


def trace_page(timeline: Timeline) -> str:
    """The page. Whatever comes from the launch is text in it."""
    found = account(timeline)
    launch = next(iter(timeline.of("launch")), None)
    told = launch.told if launch else {}
    title = html.escape(str(told.get("program", "a launch")))
    sentences = "".join(f"<p>{html.escape(line)}</p>" for line in in_sentences(found))
    cut = "" if timeline.whole else "<p>The end of the file is cut off.</p>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'\">"
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>{title}</h1>{sentences}{cut}"
        '<p><span class="key k1"></span>computing<span class="key k2"></span>talking'
        '<span class="key k3"></span>starting, joining, leaving</p>'
        f"{_drawing(timeline)}{_tables(timeline, found)}</main></body></html>\n"
    )


def _drawing(timeline: Timeline) -> str:
    begin = min((s.begin for s in timeline.slices), default=0)
    end = max([s.end for s in timeline.slices] + [begin + 1])
    scale = (_WIDTH - _LEFT - 10) / (end - begin)
    rows: list[str] = []
    out: list[str] = []

    def at(when: int) -> float:
        return _LEFT + (when - begin) * scale

    lanes = _lanes(timeline)
    for name, pieces, marks in lanes:
        row = len(rows)
        deepest = max((s.depth for s in pieces if s.category == "launch"), default=0)
        rows += [name, *[""] * deepest]
        boxes: list[_Box] = []
        for piece in _with_ends(pieces):
            below = piece.depth if piece.category == "launch" else 0
            words = f"{piece.name}, {seconds_text((piece.end - piece.begin) / 1e9)}"
            took = (piece.end - piece.begin) / 1e9
            box = _Box(piece.category, at(piece.begin), at(piece.end), row + below, words, 1, took)
            boxes.append(box)
        out += [_rect(box) for box in _merged(boxes)]
        last = -1.0
        for when, words in marks:
            x = at(when)
            if x - last >= 1:
                y = 24 + row * _LANE
                out.append(
                    f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + _LANE - 4}">'
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
        words = ", ".join([instant.name, *(f"{k}: {v}" for k, v in instant.told.items())])
        marks.setdefault(instant.track, []).append((instant.at, words[:500]))
    found: list[_Lane] = []

    def place(track: int) -> tuple[int, int, int]:
        name, parent = timeline.tracks.get(track, ("", 0))
        number = name.rpartition(" ")[2]
        return parent, int(number) if number.isdecimal() else 0, track

    for track in sorted(by_track, key=place):
        name, parent = timeline.tracks.get(track, (str(track), 0))
        where = timeline.tracks.get(parent, ("", 0))[0].removeprefix("host ")
        label = f"{name} ({where})" if where else name
        found.append((label[:26], by_track[track], marks.get(track, [])))
    if len(found) > _LANES:
        rest = len(found) - _LANES
        found = [*found[:_LANES], (f"and {rest} more", [], [])]
    return found


def _with_ends(pieces: Sequence[TrackSlice]) -> Iterator[TrackSlice]:
    """Joining lasts from an instance's beginning, and leaving until its end."""
    instance: TrackSlice | None = None
    for piece in pieces:
        if piece.category == "instance":
            instance = piece
        elif instance and piece.category == "join":
            piece = piece._replace(begin=instance.begin)
        elif instance and piece.category == "leave":
            piece = piece._replace(end=instance.end)
        yield piece


def _merged(boxes: Sequence[_Box]) -> Iterator[_Box]:
    """Neighbours of one kind that a screen could not tell apart become one."""
    last: dict[tuple[str, int], _Box] = {}
    done: list[_Box] = []
    for box in boxes:
        key = box.kind, box.row
        before = last.get(key)
        if before is None:
            last[key] = box
        elif box.kind in ("collective", "slowest") and box.left - before.right < _CLOSE:
            last[key] = before._replace(
                right=max(before.right, box.right),
                number=before.number + 1,
                seconds=before.seconds + box.seconds,
            )
        else:
            done.append(before)
            last[key] = box
    order = ("launch", "start", "instance", "join", "leave", "collective", "slowest")
    done += last.values()
    yield from sorted(done, key=lambda b: order.index(b.kind) if b.kind in order else 9)


def _rect(box: _Box) -> str:
    y = 24 + box.row * _LANE
    width = max(box.right - box.left, 0.5)
    words = box.words
    if box.number > 1:
        words = f"{box.number} of {box.kind}, {seconds_text(box.seconds)} in all"
    kind = box.kind if box.kind.isalpha() else "launch"
    inside = ""
    if kind == "launch" and width > 7 * len(box.words):
        inside = f'<text x="{box.left + 4:.1f}" y="{y + 11:g}">{html.escape(box.words)}</text>'
    return (
        f'<rect class="{kind}" x="{box.left:.2f}" y="{y:g}" width="{width:.2f}" '
        f'height="{_LANE - 4:g}"><title>{html.escape(words)}</title></rect>{inside}'
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


def _tables(timeline: Timeline, found: Account) -> str:
    ranks = (
        (f"instance {rank}", *(seconds_text(s) for s in parts))
        for rank, parts in list(found.by_rank.items())[:1024]
    )
    kinds = (
        (k.name, size_text(k.size), k.calls, seconds_text(k.seconds / k.calls)) for k in found.kinds
    )
    reports = (
        (
            i.told.get("folder", ""),
            ", ".join(
                f"{key.removeprefix('file ')} ({size_text(value)})"
                for key, value in i.told.items()
                if key.startswith("file ")
            ),
        )
        for i in timeline.instants
        if i.category == "report"
    )
    begin = min((s.begin for s in timeline.slices), default=0)
    marked = [(i.at, i.name, i.told) for i in timeline.instants if i.category == "launch"]
    marked += [(s.begin, s.name, s.told) for s in timeline.of("launch") if s.name == "move"]
    happened = (
        (f"{(at - begin) / 1e9:.3f} s", name, ", ".join(f"{k}: {v}" for k, v in told.items()))
        for at, name, told in sorted(marked, key=lambda one: one[0])
    )
    return "".join(
        (
            _table("Instances", ("", "starting", "computing", "talking"), ranks),
            _table("Collectives", ("name", "size", "calls", "each"), kinds),
            _table("Marks", ("name", "times"), found.marks.items()),
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
