"""`gc-info`: which devices a program sees, by the numbers that it attaches to.

`-l` and `--all-partitions` are what V-IPU's users type when a program cannot acquire devices
(PopRun guide 2.10.2); the rest of its options is our choice.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from podwright.cli import _gc
from podwright.cli._arguments import Parser, not_negative, run
from podwright.cli._server import said

if TYPE_CHECKING:
    from podwright.client import FoundServer

_EXAMPLES = """\
examples:
  gc-info -l
  gc-info -l --all-partitions
  gc-info -d 0 --device-info

A partition in error shows why, and no devices. Who uses a device: gc-monitor."""


def build_parser() -> Parser:
    """The parser of the whole command."""
    parser = _gc.parser("gc-info", "Show devices as programs see them.", _EXAMPLES)
    add = parser.add_argument
    add("-l", "--list-devices", action="store_true", help="list devices by number")
    add("-d", "--device-id", type=not_negative, metavar="N", help="the device of this number")
    add("-i", "--device-info", action="store_true", help="what is known of it")
    return parser


def main(
    argv: Sequence[str] | None = None,
    connect: Callable[[argparse.Namespace], FoundServer] = _gc.reach,
) -> int:
    """The command. connect: how it comes to its server. Returns the exit code."""
    return run(
        lambda: _main(argv, connect), prog="gc-info", say=lambda error: said(error, "gc-info")
    )


def _main(argv: Sequence[str] | None, connect: Callable[[argparse.Namespace], FoundServer]) -> int:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.list_devices == (arguments.device_id is not None):
        parser.error("say -l, or -d N; see --help")
    if arguments.device_info and arguments.device_id is None:
        parser.error("--device-info needs -d N")
    from podwright.cli import _gc_show, _json
    from podwright.cli._arguments import complain
    from podwright.cli._tables import card

    found = connect(arguments)
    with found.client:
        shown = _gc.shown(arguments, found)
        if arguments.device_id is not None:
            from podwright.cli._device_users import device_of

            facts = _gc_show.described(*device_of(shown, arguments.device_id))
            print(_json.text(dict(facts)) if arguments.json else card(facts))
        elif arguments.json:
            print(_json.text(_gc_show.listing_json(shown)))
        elif shown:
            print(_gc_show.listing(shown))
        else:
            complain(_gc.none_there(arguments, found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
