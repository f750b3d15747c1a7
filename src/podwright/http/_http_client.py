"""The one way from here to another HTTP server: bounded answers, no redirects, no kept connections.

Calls to such servers are few, and a connection that is not kept cannot be half dead. Commands reach
Podwright's own server by `client/_unix.py`, since importing http.client would cost each start.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import http.client
    import ssl


class HttpAnswer(NamedTuple):
    """A reply. status: the HTTP status. headers: their names in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def document(self) -> Any:
        """Return the JSON of the body; None when there is none."""
        try:
            return json.loads(self.content) if self.content else None
        except ValueError:
            return None


class NotHttp(OSError):
    """What answers there does not speak HTTP."""


def open_connection(
    place: str, timeout: float, tls: ssl.SSLContext | None = None
) -> http.client.HTTPConnection:
    """Return a connection to HOST:PORT or a socket's path. Its first request opens it."""
    from http.client import HTTPConnection, HTTPSConnection

    if place.startswith("/"):
        connection = HTTPConnection("localhost", timeout=timeout)
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.settimeout(timeout)
            connection.sock.connect(place)
        except BaseException:
            connection.close()
            raise
        return connection
    host, _, port = place.rpartition(":")
    if tls is None:
        return HTTPConnection(host.strip("[]"), int(port), timeout=timeout)
    return HTTPSConnection(host.strip("[]"), int(port), timeout=timeout, context=tls)


def ask(
    place: str,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = {},
    *,
    timeout: float,
    limit: int,
    tls: ssl.SSLContext | None = None,
) -> HttpAnswer:
    """Send one request to HOST:PORT or a socket's path. Return the answer.

    timeout: seconds of silence. limit: bytes that are read of the answer's body. Raises OSError,
    TimeoutError and NotHttp among them.
    """
    from http.client import HTTPException

    with contextlib.closing(open_connection(place, timeout, tls)) as connection:
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            content = response.read(limit)
        except HTTPException as error:
            raise NotHttp(str(error) or type(error).__name__) from None
    answer_headers = {name.lower(): value for name, value in response.getheaders()}
    return HttpAnswer(response.status, answer_headers, content)
