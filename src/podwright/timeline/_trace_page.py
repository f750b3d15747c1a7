"""The timeline as a self-contained page: drawn in SVG, without scripts and without network.

A collective is drawn as two boxes: waiting, until its last member has entered it, and transfer. The
colours and the legend come from one table, _KIND_COLOURS.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from podwright.timeline._collective_times import Arrivals, arrivals, split_time
from podwright.timeline._read_back import Timeline, TrackSlice
from podwright.timeline._time_account import (
    Account,
    account,
    in_sentences,
    instance_times_texts,
    seconds_text,
    size_text,
)

_WIDTH, _LABEL_WIDTH_PX, _LANE_HEIGHT = 1200.0, 150.0, 18.0
#: The limit of drawn instances. A browser slows down with more, and nobody reads them.
_MOST_LANES = 256
#: The distance in pixels below which neighbours of one kind are merged.
_MERGE_GAP_PX = 0.4
_TICK_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)

_PAGE_CSS = """
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
_KIND_COLOURS = (
    _Colour("launch", "var(--faint)", "phases of the launch"),
    _Colour("start", "#8c6d1f", "starting all instances"),
    _Colour("instance", "#3f7fbf", "in the program"),
    _Colour("join", "#c2a83e", "starting an instance, until it has joined the others"),
    _Colour("leave", "#9a9a9a", "leaving the others"),
    _Colour("waiting", "#a58bd0", "waiting for other instances in a collective"),
    _Colour("collective", "#d9772b", "transfer of a collective"),
    _Colour("slowest", "#b3261e", "waiting of all instances for the last one"),
)
_PAGE_CSS += "".join(f".{colour.kind} {{ fill: {colour.fill}; }}\n" for colour in _KIND_COLOURS)
_MEANING_OF_KIND = {colour.kind: colour.meaning for colour in _KIND_COLOURS}
_DRAWING_ORDER_BY_KIND = {colour.kind: number for number, colour in enumerate(_KIND_COLOURS)}
#: The kinds of which there may be a million boxes.
_MERGED_KINDS = ("waiting", "collective", "slowest")


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
    launch_account = account(timeline)
    launch_slice = next(iter(timeline.of("launch")), None)
    annotations = launch_slice.annotations if launch_slice else {}
    title = html.escape(str(annotations.get("program", "a launch")))
    sentences = "".join(
        f"<p>{html.escape(sentence)}</p>" for sentence in in_sentences(launch_account)
    )
    cut_notice = "" if timeline.whole else "<p>The end of the file is cut off.</p>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'\">"
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_PAGE_CSS}</style></head><body><main>"
        f"<h1>{title}</h1>{sentences}{cut_notice}"
        f"{_legend()}{_svg_drawing(timeline)}{_account_tables(timeline, launch_account)}"
        "</main></body></html>\n"
    )


def _legend() -> str:
    """Return the legend: each colour, and the lines of marks."""
    boxes = [
        (f'<rect class="{colour.kind}" width="14" height="14"/>', colour.meaning)
        for colour in _KIND_COLOURS
    ]
    mark_shape = '<line class="mark" x1="7" x2="7" y1="0" y2="14"/>'
    entries = [*boxes, (mark_shape, "a mark: something that happened at one time")]
    items = "".join(
        f'<li><svg viewBox="0 0 14 14" aria-hidden="true">{svg_shape}</svg>'
        f"{html.escape(meaning)}</li>"
        for svg_shape, meaning in entries
    )
    return f'<ul class="legend">{items}</ul>'


