"""`gc-monitor`: who uses which device, once or live.

The name and the title line are V-IPU's (PopRun guide 2.10.2); its columns are not documented, so
ours are our choice: user, host, process and program, as the lease on the device tells them.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, NoReturn

from podwright.cli import _gc
from podwright.cli._arguments import Parser, run, seconds
from podwright.cli._server import said

if TYPE_CHECKING:
    from podwright.client import FoundServer

_EXAMPLES = """\
examples:
  gc-monitor
  gc-monitor --all-partitions --json
  gc-monitor --live --interval 1

--live goes on until Ctrl-C; with --json it prints a line each time."""

#: Another screen, and back to what was there before; the cursor hidden, and shown.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def build_parser() -> Parser:
    """The parser of the whole command."""
    parser = _gc.parser("gc-monitor", "Show who uses which device.", _EXAMPLES)
    parser.add_argument("--live", action="store_true", help="again and again, until Ctrl-C")
    parser.add_argument(
        "--interval", type=seconds, metavar="S", help="seconds between two looks, 2; implies --live"
    )
    return parser


def main(
    argv: Sequence[str] | None = None,
    connect: Callable[[argparse.Namespace], FoundServer] = _gc.reach,
) -> int:
    """The command. connect: how it comes to its server. Returns the exit code."""
    return run(
        lambda: _main(argv, connect),
        prog="gc-monitor",
        say=lambda error: said(error, "gc-monitor"),
    )


def _main(argv: Sequence[str] | None, connect: Callable[[argparse.Namespace], FoundServer]) -> int:
    arguments = build_parser().parse_args(argv)
    found = connect(arguments)
    with found.client:
        if not _is_live(arguments):
            print(_once(arguments, found))
            return 0
        paints = sys.stdout.isatty() and not arguments.json
        with _screen() if paints else nullcontext():
            while True:
                text = _look(arguments, found)
                if paints:
                    _repaint(text)
                else:
                    print(text, flush=True)
                time.sleep(arguments.interval or 2.0)


def _once(arguments: argparse.Namespace, found: FoundServer) -> str:
    from podwright.cli import _gc_show, _json

    shown = _gc.shown(arguments, found)
    if arguments.json:
        data = _gc_show.monitor_json(shown)
        return _json.line(data) if _is_live(arguments) else _json.text(data)
    return _gc_show.monitor(shown) or _gc.none_there(arguments, found)


def _is_live(arguments: argparse.Namespace) -> bool:
    return arguments.live or arguments.interval is not None


def _look(arguments: argparse.Namespace, found: FoundServer) -> str:
    """What there is to see; a server that is away for a while ends nothing."""
    from podwright.errors import NotFound, TimedOut, Unavailable

    try:
        text = _once(arguments, found)
    except (NotFound, TimedOut, Unavailable) as error:
        if arguments.json:
            from podwright.cli import _json

            return _json.line({"code": error.code, "message": error.message})
        text = f"gc-monitor: {error.message}"
    if arguments.json:
        return text
    return f"{time.strftime('%H:%M:%S')}  {found.address}\n\n{text}\n"


@contextmanager
def _screen() -> Iterator[None]:
    """A screen of our own; whatever ends us, the terminal is as it was."""

    def end(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    sys.stdout.write(_ENTER)
    try:
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, before)


def _repaint(text: str) -> None:
    """The text over what was there, cut to the window; without flicker, so never cleared first."""
    width, height = shutil.get_terminal_size()
    lines = text.splitlines()
    if len(lines) >= height > 1:
        left = len(lines) - height + 1
        lines = [*lines[: height - 1], f"… {left} more lines; --partition NAME shows fewer"]
    painted = (f"{line[:width]}{_END_OF_LINE}" for line in lines)
    sys.stdout.write(_HOME + "\r\n".join(painted) + _BELOW)
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
