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
    from podwright.server import ServedHardware, Server, ServingOptions

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
    from podwright.cli.serve._settings import words

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
    if arguments.check:
        return _check(arguments)
    if arguments.backup:
        return _back_up(arguments, arguments.backup)
    if arguments.restore:
        return _restore(arguments, arguments.restore)
    if arguments.user and os.getsid(0) != os.getpid():
        if os.fork():
            return 0
        os.setsid()
        _let_go()
    import asyncio
    import logging

    import uvloop

    from podwright.errors import PodwrightError
    from podwright.server import serve
    from podwright.server.command._log_destination import EVENTS, log_to
    from podwright.server.command._ready_lines import ready_lines
    from podwright.server.command._serving_choice import serving_options

    log_to(arguments.verbose, arguments.log_format, arguments.audit_log)
    options = serving_options(arguments)
    if arguments.name and not (arguments.tls_init or arguments.tls_renew):
        parser.error("--name is for --tls-init and --tls-renew")
    if arguments.init or arguments.tls_init or arguments.tls_renew:
        return _prepare(arguments, options)

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
        logging.getLogger(EVENTS).error("%s", error.message, extra={"fields": fields})
        return error.exit_code
    return 0


def _back_up(arguments: ServerArguments, file: str) -> int:
    """Write the content of the store that these options name to a file."""
    import asyncio
    from pathlib import Path

    from podwright.server import back_up
    from podwright.server.command._serving_choice import serving_options
    from podwright.store import shown_place

    storage = serving_options(arguments).storage
    count = asyncio.run(back_up(storage, Path(file)))
    complain(f"{count} records of {shown_place(storage)} are in {file}")
    return 0


def _restore(arguments: ServerArguments, file: str) -> int:
    """Load a backup into the store that these options name; with --dry-run only compare the two."""
    import asyncio
    from pathlib import Path

    from podwright.server import compare, restore_from
    from podwright.server.command._serving_choice import serving_options
    from podwright.store import shown_place

    storage = serving_options(arguments).storage
    place = shown_place(storage)
    if arguments.dry_run:
        coming, going = asyncio.run(compare(storage, Path(file)))
        goes = f"; the {going} that it holds would go" if going else ", which is empty"
        complain(f"{coming} records of {file} would be put into {place}{goes}")
        return 0
    count = asyncio.run(restore_from(storage, Path(file), replace=arguments.replace))
    complain(f"{count} records of {file} are in {place}")
    return 0


def _check(arguments: ServerArguments) -> int:
    """Check the store that these options name. Returns 1 when it has faults."""
    import asyncio

    from podwright.server import check
    from podwright.server.command._serving_choice import serving_options
    from podwright.store import shown_place

    storage = serving_options(arguments).storage
    place = shown_place(storage)
    count, faults = asyncio.run(check(storage))
    for fault in faults:
        print(fault)
    if faults:
        complain(f"the store {place} is damaged; restore a backup: --restore FILE --replace")
        return 1
    complain(f"{count} records of {place} are in order")
    return 0


def _prepare(arguments: ServerArguments, options: ServingOptions) -> int:
    import asyncio
    import getpass
    import socket
    from pathlib import Path

    from podwright.hosts import is_loopback
    from podwright.server import make_certificates, make_store, renew_certificates
    from podwright.store import shown_place

    if arguments.tls_init:
        hosts = [socket.gethostname(), *arguments.name]
        if not is_loopback(options.host) and options.host not in ("0.0.0.0", "::", "[::]"):
            hosts.append(options.host)
        make_certificates(Path("vipu-certs"), hosts)
        print("certificates: vipu-certs/server and vipu-certs/client")
        print(f"The server's is for {', '.join(dict.fromkeys(['localhost', *hosts]))}.")
    if arguments.tls_renew:
        hosts = renew_certificates(Path("vipu-certs"), arguments.name)
        print("certificates: vipu-certs/server and vipu-certs/client are new")
        print(f"The server's is for {', '.join(['localhost', *hosts])}. It uses them at once.")
    if arguments.init:
        user = (arguments.default_user_id or getpass.getuser()) if arguments.secure else ""
        key = asyncio.run(make_store(options.storage, user))
        print(f"store: {shown_place(options.storage)}")
        if key:
            print(f"create user ({user}): success. Access key is '{key}'.")
    return 0


def _let_go() -> None:
    """Close the caller's terminal and pipes, since whoever waits for their end must not wait for
    us.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)


def _announce(lines: list[str]) -> None:
    """Print lines for whoever started the server, in the form of the log."""
    import logging

    from podwright.server.command._log_destination import EVENTS, JsonLines

    as_json = any(isinstance(each.formatter, JsonLines) for each in logging.getLogger().handlers)
    for line in lines:
        if as_json:
            logging.getLogger(EVENTS).info("%s", line)
        else:
            complain(line)


if __name__ == "__main__":
    sys.exit(main())
