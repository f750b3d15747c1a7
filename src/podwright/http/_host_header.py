"""Which host a request names, read strictly: `name` or `name:port`, and nothing else.

A browser sends the host of the address bar. A web page whose name was made to point at this machine
(DNS rebinding) therefore names its own host, and is recognised by that as foreign. A lenient reader
would take `127.0.0.1:8091.evil.com` for `127.0.0.1`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

from podwright.errors import InvalidRequest
from podwright.http._listener_state import HttpRequest

_HOST_AND_PORT = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")


def host_of(request: HttpRequest) -> str:
    """Return the host that a request names, in lower case and without its port.

    An IPv6 address keeps its brackets. The text is empty for a request that names no host, several,
    or a malformed one.
    """
    host_values = [value for name, value in request.headers if name == b"host"]
    if len(host_values) != 1:
        return ""
    match = _HOST_AND_PORT.fullmatch(host_values[0].decode("latin-1").lower())
    if match is None or int(match[2] or 0) > 65535:
        return ""
    return match[1]


def names_this_server(request: HttpRequest, allowed_hosts: Collection[str]) -> bool:
    """Return whether a request names one of these hosts, given in lower case, or an address.

    An address is accepted, since no name server can make it point elsewhere.
    """
    host = host_of(request)
    if host in allowed_hosts:
        return bool(host)
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return host.startswith("[") == (":" in host)


def host_port(address: str, purpose: str) -> tuple[str, int]:
    """Return the host and the port of HOST:PORT.

    purpose: what the address is for, as an error names it. Raises InvalidRequest.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidRequest(f"{address!r} is not HOST:PORT", operation=purpose)
    return host.strip("[]"), int(port)
