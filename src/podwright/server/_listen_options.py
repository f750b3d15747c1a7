"""Where a server answers, as values, and which of these addresses are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from podwright.errors import InvalidRequest
from podwright.hosts import is_loopback
from podwright.server._unix_http_front import IDLE_SECONDS

if TYPE_CHECKING:
    from podwright.page import SiteProxy
    from podwright.store import History


@dataclass(frozen=True)
class ListenOptions:
    """Where to listen.

    socket, socket_mode, private_folder: the Unix socket; None: none. idle: seconds after which a
    silent connection to it is closed. host, port: of gRPC; host None: none, port 0: a free one.
    certs: the folder of its TLS certificates; None: no TLS. apart: gRPC runs in a process of its
    own, as in vipu-server; otherwise on this loop. web: host and port of read-only HTTP; None:
    none. anywhere: also listen beyond loopback, where callers without a token are anonymous.
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
        """Raise InvalidRequest for a host beyond loopback.

        secure: callers must identify themselves.
        """
        if self.web is not None and not self.anywhere and not is_loopback(self.web[0]):
            raise _open_host_refusal(self.web[0], f"serve HTTP on {self.web[0]}")
        self.check_tls(secure=secure)
        beyond_loopback_allowed = self.anywhere or secure
        if self.host is not None and not beyond_loopback_allowed and not is_loopback(self.host):
            raise _open_host_refusal(self.host, f"listen on {self.host}")

    def check_tls(self, *, secure: bool) -> None:
        """Raise InvalidRequest where access keys would be sent without TLS."""
        if secure and self.certs is None and self.host is not None and not is_loopback(self.host):
            raise InvalidRequest(
                "without TLS access keys would travel for all to read",
                operation=f"listen on {self.host}",
                would_work="--tls-certs DIR; vipu-server --tls-init makes it",
            )


def _open_host_refusal(host: str, action: str) -> InvalidRequest:
    return InvalidRequest(
        f"{host} is reachable from other machines, and their users would not be checked",
        operation=action,
        would_work="127.0.0.1, or say --listen-anywhere as well",
    )


@dataclass(frozen=True)
class PageOptions:
    """The options of the page in a browser.

    history: where the present state is recorded once a minute; None: nowhere. proxy: the proxy that
    names callers. names: further host names of the page. standbys: returns the number of servers
    that wait to take over; None: the store is this server's alone. pod: the label `pod` of its
    metrics; empty: none.
    """

    history: History | None = None
    proxy: SiteProxy | None = None
    names: Sequence[str] = ()
    standbys: Callable[[], int | None] = lambda: None
    pod: str = ""


#: A page that keeps nothing and trusts no proxy.
DEFAULT_PAGE = PageOptions()
