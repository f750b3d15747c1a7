"""Which server, as other processes are told: the one that this program talks to, and no other."""

from __future__ import annotations

import os
from collections.abc import Mapping

from podwright.client import (
    HOST_VARIABLE,
    PORT_VARIABLE,
    Client,
    FoundServer,
    ServerOptions,
    UnixTransport,
    find_server,
)
from podwright.wire import SOCKET_VARIABLE

_NAMED = ("VIPU_CLI_API_USER_ID", "VIPU_CLI_API_ACCESS_KEY", "VIPU_CLI_TLS_CERTS", "VIPU_CLI_MUNGE")


def server_variables(found: FoundServer, options: ServerOptions) -> dict[str, str]:
    """The variables that lead other processes of this user to the same server.

    An empty value means that the variable must not be set.
    """
    where = found.client.where
    credentials = (options.user, options.key, options.certs, options.munge)
    told = {name: value for name, value in zip(_NAMED, credentials, strict=True) if value}
    if os.path.isabs(where) and not any(told.values()):
        return {SOCKET_VARIABLE: where, HOST_VARIABLE: "", PORT_VARIABLE: ""}
    address = options.host or (where if not os.path.isabs(where) else found.address)
    return {**told, SOCKET_VARIABLE: "", HOST_VARIABLE: address, PORT_VARIABLE: options.port}


def with_variables(environ: Mapping[str, str], told: Mapping[str, str]) -> dict[str, str]:
    """An environment in which these hold."""
    left = {name: value for name, value in environ.items() if told.get(name) != ""}
    return {**left, **{name: value for name, value in told.items() if value}}


def open_client(environ: Mapping[str, str]) -> Client:
    """A client of the server that `with_variables` has named."""
    path = environ.get(SOCKET_VARIABLE, "")
    if path and "," not in path:
        return Client(UnixTransport(path))
    return find_server(ServerOptions(), environ).client
