"""`gc-monitor`: the users of each device, once or live.

The name and the title line are V-IPU's (PopRun guide 2.10.2). Its columns are not documented, so
ours are our choice: user, host, process and program, according to the lease on the device.
"""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, NoReturn

from podwright import option_rows as opt
from podwright.cli.devices import _gc_common
from podwright.cli.shared._arguments import Parser
from podwright.cli.shared._server_options import Connect, run_with_server
from podwright.option_rows import seconds

if TYPE_CHECKING:
    from podwright.client import FoundServer

_EXAMPLES = """\
examples:
  gc-monitor
  gc-monitor --all-partitions --json
  gc-monitor --live --interval 1

--live goes on until Ctrl-C; with --json it prints a line each time."""

#: Terminal codes: to another screen and back to the former one; the cursor hidden, and shown.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class _MonitorOptions(_gc_common.GcOptions):
    no_card_info = opt.flag("leave out devices that nobody uses")
    live = opt.flag("again and again, until Ctrl-C")
    interval = opt.value("seconds between two looks, 2; implies --live", "S", seconds, None)


def build_parser() -> Parser:
    """Return the parser of the whole command."""
    return _gc_common.parser(
        "gc-monitor", "Show who uses which device.", _EXAMPLES, _MonitorOptions
    )


def main(argv: Sequence[str] | None = None, connect: Connect = _gc_common.reach) -> int:
    """Run the command, and return the exit code. connect: returns the server."""
    return run_with_server(lambda: _main(argv, connect), "gc-monitor")


def _main(argv: Sequence[str] | None, connect: Connect) -> int:
    arguments = _MonitorOptions(build_parser().parse_args(argv))
    server = connect(arguments)
    with server.client:
        if not _is_live(arguments):
            print(_once(arguments, server))
            return 0
        paints = sys.stdout.isatty() and not arguments.json
        with _screen() if paints else nullcontext():
            while True:
                text = _watch_devices(arguments, server)
                if paints:
                    _repaint(text)
                else:
                    print(text, flush=True)
                time.sleep(arguments.interval or 2.0)


def _once(arguments: _MonitorOptions, server: FoundServer) -> str:
    from podwright.cli.shared import _json
    from podwright.client import devices

    uses = _gc_common.device_uses(arguments, server)
    if arguments.no_card_info:
        uses = devices.only_used(uses)
    if arguments.json:
        data = devices.monitor_json(uses)
        return _json.line(data) if _is_live(arguments) else _json.text(data)
    return devices.monitor(uses) or _gc_common.none_there(arguments, server)


def _is_live(arguments: _MonitorOptions) -> bool:
    return arguments.live or arguments.interval is not None


def _watch_devices(arguments: _MonitorOptions, server: FoundServer) -> str:
    """Return the text to show. A server that is away for a while does not end the command."""
    from podwright.errors import NotFound, TimedOut, Unavailable

    try:
        text = _once(arguments, server)
    except (NotFound, TimedOut, Unavailable) as error:
        if arguments.json:
            from podwright.cli.shared import _json

            return _json.line({"code": error.code, "message": error.message})
        text = f"gc-monitor: {error.message}"
    if arguments.json:
        return text
    return f"{time.strftime('%H:%M:%S')}  {server.address}\n\n{text}\n"


@contextmanager
def _screen() -> Iterator[None]:
    """Use a screen of our own, and restore the terminal whatever ends the command."""

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
    """Print the text over the former one, cut to the window. Nothing is cleared first, to avoid
    flicker.
    """
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
