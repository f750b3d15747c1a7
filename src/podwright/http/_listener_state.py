"""The state that the connections of one listener share, with their requests and replies."""

from __future__ import annotations

import resource
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from podwright.http._connection_limits import Visitors


class HttpRequest(NamedTuple):
    """A whole request.

    path: without its query, as it was sent. headers: names in lower case. uid: of the other end of
    a Unix socket. address: of the other end on TCP.
    """

    method: str
    path: str
    query: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    uid: int | None
    address: str

    def header(self, header_name: str) -> str:
        """Return a header's value; empty where there is none."""
        encoded_name = header_name.encode()
        return next(
            (
                header_value.decode("latin-1")
                for key, header_value in self.headers
                if key == encoded_name
            ),
            "",
        )


class Reply(NamedTuple):
    """An answer. body: bytes, or parts that are sent as they are made (server-sent events)."""

    status: int
    body: bytes | AsyncGenerator[bytes]
    kind: str = "application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


Handler = Callable[[HttpRequest], Awaitable[Reply]]


@dataclass(frozen=True)
class Limits:
    """The limits of a listener.

    connections: the most at once. each: the most of one uid or address. idle: seconds of silence,
    and for a request to become whole. head: bytes of a request's head, trailers included. body:
    bytes of a request's body. all_bodies: bytes of all bodies together. patience: seconds of
    silence after which a connection makes room for another.
    """

    connections: int = 4096
    each: int = 512
    idle: float = 60.0
    head: int = 16 * 1024
    body: int = 1024 * 1024
    all_bodies: int = 64 * 1024 * 1024
    patience: float = 1.0


@dataclass
class Listener:
    """The state that the connections of one listener share.

    complain: returns the body of a refusal of HTTP itself, from status and problem. all_bodies:
    bytes of bodies now. clock: seconds, never backwards.
    """

    handler: Handler
    limits: Limits
    complain: Callable[[int, str], bytes]
    clock: Callable[[], float]
    visitors: Visitors = field(init=False)
    all_bodies: int = 0
    ending: bool = False

    def __post_init__(self) -> None:
        limits = self.limits
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Connections may use half of the descriptors. The others are for everything else.
        connection_limit = min(limits.connections, descriptors // 2)
        self.visitors = Visitors(
            connection_limit, limits.each, patience=limits.patience, clock=self.clock
        )
