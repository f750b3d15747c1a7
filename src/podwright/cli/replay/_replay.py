"""`podwright replay`: the results of other ways of scheduling with a site's own jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from podwright.cli.shared._terminal import ProgressLine
from podwright.cli.shared._verb_definition import Verb
from podwright.ground.plural import counted
from podwright.replay.command._replay_options import ReplayOptions

if TYPE_CHECKING:
    from podwright.replay import Trace

_EXAMPLES = """\
a report of what you have:
  podwright replay --example
  podwright replay sacct.txt --pod pod64 --ways native,static:8x4+2x16
  podwright replay trace.csv --pod pod256 --policy best-fit,lowest,moves

to get sacct.txt from a Slurm site (as somebody who sees all jobs):
  podwright replay --fields"""


def _run(arguments: ReplayOptions) -> int:
    """Run the verb. Raises PodwrightError."""
    from podwright.errors import InvalidRequest
    from podwright.replay import SACCT_COMMAND, replay

    if arguments.fields:
        print(f"{SACCT_COMMAND} > sacct.txt")
        return 0
    if bool(arguments.trace) == arguments.example:
        raise InvalidRequest(
            "name a trace, or say --example",
            operation="replay jobs",
            would_work="podwright replay --example",
        )
    from podwright.replay.command import _replay_from_options as chosen

    ways, devices = chosen.chosen_ways(arguments)
    trace = chosen.chosen_trace(arguments, devices)
    if arguments.anonymise:
        return _anonymise(trace, arguments.anonymise)
    progress = _Progress()
    report = replay(
        chosen.at_load(trace, devices, arguments.load),
        ways,
        chosen.chosen_slurm_settings(arguments),
        chosen.chosen_chances(arguments),
        processes=arguments.processes,
        progress=progress.show,
    )
    progress.clear()
    if arguments.json:
        _print_json(report)
        return 0
    from podwright.replay.command._report_text import report_lines

    print(*report_lines(report), sep="\n")
    return 0


def _print_json(figures: object) -> None:
    import json

    print(json.dumps(figures, indent=2, allow_nan=False))


def _anonymise(trace: Trace, path: str) -> int:
    import io

    from podwright.replay import write_anonymous
    from podwright.replay.command._report_text import left_out

    text = io.StringIO()
    write_anonymous(trace, text)
    _write(path, text.getvalue())
    print(f"{path}: {counted(len(trace), 'job')}, without names or dates")
    for line in left_out(trace.skipped.figures()):
        print(line)
    return 0


def _write(path: str, text: str) -> None:
    from pathlib import Path

    from podwright.errors import InvalidRequest

    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(str(error.strerror), operation=f"write {path}") from None


class _Progress(ProgressLine):
    """The share of the jobs that are simulated, and the remaining time."""

    def __init__(self) -> None:
        super().__init__()
        self._began = self._shown = time.monotonic()

    def show(self, done: int, total: int) -> None:
        """Show how many of all jobs are simulated."""
        now = time.monotonic()
        if now - self._shown < 0.5 or not done:
            return
        self._shown = now
        left = (now - self._began) / done * (total - done)
        self.write(f"{done / total:4.0%} of {total} jobs, {left:.0f} s left \x1b[K")


VERBS = (
    Verb(
        "replay",
        ReplayOptions,
        _run,
        help="try other ways of scheduling on recorded jobs",
        description="Take the jobs that a site has had, and say what each way of scheduling would "
        "have done with them.",
        epilog=_EXAMPLES,
    ),
)
