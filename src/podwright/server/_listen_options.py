"""Where a server answers, as values; which of these places are refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from podwright.errors import InvalidRequest
from podwright.hosts import is_loopback
from podwright.server._http import IDLE_SECONDS

if TYPE_CHECKING:
    from podwright.page import SiteProxy
    from podwright.store import History


@dataclass(frozen=True)
class ListenOptions:
    """Where to listen.

    socket, socket_mode, private_folder: the Unix socket; None: none. idle: seconds until a silent
    connection to it is closed.
    host, port: of gRPC; host None: none, port 0: a free one. certs: the folder of its TLS
    certificates; None: no TLS. apart: gRPC in a process of its own, as vipu-server has it; else on
    this loop.
    web: host and port of HTTP that is read only; None: none.
    anywhere: also beyond loopback, where callers are anonymous unless they hold a token.
    """

    socket: Path | None
    socket_mode: int = 0o600
    private_folder: bool = False
    idle: float = IDLE_SECONDS
    host: str | None = "127.0.0.1"
    port: int = 0
    certs: Path | None = None
    apart: bool = False
    web: tuple[str, int] | None = None
    anywhere: bool = False

    def check(self, *, secure: bool) -> None:
        """Raises InvalidRequest for a host beyond loopback. secure: callers say who they are."""
        if self.web is not None and not self.anywhere and not is_loopback(self.web[0]):
            raise _unchecked(self.web[0], f"serve HTTP on {self.web[0]}")
        self.check_tls(secure=secure)
        safe = self.anywhere or secure
        if self.host is not None and not safe and not is_loopback(self.host):
            raise _unchecked(self.host, f"listen on {self.host}")

    def check_tls(self, *, secure: bool) -> None:
        """Raises InvalidRequest where access keys would travel without TLS."""
        if secure and self.certs is None and self.host is not None and not is_loopback(self.host):
            raise InvalidRequest(
                "without TLS access keys would travel for all to read",
                asked=f"listen on {self.host}",
                would_work="--tls-certs DIR; vipu-server --tls-init makes it",
            )


def _unchecked(host: str, action: str) -> InvalidRequest:
    return InvalidRequest(
        f"{host} is reachable from other machines, whose users nobody checks",
        asked=action,
        would_work="127.0.0.1, or say --listen-anywhere as well",
    )


@dataclass(frozen=True)
class PageOptions:
    """What the page in a browser has beside its place. history: where what is now is written down
    once a minute; None: nowhere. proxy: which says who comes. names: others by which it may be
    called."""

    history: History | None = None
    proxy: SiteProxy | None = None
    names: tuple[str, ...] = ()


#: A page that keeps nothing and believes no proxy.
NO_PAGE = PageOptions()