def _svg_drawing(timeline: Timeline) -> str:
    begin_ns = min((track_slice.begin for track_slice in timeline.slices), default=0)
    end_ns = max([track_slice.end for track_slice in timeline.slices] + [begin_ns + 1])
    pixels_per_ns = (_WIDTH - _LABEL_WIDTH_PX - 10) / (end_ns - begin_ns)
    row_labels: list[str] = []
    svg_parts: list[str] = []

    def at(time_ns: int) -> float:
        return _LABEL_WIDTH_PX + (time_ns - begin_ns) * pixels_per_ns

    arrivals_by_flow = arrivals(timeline)
    lanes = _lanes(timeline)
    for lane_label, lane_slices, lane_marks in lanes:
        row_index = len(row_labels)
        deepest_level = max(
            (track_slice.depth for track_slice in lane_slices if track_slice.category == "launch"),
            default=0,
        )
        row_labels += [lane_label, *[""] * deepest_level]
        boxes: list[_Box] = []
        for drawn_slice in _slices_as_drawn(lane_slices, arrivals_by_flow):
            depth_offset = drawn_slice.depth if drawn_slice.category == "launch" else 0
            duration_seconds = (drawn_slice.end - drawn_slice.begin) / 1e9
            label_text = f"{drawn_slice.name}, {seconds_text(duration_seconds)}"
            box = _Box(
                drawn_slice.category,
                at(drawn_slice.begin),
                at(drawn_slice.end),
                row_index + depth_offset,
                label_text,
                1,
                duration_seconds,
            )
            boxes.append(box)
        svg_parts += [_box_element(box) for box in _merge_close_boxes(boxes)]
        last_x = -1.0
        for time_ns, label_text in lane_marks:
            mark_x = at(time_ns)
            if mark_x - last_x >= 1:
                # Marks are short lines, because a program that marks each step would hide
                # everything below.
                mark_y = 24 + row_index * _LANE_HEIGHT
                svg_parts.append(
                    f'<line class="mark" x1="{mark_x:.1f}" x2="{mark_x:.1f}" '
                    f'y1="{mark_y - 3}" y2="{mark_y + 4}">'
                    f"<title>{html.escape(label_text)}</title></line>"
                )
                last_x = mark_x
    svg_height = 30 + len(row_labels) * _LANE_HEIGHT
    label_elements = "".join(
        f'<text x="4" y="{36 + number * _LANE_HEIGHT}">{html.escape(label)}</text>'
        for number, label in enumerate(row_labels)
        if label
    )
    grid_lines = "".join(
        f'<line class="grid" x1="{at(time_ns):.1f}" x2="{at(time_ns):.1f}" '
        f'y1="18" y2="{svg_height}"/>'
        f'<text x="{at(time_ns) + 2:.1f}" y="14">{html.escape(label_text)}</text>'
        for time_ns, label_text in _axis_ticks(begin_ns, end_ns)
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} {svg_height:g}" role="img" '
        f'aria-label="The launch from its beginning to its end; the tables below say the same">'
        f"{grid_lines}{label_elements}{''.join(svg_parts)}</svg>"
    )


_Lane = tuple[str, list[TrackSlice], list[tuple[int, str]]]


def _lanes(timeline: Timeline) -> list[_Lane]:
    slices_by_track: dict[int, list[TrackSlice]] = {}
    for track_slice in timeline.slices:
        slices_by_track.setdefault(track_slice.track, []).append(track_slice)
    marks_by_track: dict[int, list[tuple[int, str]]] = {}
    for instant in timeline.instants:
        mark_text = ", ".join(
            [
                instant.name,
                *(
                    f"{annotation_name}: {annotation_value}"
                    for annotation_name, annotation_value in instant.annotations.items()
                ),
            ]
        )
        marks_by_track.setdefault(instant.track, []).append((instant.at, mark_text[:500]))
    lanes: list[_Lane] = []

    def place(track_uuid: int) -> tuple[int, int, int]:
        track_name, parent_uuid = timeline.tracks.get(track_uuid, ("", 0))
        number = track_name.rpartition(" ")[2]
        return parent_uuid, int(number) if number.isdecimal() else 0, track_uuid

    for track_uuid in sorted(slices_by_track, key=place):
        track_name, parent_uuid = timeline.tracks.get(track_uuid, (str(track_uuid), 0))
        host_name = timeline.tracks.get(parent_uuid, ("", 0))[0].removeprefix("host ")
        lane_label = f"{track_name} ({host_name})" if host_name else track_name
        lanes.append(
            (lane_label[:26], slices_by_track[track_uuid], marks_by_track.get(track_uuid, []))
        )
    if len(lanes) > _MOST_LANES:
        omitted_lanes = len(lanes) - _MOST_LANES
        lanes = [*lanes[:_MOST_LANES], (f"and {omitted_lanes} more", [], [])]
    return lanes


def _slices_as_drawn(
    lane_slices: Sequence[TrackSlice], arrivals_by_flow: dict[int, Arrivals]
) -> Iterator[TrackSlice]:
    """Yield the slices in the shape in which they are drawn.

    Joining lasts from an instance's beginning, and leaving until its end. A collective is split
    into its waiting and its transfer. A part that took no time is left out.
    """
    instance_slice: TrackSlice | None = None
    for drawn_slice in lane_slices:
        if drawn_slice.category == "instance":
            instance_slice = drawn_slice
        elif instance_slice and drawn_slice.category == "join":
            drawn_slice = drawn_slice._replace(begin=instance_slice.begin)
        elif instance_slice and drawn_slice.category == "leave":
            drawn_slice = drawn_slice._replace(end=instance_slice.end)
        elif drawn_slice.category == "collective":
            last_arrival = drawn_slice.begin + split_time(drawn_slice, arrivals_by_flow).waiting
            if last_arrival > drawn_slice.begin:
                waiting_name = f"{drawn_slice.name}: waiting for other instances"
                yield drawn_slice._replace(category="waiting", name=waiting_name, end=last_arrival)
            drawn_slice = drawn_slice._replace(begin=last_arrival)
            if last_arrival == drawn_slice.end:
                continue
        yield drawn_slice


