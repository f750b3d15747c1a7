"""What `gc-info` and `gc-monitor` share: their options, their server, and the partitions to show.

Inside a launched program the server and the partition are those of its environment
(`IPUOF_VIPU_API_*`), unless `vipu`'s own ways name another.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from podwright._version import __version__
from podwright.cli._arguments import Parser
from podwright.cli._server import connect, server_options

if TYPE_CHECKING:
    from podwright.cli._device_users import ShownUse
    from podwright.client import FoundServer

_NAMES = ("PODWRIGHT_SOCKET", "VIPU_CLI_API_HOST", "VIPU_CLI_API_PORT")


def parser(prog: str, description: str, epilog: str) -> Parser:
    """The options that both have."""
    made = Parser(prog=prog, parents=[server_options()], description=description, epilog=epilog)
    add = made.add_argument
    add("--version", action="version", version=f"{prog} (Podwright) {__version__}")
    add("--json", action="store_true", help="print JSON")
    which = made.add_mutually_exclusive_group()
    which.add_argument("--partition", metavar="NAME", help="this partition alone")
    which.add_argument(
        "--all-partitions", action="store_true", help="everybody's; one's own otherwise"
    )
    return made


def reach(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> FoundServer:
    """The server: as `vipu` finds it, or the one that the environment of a program names."""
    named = any(environ.get(name) for name in _NAMES) or any(
        hasattr(arguments, name) for name in ("api_host", "api_port", "config")
    )
    if not named and (host := environ.get("IPUOF_VIPU_API_HOST", "")):
        arguments.api_host = host
        arguments.api_port = environ.get("IPUOF_VIPU_API_PORT", "") or "8090"
    return connect(arguments)


def shown(
    arguments: argparse.Namespace, found: FoundServer, environ: Mapping[str, str] = os.environ
) -> list[ShownUse]:
    """The partitions that were asked for, with their devices and users."""
    from podwright.cli._device_users import look

    partition = arguments.partition or ""
    if not partition and not arguments.all_partitions:
        partition = environ.get("IPUOF_VIPU_API_PARTITION_ID", "")
    return look(found.client, found.info, partition=partition, every=arguments.all_partitions)


def none_there(arguments: argparse.Namespace, found: FoundServer) -> str:
    """What to say where there is nothing to show."""
    if arguments.all_partitions:
        return "There is no partition. One is made by: vipu create partition NAME --size N"
    return (
        f"No partition belongs to {found.info.caller}. --all-partitions shows those of others; "
        "vipu create partition NAME --size N makes one."
    )
