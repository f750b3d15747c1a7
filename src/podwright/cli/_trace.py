"""`podwright trace`: where the time of a launch went."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podwright.timeline import Account, Timeline

_EXAMPLES = """\
examples:
  poprun --trace run.trace --num-instances 4 --num-replicas 4 python3 train.py
  podwright trace run.trace
  podwright trace run.trace --html run.html   a page that stands alone
  podwright trace 4711                        the newest trace of Slurm job 4711, or of a partition

ui.perfetto.dev opens the file itself."""


def add_parser(verbs: Any, _words: Sequence[str] = ()) -> None:
    """The verb and its options."""
    words = verbs.add_parser(
        "trace",
        help="say where the time of a launch went",
        description="Say where the time of a launch went that poprun --trace has written down.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words.add_argument(
        "job", metavar="JOB", help="the file; or a partition, a Slurm job or a run, by its name"
    )
    words.add_argument("--html", metavar="FILE", help="write one self-contained page")
    words.add_argument("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    """Print it. Raises wire.PodwrightError."""
    from podwright.errors import NotFound
    from podwright.timeline import account, find_trace, read_timeline

    path = arguments.job
    if not os.path.exists(path):
        path = find_trace(os.environ, arguments.job)
        if not path:
            raise NotFound(
                f"there is no file {arguments.job}, and no launch of that name was traced here",
                asked="podwright trace",
                would_work="start it with: poprun --trace FILE …",
            )
    timeline = read_timeline(path)
    if arguments.html:
        _write(arguments.html, timeline)
    found = account(timeline)
    if arguments.json:
        from podwright.cli._json import text

        print(text(_values(path, timeline, found)))
    else:
        print(_words(path, timeline, found))
        if arguments.html:
            print(f"\nthe page: {arguments.html}")
    return 0


def _write(path: str, timeline: Timeline) -> None:
    from podwright.errors import InvalidRequest
    from podwright.timeline import trace_page

    page = trace_page(timeline).encode()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(page)
    except OSError as error:
        raise InvalidRequest(f"--html: {path}: {error.strerror}") from None


def _words(path: str, timeline: Timeline, found: Account) -> str:
    from podwright.cli._tables import card, printable, table
    from podwright.timeline import in_sentences, seconds_text, size_text

    launch = next(iter(timeline.of("launch")), None)
    told = launch.told if launch else {}
    pairs = [
        ("Program", told.get("program", "")),
        ("Instances", f"{told.get('instances', 0)} on {told.get('hosts', '')}"),
        ("Ended", _ended(timeline, told)),
        ("File", path),
    ]
    parts = [card(pairs), "\n".join(printable(line) for line in in_sentences(found))]
    if found.by_rank:
        rows = [(rank, *map(seconds_text, parts)) for rank, parts in found.by_rank.items()]
        parts.append(table(("Instance", "Starting", "Computing", "Talking"), rows))
    if found.kinds:
        kinds = [
            (k.name, size_text(k.size), k.calls, seconds_text(k.seconds / k.calls))
            for k in found.kinds
        ]
        parts.append(table(("Collective", "Size", "Calls", "Each"), kinds))
    if found.marks:
        parts.append(table(("Mark", "Times"), found.marks.items()))
    reports = [
        (told.get("folder", ""), name, size_text(size))
        for told in (i.told for i in timeline.instants if i.category == "report")
        for name, size in _files(told) or [("nothing", 0)]
    ]
    if reports:
        parts.append(table(("Report", "File", "Size"), reports))
    if found.starts > 1:
        again = [
            (i.told.get("number"), i.told.get("cause", ""))
            for i in timeline.instants
            if i.name == "restart"
        ]
        parts += [table(("Restart", "Because"), again)] if again else []
    if found.moves:
        told_of = [s.told for s in timeline.of("launch") if s.name == "move"]
        moved = [
            (number, told.get("left", ""), told.get("now", told.get("problem", "")))
            for number, told in enumerate(told_of, 1)
        ]
        parts.append(table(("Move", "From", "To"), moved))
    return "\n\n".join(parts)


def _ended(timeline: Timeline, told: dict[str, Any]) -> str:
    if "code" in told or "cause" in told:
        words = [f"with code {told['code']}"] if "code" in told else []
        return ", ".join([*words, *([str(told["cause"])] if told.get("cause") else [])])
    return "not in this file" if timeline.whole else "the file is cut off"


def _files(told: dict[str, Any]) -> list[tuple[str, int]]:
    return [(k.removeprefix("file "), v) for k, v in told.items() if k.startswith("file ")]


def _values(path: str, timeline: Timeline, found: Account) -> dict[str, Any]:
    from podwright.timeline import in_sentences

    launch = next(iter(timeline.of("launch")), None)
    begin = launch.begin if launch else 0
    account = found._asdict()
    account["kinds"] = [kind._asdict() for kind in found.kinds]
    account["slowest"] = found.slowest._asdict() if found.slowest else None
    account["by_rank"] = {
        str(rank): dict(zip(("starting", "computing", "talking"), parts, strict=True))
        for rank, parts in found.by_rank.items()
    }

    def seconds(at: int) -> float:
        return (at - begin) / 1e9

    return {
        "file": path,
        "whole": timeline.whole,
        "began": (begin + timeline.realtime) / 1e9,
        "launch": launch.told if launch else {},
        "account": account,
        "sentences": in_sentences(found),
        "phases": [
            {"name": s.name, "depth": s.depth, "begin": seconds(s.begin), "end": seconds(s.end)}
            for s in timeline.of("launch")
        ],
        "instances": [
            {**s.told, "begin": seconds(s.begin), "end": seconds(s.end), "ended": s.done}
            for s in timeline.of("instance")
        ],
        "happened": [
            {"at": seconds(i.at), "what": i.name, **i.told}
            for i in timeline.instants
            if i.category == "launch"
        ],
        "reports": [
            {"folder": i.told.get("folder", ""), "files": dict(_files(i.told))}
            for i in timeline.instants
            if i.category == "report"
        ],
    }
