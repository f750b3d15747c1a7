"""Options that name a server, for every command that calls one, and the messages about it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from podwright.cli.shared._arguments import Parser, complain, run
from podwright.ground.option_rows import OptionGroup, OptionTable, flag, port, seconds, text, value

if TYPE_CHECKING:
    from podwright.client import FoundServer, LocalServers, ServerOptions
    from podwright.errors import PodwrightError
    from podwright.wire import ServerInfo

SIMULATED = "SIMULATED: these devices exist only in software."


class ServerNames(OptionTable, group=OptionGroup("server"), inherited=True):
    """The options that name a server. They may stand before and after a verb."""

    api_host = text(
        "the server, or HOST:PORT, or several with commas (environment: VIPU_CLI_API_HOST)",
        "HOST",
        name="-H --api-host",
    )
    context = text(
        "a server by its name: podwright config get-contexts (PODWRIGHT_CONTEXT)", "NAME"
    )
    api_port = value("its port, 8090 (VIPU_CLI_API_PORT)", "PORT", port, None)
    config = text("settings to read in place of /etc/vipu/vipu-cli.hcl", "FILE")
    timeout = value("seconds that a call may take, 120", "S", seconds, None)
    api_user_id = text("your name there (VIPU_CLI_API_USER_ID)", "ID")
    api_access_key = text(
        "your key; others can see it in ps, so use --config (VIPU_CLI_API_ACCESS_KEY)", "KEY"
    )
    tls_certs = text(
        "folder with ca.pem, cert.pem and key.pem, for TLS (VIPU_CLI_TLS_CERTS)", "DIR"
    )
    munge = flag(
        "show MUNGE credentials to a server on TCP (VIPU_CLI_MUNGE=yes, no, or its socket)"
    )


class JsonEverywhere(ServerNames, inherited=True):
    """The options that each verb of `vipu` and `vipu-admin` has, and the command itself."""

    json = flag("print JSON", name="--json --showjson")


#: Returns the server that options name.
Connect = Callable[[ServerNames], "FoundServer"]


def parent_parser(options: type[ServerNames] = ServerNames) -> Parser:
    """Return a parser whose options other parsers take over: see `parents` of argparse."""
    parent = Parser(add_help=False)
    options.add_to(parent)
    return parent


def chosen(named: ServerNames) -> ServerOptions:
    """Return what the options name."""
    from podwright.client import ServerOptions

    return ServerOptions(
        host=named.api_host,
        port=str(named.api_port or ""),
        config=named.config,
        user=named.api_user_id,
        key=named.api_access_key,
        certs=named.tls_certs,
        munge="yes" if named.munge else "",
        context=named.context,
    )


def connect(named: ServerNames, options: ServerOptions | None = None) -> FoundServer:
    """Return the server of these options. A message tells when it was started, or is simulated.

    options: what to use in their place.
    """
    server = _find(options or chosen(named), named.timeout)
    if server.how == "started":
        complain("No server was running; started one for this user. It ends by itself when idle.")
    announce(server.info)
    return server


def connect_to_one(named: ServerNames) -> FoundServer:
    """Return the server for administrators' commands.

    It starts no server, because what these commands change must last.
    """
    from podwright.client import LocalServers
    from podwright.errors import Unavailable

    refusal = Unavailable(
        "there is no server to administer",
        would_work="start it (systemctl start vipu-server), or name one with --api-host",
    )
    server = _find(chosen(named), named.timeout, LocalServers.running(refusal))
    announce(server.info)
    return server


def _find(
    options: ServerOptions, timeout: float | None, places: LocalServers | None = None
) -> FoundServer:
    from podwright.cli.shared._wait_indicator import waiting
    from podwright.client import TIMEOUT, find_server

    with waiting("looking for a server"):
        return find_server(options, os.environ, timeout=timeout or TIMEOUT, local_servers=places)


def announce(info: ServerInfo) -> None:
    """Print that the devices are simulated, if they are."""
    if info.simulated:
        complain(SIMULATED)


def run_with_server(body: Callable[[], int], prog: str) -> int:
    """Run the body of a command that calls a server: see `run`."""
    return run(body, prog=prog, describe=lambda error: _refusal(error, prog))


def _refusal(error: PodwrightError, prog: str) -> str:
    """Return a refusal in a command's words. V-IPU's own text for no connection has a line of its
    own.
    """
    from podwright.errors import as_sentence

    if error.data.get("reason") and error.data.get("address"):
        return f"{error.problem}\n{as_sentence(error.would_work)}"
    return f"{prog}: {error.message}"
