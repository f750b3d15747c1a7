"""`gc-monitor`: the users of each device.

The name and the title line are V-IPU's (PopRun guide 2.10.2). Its columns are not documented, so
ours are our choice: user, host, process and program, according to the lease on the device.
"""

from __future__ import annotations

from collections.abc import Sequence

from podwright.cli.devices import _gc_common
from podwright.cli.shared._arguments import Parser
from podwright.cli.shared._server_options import Connect, run_with_server
from podwright.ground import option_rows as opt

_EXAMPLES = """\
examples:
  gc-monitor
  gc-monitor --all-partitions --json
  gc-monitor --live              the whole pod, as podwright top shows it"""


class _MonitorOptions(_gc_common.GcOptions):
    no_card_info = opt.flag("leave out devices that nobody uses")
    live = opt.flag("open podwright top", rivals="partition")


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
    if arguments.live:
        return _open_top(arguments, connect)
    from podwright.cli.shared import _json
    from podwright.client import devices

    server = connect(arguments)
    with server.client:
        uses = _gc_common.device_uses(arguments, server)
        if arguments.no_card_info:
            uses = devices.only_used(uses)
        if arguments.json:
            print(_json.text(devices.monitor_json(uses)))
        else:
            print(devices.monitor(uses) or _gc_common.none_there(arguments, server))
    return 0


def _open_top(arguments: _MonitorOptions, connect: Connect) -> int:
    from podwright.cli.launch import _top
    from podwright.errors import InvalidRequest

    if arguments.json:
        raise InvalidRequest(
            "a screen is no JSON",
            operation="gc-monitor --live --json",
            would_work="gc-monitor --json, as often as you want to look",
        )
    return _top.show(arguments, connect)


if __name__ == "__main__":
    raise SystemExit(main())
