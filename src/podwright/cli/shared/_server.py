"""Options that name a server, for every command that calls one, and the messages about it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from podwright.cli.shared._arguments import Parser, complain, port, seconds

if TYPE_CHECKING:
    from podwright.client import FoundServer, ServerOptions
    from podwright.errors import PodwrightError
    from podwright.wire import ServerInfo

SIMULATED = "SIMULATED: these devices exist only in software."


def server_options() -> Parser:
    """Return a parent parser. Its options may be before and after a verb, so none has a default."""
    parent = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    group = parent.add_argument_group("server")
    group.add_argument(
        "-H",
        "--api-host",
        metavar="HOST",
        help="the server, or HOST:PORT, or several with commas (environment: VIPU_CLI_API_HOST)",
    )
    group.add_argument(
        "--context",
        metavar="NAME",
        help="a server by its name: podwright config get-contexts (PODWRIGHT_CONTEXT)",
    )
    group.add_argument(
        "--api-port", metavar="PORT", type=port, help="its port, 8090 (VIPU_CLI_API_PORT)"
    )
    group.add_argument(
        "--config", metavar="FILE", help="settings to read in place of /etc/vipu/vipu-cli.hcl"
    )
    group.add_argument(
        "--timeout", metavar="S", type=seconds, help="seconds that a call may take, 120"
    )
    group.add_argument("--api-user-id", metavar="ID", help="your name there (VIPU_CLI_API_USER_ID)")
    group.add_argument(
        "--api-access-key",
        metavar="KEY",
        help="your key; others can see it in ps, so use --config (VIPU_CLI_API_ACCESS_KEY)",
    )
    group.add_argument(
        "--tls-certs",
        metavar="DIR",
        help="folder with ca.pem, cert.pem and key.pem, for TLS (VIPU_CLI_TLS_CERTS)",
    )
    group.add_argument(
        "--munge",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show MUNGE credentials to a server on TCP (VIPU_CLI_MUNGE=yes, no, or its socket)",
    )
    return parent


def chosen(arguments: argparse.Namespace) -> ServerOptions:
    """Return what the options name."""
    from podwright.client import ServerOptions

    return ServerOptions(
        host=getattr(arguments, "api_host", ""),
        port=str(getattr(arguments, "api_port", "")),
        config=getattr(arguments, "config", ""),
        user=getattr(arguments, "api_user_id", ""),
        key=getattr(arguments, "api_access_key", ""),
        certs=getattr(arguments, "tls_certs", ""),
        munge="yes" if getattr(arguments, "munge", False) else "",
        context=getattr(arguments, "context", ""),
    )


def connect(arguments: argparse.Namespace) -> FoundServer:
    """Return the server of these options. A message tells when it was started, or is simulated."""
    from podwright.cli.shared._waiting import waiting
    from podwright.client import TIMEOUT, find_server

    options = chosen(arguments)
    with waiting("looking for a server"):
        server = find_server(options, os.environ, timeout=getattr(arguments, "timeout", TIMEOUT))
    if server.how == "started":
        complain("No server was running; started one for this user. It ends by itself when idle.")
    announce(server.info)
    return server


def connect_to_one(arguments: argparse.Namespace) -> FoundServer:
    """Return the server for administrators' commands.

    It starts no server, because what these commands change must last.
    """
    from podwright.cli.shared._waiting import waiting
    from podwright.client import TIMEOUT, LocalServers, find_server

    def none(folder: str, environ: Mapping[str, str], ready: Callable[[], bool]) -> bool:
        from podwright.errors import Unavailable

        raise Unavailable(
            "there is no server to administer",
            would_work="start it (systemctl start vipu-server), or name one with --api-host",
        )

    with waiting("looking for a server"):
        server = find_server(
            chosen(arguments),
            os.environ,
            timeout=getattr(arguments, "timeout", TIMEOUT),
            places=LocalServers(start=none),
        )
    announce(server.info)
    return server


def announce(info: ServerInfo) -> None:
    """Print that the devices are simulated, if they are."""
    if info.simulated:
        complain(SIMULATED)


def said(error: PodwrightError, prog: str) -> str:
    """Return a refusal in a command's words. V-IPU's own text for no connection has a line of its
    own.
    """
    from podwright.errors import as_sentence

    if error.data.get("reason") and error.data.get("address"):
        return f"{error.problem}\n{as_sentence(error.would_work)}"
    return f"{prog}: {error.message}"
