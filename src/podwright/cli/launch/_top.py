"""`podwright top`: the pod in a terminal, live."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from podwright.cli.shared._arguments import seconds
from podwright.cli.shared._server import connect, server_options

_EXAMPLES = """\
examples:
  podwright top                  of this machine's server, or one of your own
  ssh head1 -t podwright top     of another machine's

keys: 1 to 4 tables   / filter   s sort   x explain   d drain   r resume   q quit
It needs podwright[top]."""


def add_parser(verbs: Any, _words: Sequence[str] = ()) -> None:
    """Add the verb and its options."""
    words = verbs.add_parser(
        "top",
        help="show the pod in a terminal, live",
        description="Show devices, partitions, the queue, machines and events, live.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[server_options()],
    )
    words.add_argument(
        "--interval", type=seconds, metavar="S", default=1.0, help="seconds between two looks, 1"
    )


def main(arguments: argparse.Namespace) -> int:
    """Show the pod until the user quits. Raises wire.PodwrightError."""
    from podwright.errors import InvalidRequest, Unavailable

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidRequest(
            "this is no terminal",
            operation="podwright top",
            would_work="gc-monitor --live, or vipu list partitions --json, for programs",
        )
    try:
        from podwright.top import Feed, TopApp
    except ImportError as error:
        raise Unavailable(
            f"{error.name} is not installed",
            operation="podwright top",
            would_work="pip install 'podwright[top]'",
        ) from None
    server = connect(arguments)
    with server.client:
        feed = Feed(server.client)
        pretend = "   SIMULATED" if server.info.simulated else ""
        TopApp(feed, f"podwright top   {server.address}{pretend}", arguments.interval).run()
    return 0
