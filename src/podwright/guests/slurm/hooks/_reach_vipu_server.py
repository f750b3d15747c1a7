"""How the service, and whoever sets it up, reach vipu-server on this host or on another.

Over the Unix socket the kernel says who calls. Over TCP the caller proves itself by MUNGE, as
Slurm's own daemons do, or by what a file in the form of vipu-cli.hcl names: a user's key, or
certificates for TLS. A server and its standby have an address each, and the one that answers is
used.
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
from podwright.guests.slurm.service._pods_and_licences import Site
from podwright.wire import SYSTEM_SOCKET

_TCP_PREFIX = "tcp:"


def addresses(server: str) -> tuple[Address, ...]:
    """Return the TCP addresses of a server; none if it is reached by a Unix socket. Raises
    InvalidRequest.
    """
    if not server.startswith(_TCP_PREFIX):
        return ()
    try:
        return parse_addresses(server.removeprefix(_TCP_PREFIX))
    except InvalidRequest as error:
        raise InvalidRequest(
            error.problem, operation=f"reach {server}", would_work="write tcp:HOST:PORT[,HOST:PORT]"
        ) from None


def socket_of(server: str) -> str:
    """Return the path of the server's Unix socket on this host, or "" if it is reached over TCP."""
    return "" if addresses(server) else server or SYSTEM_SOCKET


def reach(site: Site, timeout: float) -> Client:
    """Return a client of a site's server. Over TCP this calls the server. Raises PodwrightError."""
    server_addresses = addresses(site.server)
    if not server_addresses:
        return Client(UnixTransport(socket_of(site.server)), timeout=timeout)
    socket = "" if site.credentials else site.munge_socket or "yes"
    options = ServerOptions(
        host=",".join(map(str, server_addresses)),
        port=str(server_addresses[0].port),
        config=site.credentials,
        munge=socket,
    )
    return find_server(options, {}, timeout=timeout).client
