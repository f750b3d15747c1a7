"""`vipu-server`: serves partitions of a pod. It parses, prints what it serves, and serves.

It is named like V-IPU's controller. Its options beyond --api-host and --api-port are our choice,
since the controller's are not public.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from podwright._version import __version__
from podwright.cli.shared._arguments import Parser, complain, run
from podwright.server.command._server_arguments import ServerArguments

if TYPE_CHECKING:
    from podwright.server import ServedHardware, Server

_EXAMPLES = """\
examples:
  vipu-server                        what its store holds, else what vipu-admin defines
  vipu-server --preset pod64         a simulated POD64
  vipu-server --cluster-file pod.toml --storage pod.db
  vipu-server --api-host 10.0.0.1 --listen-anywhere

A restart serves what its store holds, and leaves running programs untouched.
SIGTERM and Ctrl-C end it; calls under way are finished first."""


def build_parser() -> Parser:
    """Return the command's parser."""
    parser = Parser(prog="vipu-server", description="Serve partitions of a pod.", epilog=_EXAMPLES)
    ServerArguments.add_to(parser)
    parser.add_argument(
        "--version", action="version", version=f"vipu-server (Podwright) {__version__}"
    )
    return parser


def parse(argv: Sequence[str] | None = None, parser: Parser | None = None) -> ServerArguments:
    """Return the parsed arguments. Typed options override those of a configuration file."""
    parser = parser or build_parser()
    arguments = ServerArguments(parser.parse_args(argv))
    if not arguments.config_file:
        return arguments
    from podwright.cli.serve._options_file import words

    typed = sys.argv[1:] if argv is None else argv
    settings = words(parser, arguments.config_file)
    return ServerArguments(parser.parse_args([*settings, *typed]))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    return run(lambda: _main(argv), prog="vipu-server")


def _main(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    arguments = parse(argv, parser)
    if arguments.dry_run and not arguments.restore:
        parser.error("--dry-run is for --restore")
    if arguments.check or arguments.repair or arguments.backup or arguments.restore:
        return _work_on_store(arguments)
    if arguments.user and os.getsid(0) != os.getpid():
        if os.fork():
            return 0
        os.setsid()
        _detach()
    import asyncio
    import logging

    import uvloop

    from podwright.errors import PodwrightError
    from podwright.server import serve
    from podwright.server.command._log_destination import EVENT_LOGGER, set_up_logging
    from podwright.server.command._serving_from_options import serving_options
    from podwright.server.command._startup_message import ready_lines

    set_up_logging(arguments.verbose, arguments.log_format, arguments.audit_log)
    options = serving_options(arguments)
    if arguments.name and not (arguments.tls_init or arguments.tls_renew):
        parser.error("--name is for --tls-init and --tls-renew")
    if arguments.init or arguments.tls_init or arguments.tls_renew:
        from podwright.server.command._store_maintenance import prepared

        for line in prepared(arguments, options):
            print(line)
        return 0

    def ready(server: Server, hardware: ServedHardware) -> None:
        if not arguments.user:
            _announce(ready_lines(options, server, hardware))

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(options, ready))
    except PodwrightError as error:
        if arguments.log_format != "json":
            raise
        fields = {"code": error.code, "problem": error.problem, "would_work": error.would_work}
        logging.getLogger(EVENT_LOGGER).error("%s", error.message, extra={"fields": fields})
        return error.exit_code
    return 0


def _work_on_store(arguments: ServerArguments) -> int:
    """Check, repair, copy or replace the content of the store that these options name."""
    from podwright.server.command import _store_maintenance

    if arguments.check:
        faults, sentence = _store_maintenance.checked(arguments)
        for fault in faults:
            print(fault)
        complain(sentence)
        return 1 if faults else 0
    if arguments.repair:
        faults, sentence = _store_maintenance.repaired(arguments)
        for fault in faults:
            print(fault)
        complain(sentence)
        return 0
    backs_up = bool(arguments.backup)
    complain(
        (_store_maintenance.back_up_store if backs_up else _store_maintenance.restored)(arguments)
    )
    return 0


def _detach() -> None:
    """Close the caller's terminal and pipes, for whose end somebody may wait."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)


def _announce(lines: list[str]) -> None:
    """Print lines for whoever started the server, in the form of the log."""
    import logging

    from podwright.server.command._log_destination import EVENT_LOGGER, JsonLineFormatter

    formatters = [handler.formatter for handler in logging.getLogger().handlers]
    as_json = any(isinstance(formatter, JsonLineFormatter) for formatter in formatters)
    for line in lines:
        if as_json:
            logging.getLogger(EVENT_LOGGER).info("%s", line)
        else:
            complain(line)


if __name__ == "__main__":
    sys.exit(main())
