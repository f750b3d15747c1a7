"""`podwright trace`: how a launch spent its time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt

if TYPE_CHECKING:
    from podwright.timeline import Timeline

_EXAMPLES = """\
examples:
  poprun --trace run.trace --num-instances 4 --num-replicas 4 python3 train.py
  podwright trace run.trace
  podwright trace run.trace --html run.html   a page that stands alone
  podwright trace 4711                        the newest trace of Slurm job 4711, or of a partition

ui.perfetto.dev opens the file itself."""


class _TraceOptions(opt.OptionTable):
    job = opt.argument("the file; or a partition, a Slurm job or a run, by its name", "JOB")
    html = opt.optional("write one self-contained page", "FILE")
    json = opt.JSON


def _run(arguments: _TraceOptions) -> int:
    """Print the account of a launch. Raises wire.PodwrightError."""
    from podwright.errors import NotFound
    from podwright.timeline import (
        account,
        find_trace,
        read_timeline,
        trace_text,
        trace_values,
    )

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

        print(text(trace_values(path, timeline, times)))
    else:
        print(trace_text(path, timeline, times))
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


VERBS = (
    Verb(
        "trace",
        _TraceOptions,
        _run,
        help="show where the time of a launch went",
        description="Say where the time of a launch went that poprun --trace has written down.",
        epilog=_EXAMPLES,
    ),
)
