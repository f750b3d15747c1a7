"""`podwright top`: the pod in a terminal, live."""

from __future__ import annotations

import sys

from podwright.cli.shared._print_result import needing
from podwright.cli.shared._server_options import Connect, ServerNames, connect
from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt
from podwright.ground.option_rows import seconds

_EXAMPLES = """\
examples:
  podwright top                  of this machine's server, or one of your own
  ssh head1 -t podwright top     of another machine's

keys: 1 to 4 tables   / filter   s sort   x explain   d drain   r resume   q quit
It needs podwright[top]."""


class _TopOptions(ServerNames):
    interval = opt.value("seconds between two looks, 1", "S", seconds, 1.0)


def _run(arguments: _TopOptions) -> int:
    return show(arguments, connect, arguments.interval)


def show(arguments: ServerNames, connect: Connect, interval_s: float = 1.0) -> int:
    """Show the pod until the user quits. Raises wire.PodwrightError."""
    from podwright.errors import InvalidRequest

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidRequest(
            "this is not a terminal",
            operation="podwright top",
            would_work="gc-monitor --json, or vipu list partitions --json, for programs",
        )
    with needing("top", "podwright top"):
        from podwright.top import Feed, TopApp
    server = connect(arguments)
    with server.client:
        feed = Feed(server.client)
        pretend = "   SIMULATED" if server.info.simulated else ""
        TopApp(feed, f"podwright top   {server.address}{pretend}", interval_s).run()
    return 0


VERBS = (
    Verb(
        "top",
        _TopOptions,
        _run,
        help="show the pod in a terminal, live",
        description="Show devices, partitions, the queue, machines and events, live.",
        epilog=_EXAMPLES,
    ),
)
