"""`gc-info`: the devices that a program sees, by the numbers to which it attaches.

V-IPU's users type `-l` and `--all-partitions` when a program cannot acquire devices (PopRun guide
2.10.2). The other options are our choice.
"""

from __future__ import annotations

from collections.abc import Sequence

from podwright.cli.devices import _gc_common
from podwright.cli.shared._arguments import Parser
from podwright.cli.shared._server_options import Connect, run_with_server
from podwright.ground import option_rows as opt
from podwright.ground.option_rows import not_negative

_EXAMPLES = """\
examples:
  gc-info -l
  gc-info -l --all-partitions
  gc-info -d 0 --device-info

A partition in error shows why, and no devices. Who uses a device: gc-monitor."""


class _InfoOptions(_gc_common.GcOptions):
    list_devices = opt.flag("list devices by number", name="-l --list-devices")
    device_id = opt.value(
        "the device of this number", "N", not_negative, None, name="-d --device-id"
    )
    device_info = opt.flag("what is known of it", name="-i --device-info")
    tile_overview = opt.flag("not for this hardware: a server knows no tiles")


def build_parser() -> Parser:
    """Return the parser of the whole command."""
    return _gc_common.parser(
        "gc-info", "Show devices as programs see them.", _EXAMPLES, _InfoOptions
    )


def main(argv: Sequence[str] | None = None, connect: Connect = _gc_common.reach) -> int:
    """Run the command, and return the exit code. connect: returns the server."""
    return run_with_server(lambda: _main(argv, connect), "gc-info")


def _main(argv: Sequence[str] | None, connect: Connect) -> int:
    parser = build_parser()
    arguments = _InfoOptions(parser.parse_args(argv))
    if arguments.tile_overview:
        parser.error(
            "--tile-overview is not for this hardware: a server knows devices, and not their "
            "tiles; -d N --device-info shows what it knows"
        )
    if arguments.list_devices == (arguments.device_id is not None):
        parser.error("name a device with -d N, or list all with -l")
    if arguments.device_info and arguments.device_id is None:
        parser.error("--device-info needs -d N")
    from podwright.cli.shared import _json
    from podwright.cli.shared._arguments import complain
    from podwright.client import devices
    from podwright.ground.tables import card

    server = connect(arguments)
    with server.client:
        uses = _gc_common.device_uses(arguments, server)
        if arguments.device_id is not None:
            facts = devices.described(*devices.device_of(uses, arguments.device_id))
            print(_json.text(dict(facts)) if arguments.json else card(facts))
        elif arguments.json:
            print(_json.text(devices.listing_json(uses)))
        elif uses:
            print(devices.listing(uses))
        else:
            complain(_gc_common.none_there(arguments, server))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
