"""The seam between the client and the transport of its calls, with the fake that ships with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from podwright.client._named_server import NamedServer
from podwright.wire import METHODS, Method, Value


class Transport(Protocol):
    """Carries one call at a time to one server. Raises the error types of podwright.wire."""

    @property
    def where(self) -> str:
        """The server's address, as messages name it: a socket's path, or `host:port`."""

    @property
    def server(self) -> NamedServer:
        """The server and the caller: what another process needs to make the same calls."""

    def call(self, method: Method, request: Value, timeout: float) -> Value:
        """Return the reply of one call, within `timeout` seconds."""

    def another(self) -> Transport:
        """Return a transport to the same server, over a connection of its own."""

    def close(self) -> None:
        """Close the connection. A later call opens a new one."""


class FakeTransport:
    """A server in one function, for tests of code that uses a client.

    handler: `(method name, request) -> reply`, or it raises an error of podwright.wire. calls:
    every call so far, in order.
    """

    def __init__(self, handler: Callable[[str, Value], Value], address: str = "fake:0") -> None:
        self._handler = handler
        self.where = address
        self.server = NamedServer(address)
        self.calls: list[tuple[str, Value]] = []

    def call(self, method: Method, request: Value, timeout: float) -> Value:
        """Return the handler's answer, which must be of the method's reply type."""
        assert METHODS[method.name] is method
        assert isinstance(request, method.request), f"{method.name} takes {method.request}"
        self.calls.append((method.name, request))
        reply = self._handler(method.name, request)
        assert isinstance(reply, method.reply), f"{method.name} answers {method.reply}"
        return reply

    def another(self) -> FakeTransport:
        """Return this transport itself, which keeps all calls."""
        return self

    def close(self) -> None:
        """Do nothing: there is no connection."""
