"""Shared parts of `gc-info` and `gc-monitor`: their options, their server, and the partitions to
show.

Inside a launched program, the server and the partition are those of its environment
(`IPUOF_VIPU_API_*`), unless an option or setting of `vipu`'s names another.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from podwright._version import __version__
from podwright.cli.shared._arguments import Parser
from podwright.cli.shared._server_options import ServerNames, chosen, connect
from podwright.ground import option_rows as opt

if TYPE_CHECKING:
    from podwright.client import FoundServer
    from podwright.client.devices import ShownUse

_NAMES = ("PODWRIGHT_SOCKET", "VIPU_CLI_API_HOST", "VIPU_CLI_API_PORT")


class GcOptions(ServerNames):
    """The options that both commands have."""

    json = opt.flag("print JSON", name="-j --json")
    partition = opt.optional("this partition alone", "NAME", rivals="partition")
    all_partitions = opt.flag("everybody's; one's own otherwise", rivals="partition")


def parser(prog: str, description: str, epilog: str, options: type[GcOptions]) -> Parser:
    """Return the parser of one of the commands."""
    gc_parser = Parser(prog, description, epilog)
    ServerNames.add_to(gc_parser)
    gc_parser.add_argument(
        "--version", action="version", version=f"{prog} (Podwright) {__version__}"
    )
    options.add_to(gc_parser, without=ServerNames)
    return gc_parser


def reach(arguments: ServerNames, environ: Mapping[str, str] = os.environ) -> FoundServer:
    """Return the server: the one that `vipu` finds, or the one in the environment of a program."""
    options = chosen(arguments)
    named = any(environ.get(name) for name in _NAMES) or bool(
        options.host or options.port or options.config or options.context
    )
    if not named and (host := environ.get("IPUOF_VIPU_API_HOST", "")):
        port = environ.get("IPUOF_VIPU_API_PORT", "") or "8090"
        options = options._replace(host=host, port=port)
    return connect(arguments, options)


def device_uses(
    arguments: GcOptions, server: FoundServer, environ: Mapping[str, str] = os.environ
) -> list[ShownUse]:
    """Return the requested partitions, with their devices and users."""
    from podwright.client.devices import read_device_uses

    partition = arguments.partition or ""
    if not partition and not arguments.all_partitions:
        partition = environ.get("IPUOF_VIPU_API_PARTITION_ID", "")
    return read_device_uses(
        server.client, server.info, partition=partition, list_all=arguments.all_partitions
    )


def none_there(arguments: GcOptions, server: FoundServer) -> str:
    """Return the text for an empty listing."""
    if arguments.all_partitions:
        return "There is no partition. One is made by: vipu create partition NAME --size N"
    return (
        f"No partition belongs to {server.info.caller}. --all-partitions shows those of others; "
        "vipu create partition NAME --size N makes one."
    )
