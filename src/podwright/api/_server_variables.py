"""The variables that lead other processes to the server that this program talks to."""

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


def server_variables(server: FoundServer, options: ServerOptions) -> dict[str, str]:
    """Return the variables that lead other processes of this user to the same server.

    An empty value means that the variable must not be set.
    """
    where = server.client.where
    credentials = (options.user, options.key, options.certs, options.munge)
    variables = {name: value for name, value in zip(_NAMED, credentials, strict=True) if value}
    if os.path.isabs(where) and not any(variables.values()):
        return {SOCKET_VARIABLE: where, HOST_VARIABLE: "", PORT_VARIABLE: ""}
    address = options.host or (where if not os.path.isabs(where) else server.address)
    return {**variables, SOCKET_VARIABLE: "", HOST_VARIABLE: address, PORT_VARIABLE: options.port}


def with_variables(environ: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with these variables set, and the empty ones removed."""
    left = {name: value for name, value in environ.items() if variables.get(name) != ""}
    return {**left, **{name: value for name, value in variables.items() if value}}


def open_client(environ: Mapping[str, str]) -> Client:
    """Return a client of the server that the variables in `environ` name."""
    path = environ.get(SOCKET_VARIABLE, "")
    if path and "," not in path:
        return Client(UnixTransport(path))
    return find_server(ServerOptions(), environ).client