def _merge_close_boxes(boxes: Sequence[_Box]) -> Iterator[_Box]:
    """Merge neighbours of one kind that a screen could not show apart."""
    last_boxes: dict[tuple[str, int], _Box] = {}
    finished_boxes: list[_Box] = []
    for box in boxes:
        kind_and_row = box.kind, box.row
        previous_box = last_boxes.get(kind_and_row)
        if previous_box is None:
            last_boxes[kind_and_row] = box
        elif box.kind in _MERGED_KINDS and box.left - previous_box.right < _MERGE_GAP_PX:
            last_boxes[kind_and_row] = previous_box._replace(
                right=max(previous_box.right, box.right),
                number=previous_box.number + 1,
                seconds=previous_box.seconds + box.seconds,
            )
        else:
            finished_boxes.append(previous_box)
            last_boxes[kind_and_row] = box
    finished_boxes += last_boxes.values()
    yield from sorted(
        finished_boxes,
        key=lambda box: _DRAWING_ORDER_BY_KIND.get(box.kind, len(_DRAWING_ORDER_BY_KIND)),
    )


def _box_element(box: _Box) -> str:
    box_y = 24 + box.row * _LANE_HEIGHT
    box_width = max(box.right - box.left, 0.5)
    tooltip = box.words
    if box.number > 1:
        tooltip = (
            f"{box.number} times {_MEANING_OF_KIND[box.kind]}, {seconds_text(box.seconds)} in all"
        )
    css_class = box.kind if box.kind in _DRAWING_ORDER_BY_KIND else "launch"
    text_element = ""
    if css_class == "launch" and box_width > 7 * len(box.words):
        text_element = (
            f'<text x="{box.left + 4:.1f}" y="{box_y + 11:g}">{html.escape(box.words)}</text>'
        )
    return (
        f'<rect class="{css_class}" x="{box.left:.2f}" y="{box_y:g}" width="{box_width:.2f}" '
        f'height="{_LANE_HEIGHT - 4:g}"><title>{html.escape(tooltip)}</title></rect>{text_element}'
    )


def _axis_ticks(begin_ns: int, end_ns: int) -> Iterator[tuple[int, str]]:
    span_seconds = (end_ns - begin_ns) / 1e9
    step_seconds = next(
        (candidate for candidate in _TICK_STEPS_S if span_seconds / candidate <= 10), 86400.0
    )
    if span_seconds < 5:
        step_seconds = next(
            (
                candidate / 1000
                for candidate in (1, 2, 5, 10, 20, 50, 100, 200, 500)
                if span_seconds * 1000 / candidate <= 10
            ),
            1,
        )
    tick_count = int(span_seconds / step_seconds)
    for index in range(min(tick_count, 400) + 1):
        yield begin_ns + int(index * step_seconds * 1e9), f"{index * step_seconds:g} s"


def _account_tables(timeline: Timeline, launch_account: Account) -> str:
    rank_rows = (
        (f"instance {rank}", *instance_times_texts(launch_account, times))
        for rank, times in list(launch_account.by_rank.items())[:1024]
    )
    kind_rows = (
        (
            *(kind.name, size_text(kind.size), kind.collectives),
            *(seconds_text(seconds / kind.calls) for seconds in (kind.waiting, kind.transfer)),
        )
        for kind in launch_account.kinds
    )
    report_rows = (
        (
            instant.annotations.get("folder", ""),
            ", ".join(
                f"{annotation_name.removeprefix('file ')} ({size_text(annotation_value)})"
                for annotation_name, annotation_value in instant.annotations.items()
                if annotation_name.startswith("file ")
            ),
        )
        for instant in timeline.instants
        if instant.category == "report"
    )
    begin_ns = min((track_slice.begin for track_slice in timeline.slices), default=0)
    launch_events = [
        (instant.at, instant.name, instant.annotations)
        for instant in timeline.instants
        if instant.category == "launch"
    ]
    launch_events += [
        (track_slice.begin, track_slice.name, track_slice.annotations)
        for track_slice in timeline.of("launch")
        if track_slice.name == "move"
    ]
    event_rows = (
        (
            f"{(event_time - begin_ns) / 1e9:.3f} s",
            event_name,
            ", ".join(f"{note_name}: {note_value}" for note_name, note_value in notes.items()),
        )
        for event_time, event_name, notes in sorted(
            launch_events, key=lambda launch_event: launch_event[0]
        )
    )
    return "".join(
        (
            _table_html(
                "Instances", ("", "starting", "in program", "waiting", "transfer"), rank_rows
            ),
            _table_html("Collectives", ("name", "size", "times", "waiting", "transfer"), kind_rows),
            _table_html("Marks", ("name", "times"), launch_account.marks.items()),
            _table_html("Reports for PopVision", ("folder", "files"), report_rows),
            _table_html("What happened", ("at", "what", ""), event_rows),
        )
    )


def _table_html(
    caption: str, column_titles: Sequence[str], table_rows: Iterable[Sequence[object]]
) -> str:
    rows_html = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in table_rows
    )
    if not rows_html:
        return ""
    head_html = "".join(f'<th scope="col">{html.escape(title)}</th>' for title in column_titles)
    return f"<table><caption>{caption}</caption><tr>{head_html}</tr>{rows_html}</table>"
