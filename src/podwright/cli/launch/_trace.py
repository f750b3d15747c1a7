"""`podwright trace`: how a launch spent its time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from podwright.cli.shared import _option_table as opt
from podwright.cli.shared._verb import Verb

if TYPE_CHECKING:
    from podwright.timeline import Account, Timeline

_EXAMPLES = """\
examples:
  poprun --trace run.trace --num-instances 4 --num-replicas 4 python3 train.py
  podwright trace run.trace
  podwright trace run.trace --html run.html   a page that stands alone
  podwright trace 4711                        the newest trace of Slurm job 4711, or of a partition

ui.perfetto.dev opens the file itself."""


class TraceOptions(opt.OptionTable):
    """The options of `trace`."""

    job = opt.argument("the file; or a partition, a Slurm job or a run, by its name", "JOB")
    html = opt.optional("write one self-contained page", "FILE")
    json = opt.JSON


def _run(arguments: TraceOptions) -> int:
    """Print the account of a launch. Raises wire.PodwrightError."""
    from podwright.errors import NotFound
    from podwright.timeline import account, find_trace, read_timeline

    path = arguments.job
    if not os.path.exists(path):
        path = find_trace(os.environ, arguments.job)
        if not path:
            raise NotFound(
                f"there is no file {arguments.job}, and no launch of that name was traced here",
                operation="podwright trace",
                would_work="start it with: poprun --trace FILE …",
            )
    timeline = read_timeline(path)
    if arguments.html:
        _write(arguments.html, timeline)
    times = account(timeline)
    if arguments.json:
        from podwright.cli.shared._json import text

        print(text(_values(path, timeline, times)))
    else:
        print(_words(path, timeline, times))
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


def _words(path: str, timeline: Timeline, times: Account) -> str:
    from podwright.cli.shared._tables import card, printable, table
    from podwright.timeline import in_sentences, seconds_text, size_text

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


def _values(path: str, timeline: Timeline, times: Account) -> dict[str, Any]:
    from podwright.timeline import in_sentences

    launch = next(iter(timeline.of("launch")), None)
    begin = launch.begin if launch else 0
    account = times._asdict()
    account["kinds"] = [kind._asdict() for kind in times.kinds]
    account["slowest"] = times.slowest._asdict() if times.slowest else None
    account["by_rank"] = {str(rank): each._asdict() for rank, each in times.by_rank.items()}

    def seconds(at: int) -> float:
        return (at - begin) / 1e9

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


VERBS = (
    Verb(
        "trace",
        TraceOptions,
        _run,
        help="show where the time of a launch went",
        description="Say where the time of a launch went that poprun --trace has written down.",
        epilog=_EXAMPLES,
    ),
)
