"""The account of a launch as text for people and as values for JSON. Pure."""

from __future__ import annotations

from typing import Any

from podwright.ground.tables import card, printable, table
from podwright.timeline._read_back import Timeline
from podwright.timeline._time_account import (
    Account,
    in_sentences,
    instance_times_texts,
    seconds_text,
    size_text,
)


def trace_text(trace_path: str, timeline: Timeline, launch_account: Account) -> str:
    """Return the account for people: a card, sentences and tables."""
    launch_slice = next(iter(timeline.of("launch")), None)
    annotations = launch_slice.annotations if launch_slice else {}
    card_pairs = [
        ("Program", annotations.get("program", "")),
        ("Instances", f"{annotations.get('instances', 0)} on {annotations.get('hosts', '')}"),
        ("Ended", _outcome_words(timeline, annotations)),
        ("File", trace_path),
    ]
    text_parts = [
        card(card_pairs),
        "\n".join(printable(sentence) for sentence in in_sentences(launch_account)),
    ]
    if launch_account.by_rank:
        instance_rows = [
            (rank, *instance_times_texts(launch_account, times))
            for rank, times in launch_account.by_rank.items()
        ]
        text_parts.append(
            table(("Instance", "Starting", "In program", "Waiting", "Transfer"), instance_rows)
        )
    if launch_account.kinds:
        kind_rows = [
            (
                *(kind.name, size_text(kind.size), kind.collectives),
                *(seconds_text(seconds / kind.calls) for seconds in (kind.waiting, kind.transfer)),
            )
            for kind in launch_account.kinds
        ]
        text_parts.append(table(("Collective", "Size", "Times", "Waiting", "Transfer"), kind_rows))
    if launch_account.marks:
        text_parts.append(table(("Mark", "Times"), launch_account.marks.items()))
    report_rows = [
        (annotations.get("folder", ""), name, size_text(file_bytes))
        for annotations in (
            instant.annotations for instant in timeline.instants if instant.category == "report"
        )
        for name, file_bytes in _profile_file_sizes(annotations) or [("nothing", 0)]
    ]
    if report_rows:
        text_parts.append(table(("Report", "File", "Size"), report_rows))
    if launch_account.starts > 1:
        restart_rows = [
            (instant.annotations.get("number"), instant.annotations.get("cause", ""))
            for instant in timeline.instants
            if instant.name == "restart"
        ]
        text_parts += [table(("Restart", "Because"), restart_rows)] if restart_rows else []
    if launch_account.moves:
        move_notes = [phase.annotations for phase in timeline.of("launch") if phase.name == "move"]
        move_rows = [
            (
                number,
                note.get("left", ""),
                note.get("now", note.get("problem", "")),
            )
            for number, note in enumerate(move_notes, 1)
        ]
        text_parts.append(table(("Move", "From", "To"), move_rows))
    return "\n\n".join(text_parts)


def _outcome_words(timeline: Timeline, launch_annotations: dict[str, Any]) -> str:
    if "code" in launch_annotations or "cause" in launch_annotations:
        parts = [f"with code {launch_annotations['code']}"] if "code" in launch_annotations else []
        return ", ".join(
            [
                *parts,
                *([str(launch_annotations["cause"])] if launch_annotations.get("cause") else []),
            ]
        )
    return "not in this file" if timeline.whole else "the file is cut off"


def _profile_file_sizes(annotations: dict[str, Any]) -> list[tuple[str, int]]:
    return [
        (name.removeprefix("file "), count)
        for name, count in annotations.items()
        if name.startswith("file ")
    ]


def trace_values(trace_path: str, timeline: Timeline, launch_account: Account) -> dict[str, Any]:
    """Return the account with all phases and instances. Times are seconds since the launch."""
    launch_slice = next(iter(timeline.of("launch")), None)
    begin_ns = launch_slice.begin if launch_slice else 0
    account_values = launch_account._asdict()
    account_values["kinds"] = [kind._asdict() for kind in launch_account.kinds]
    account_values["slowest"] = launch_account.slowest._asdict() if launch_account.slowest else None
    account_values["by_rank"] = {
        str(rank): times._asdict() for rank, times in launch_account.by_rank.items()
    }
    if not launch_account.knows_collectives:
        account_values |= {"waiting_for_instances": None, "transfer": None}
        for rank_values in account_values["by_rank"].values():
            rank_values |= {"waiting": None, "transfer": None}

    def seconds(time_ns: int) -> float:
        return (time_ns - begin_ns) / 1e9

    return {
        "file": trace_path,
        "whole": timeline.whole,
        "began": (begin_ns + timeline.realtime) / 1e9,
        "launch": launch_slice.annotations if launch_slice else {},
        "account": account_values,
        "sentences": in_sentences(launch_account),
        "phases": [
            {
                "name": track_slice.name,
                "depth": track_slice.depth,
                "begin": seconds(track_slice.begin),
                "end": seconds(track_slice.end),
            }
            for track_slice in timeline.of("launch")
        ],
        "instances": [
            {
                **track_slice.annotations,
                "begin": seconds(track_slice.begin),
                "end": seconds(track_slice.end),
                "ended": track_slice.done,
            }
            for track_slice in timeline.of("instance")
        ],
        "happened": [
            {"at": seconds(instant.at), "what": instant.name, **instant.annotations}
            for instant in timeline.instants
            if instant.category == "launch"
        ],
        "reports": [
            {
                "folder": instant.annotations.get("folder", ""),
                "files": dict(_profile_file_sizes(instant.annotations)),
            }
            for instant in timeline.instants
            if instant.category == "report"
        ],
    }
