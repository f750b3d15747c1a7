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

_CREDENTIAL_VARIABLES = (
    "VIPU_CLI_API_USER_ID",
    "VIPU_CLI_API_ACCESS_KEY",
    "VIPU_CLI_TLS_CERTS",
    "VIPU_CLI_MUNGE",
)


def server_variables(server: FoundServer, options: ServerOptions) -> dict[str, str]:
    """Return the variables that lead other processes of this user to the same server.

    An empty value means that the variable must not be set.
    """
    server_address = server.client.where
    credentials = (options.user, options.key, options.certs, options.munge)
    variables = {
        variable: value
        for variable, value in zip(_CREDENTIAL_VARIABLES, credentials, strict=True)
        if value
    }
    if os.path.isabs(server_address) and not any(variables.values()):
        return {SOCKET_VARIABLE: server_address, HOST_VARIABLE: "", PORT_VARIABLE: ""}
    address = options.host or (
        server_address if not os.path.isabs(server_address) else server.address
    )
    return {**variables, SOCKET_VARIABLE: "", HOST_VARIABLE: address, PORT_VARIABLE: options.port}


def with_variables(environ: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with these variables set, and the empty ones removed."""
    kept_variables = {
        variable: value for variable, value in environ.items() if variables.get(variable) != ""
    }
    return {**kept_variables, **{variable: value for variable, value in variables.items() if value}}


def open_client(environ: Mapping[str, str]) -> Client:
    """Return a client of the server that the variables in `environ` name."""
    socket_path = environ.get(SOCKET_VARIABLE, "")
    if socket_path and "," not in socket_path:
        return Client(UnixTransport(socket_path))
    return find_server(ServerOptions(), environ).client
