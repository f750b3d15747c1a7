"""The variables by which other processes call the same server as the same caller."""

from __future__ import annotations

from collections.abc import Mapping

from podwright.client import FoundServer


def server_variables(server: FoundServer) -> dict[str, str]:
    """Return the variables for programs of this user: the commands' own, and those of IPUoF.

    An empty value means that the variable must not be set.
    """
    variables = server.client.server.variables
    host, _, port = server.address.rpartition(":")
    if "/" in server.address:
        return variables  # it has a socket only, which the vendor's programs cannot call
    return {
        **variables,
        "IPUOF_VIPU_API_HOST": host.strip("[]"),
        "IPUOF_VIPU_API_PORT": port,
    }


def with_variables(environ: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with these variables set, and the empty ones removed."""
    kept_variables = {
        variable: value for variable, value in environ.items() if variables.get(variable) != ""
    }
    return {**kept_variables, **{variable: value for variable, value in variables.items() if value}}
