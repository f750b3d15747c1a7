"""How the service, and who sets it up, reach vipu-server: on this host, or on another.

By the Unix socket the kernel says who calls. Over TCP it is MUNGE, as between Slurm's own daemons,
or what a file in the form of vipu-cli.hcl names: a user's key, certificates for TLS. Of several
addresses whichever answers is asked (a server and its standby).
"""

from __future__ import annotations

from podwright.client import (
    Address,
    Client,
    ServerOptions,
    UnixTransport,
    find_server,
    parse_addresses,
)
from podwright.errors import InvalidRequest
from podwright.slurm.pods.service._pods import Site
from podwright.wire import SYSTEM_SOCKET

_TCP = "tcp:"


def addresses(server: str) -> tuple[Address, ...]:
    """Where a server is over TCP; none: it is a Unix socket. Raises InvalidRequest."""
    if not server.startswith(_TCP):
        return ()
    try:
        return parse_addresses(server.removeprefix(_TCP))
    except InvalidRequest as error:
        raise InvalidRequest(
            error.problem, asked=f"reach {server}", would_work="tcp:HOST:PORT[,HOST:PORT]"
        ) from None


def socket_of(server: str) -> str:
    """The Unix socket of a server on this host; empty where it is reached over TCP."""
    return "" if addresses(server) else server or SYSTEM_SOCKET


def reach(site: Site, timeout: float) -> Client:
    """A client of a site's server. Raises PodwrightError: over TCP it is asked who it is."""
    there = addresses(site.server)
    if not there:
        return Client(UnixTransport(socket_of(site.server)), timeout=timeout)
    munge = "" if site.credentials else site.munge_socket or "yes"
    options = ServerOptions(
        host=",".join(map(str, there)),
        port=str(there[0].port),
        config=site.credentials,
        munge=munge,
    )
    return find_server(options, {}, timeout=timeout).client
