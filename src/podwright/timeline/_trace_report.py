"""The account of a launch as text for people and as values for JSON. Pure."""

from __future__ import annotations

from typing import Any

from podwright.tables import card, printable, table
from podwright.timeline._account import Account, in_sentences, seconds_text, size_text
from podwright.timeline._read_back import Timeline


def trace_text(path: str, timeline: Timeline, times: Account) -> str:
    """Return the account for people: a card, sentences and tables."""
    launch = next(iter(timeline.of("launch")), None)
    annotations = launch.annotations if launch else {}
    pairs = [
        ("Program", annotations.get("program", "")),
        ("Instances", f"{annotations.get('instances', 0)} on {annotations.get('hosts', '')}"),
        ("Ended", _outcome_words(timeline, annotations)),
        ("File", path),
    ]
    parts = [card(pairs), "\n".join(printable(line) for line in in_sentences(times))]
    if times.by_rank:
        rows = [(rank, *map(seconds_text, each)) for rank, each in times.by_rank.items()]
        parts.append(table(("Instance", "Starting", "Computing", "Waiting", "Transfer"), rows))
    if times.kinds:
        kinds = [
            (
                *(kind.name, size_text(kind.size), kind.collectives),
                *(seconds_text(s / kind.calls) for s in (kind.waiting, kind.transfer)),
            )
            for kind in times.kinds
        ]
        parts.append(table(("Collective", "Size", "Times", "Waiting", "Transfer"), kinds))
    if times.marks:
        parts.append(table(("Mark", "Times"), times.marks.items()))
    reports = [
        (annotations.get("folder", ""), name, size_text(size))
        for annotations in (i.annotations for i in timeline.instants if i.category == "report")
        for name, size in _files(annotations) or [("nothing", 0)]
    ]
    if reports:
        parts.append(table(("Report", "File", "Size"), reports))
    if times.starts > 1:
        restarts = [
            (i.annotations.get("number"), i.annotations.get("cause", ""))
            for i in timeline.instants
            if i.name == "restart"
        ]
        parts += [table(("Restart", "Because"), restarts)] if restarts else []
    if times.moves:
        notes = [piece.annotations for piece in timeline.of("launch") if piece.name == "move"]
        moves = [
            (number, note.get("left", ""), note.get("now", note.get("problem", "")))
            for number, note in enumerate(notes, 1)
        ]
        parts.append(table(("Move", "From", "To"), moves))
    return "\n\n".join(parts)


def _outcome_words(timeline: Timeline, launch: dict[str, Any]) -> str:
    if "code" in launch or "cause" in launch:
        words = [f"with code {launch['code']}"] if "code" in launch else []
        return ", ".join([*words, *([str(launch["cause"])] if launch.get("cause") else [])])
    return "not in this file" if timeline.whole else "the file is cut off"


def _files(annotations: dict[str, Any]) -> list[tuple[str, int]]:
    return [(k.removeprefix("file "), v) for k, v in annotations.items() if k.startswith("file ")]


def trace_values(path: str, timeline: Timeline, times: Account) -> dict[str, Any]:
    """Return the account with all phases and instances. Times are seconds since the launch."""
    launch = next(iter(timeline.of("launch")), None)
    begin = launch.begin if launch else 0
    account = times._asdict()
    account["kinds"] = [kind._asdict() for kind in times.kinds]
    account["slowest"] = times.slowest._asdict() if times.slowest else None
    account["by_rank"] = {str(rank): each._asdict() for rank, each in times.by_rank.items()}

    def seconds(time: int) -> float:
        return (time - begin) / 1e9

    return {
        "file": path,
        "whole": timeline.whole,
        "began": (begin + timeline.realtime) / 1e9,
        "launch": launch.annotations if launch else {},
        "account": account,
        "sentences": in_sentences(times),
        "phases": [
            {"name": s.name, "depth": s.depth, "begin": seconds(s.begin), "end": seconds(s.end)}
            for s in timeline.of("launch")
        ],
        "instances": [
            {**s.annotations, "begin": seconds(s.begin), "end": seconds(s.end), "ended": s.done}
            for s in timeline.of("instance")
        ],
        "happened": [
            {"at": seconds(i.at), "what": i.name, **i.annotations}
            for i in timeline.instants
            if i.category == "launch"
        ],
        "reports": [
            {"folder": i.annotations.get("folder", ""), "files": dict(_files(i.annotations))}
            for i in timeline.instants
            if i.category == "report"
        ],
    }
