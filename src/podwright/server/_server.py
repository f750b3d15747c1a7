"""The server: one controller, its fronts, and the order in which they begin and end."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from podwright._version import __version__
from podwright.controller import Caller
from podwright.errors import InvalidRequest, PodwrightError
from podwright.hosts import is_loopback, tell_ready
from podwright.server._calls import Calls
from podwright.server._grpc import GrpcFront
from podwright.server._http import IDLE_SECONDS, HttpFront
from podwright.server._identity import Identity
from podwright.server._metrics import Gauge
from podwright.server._sockets import SocketPlace
from podwright.server._traces import Traces
from podwright.server._web import WebFront
from podwright.wire import ServerInfo

if TYPE_CHECKING:
    from podwright.controller import Controller
    from podwright.http import Visitors
    from podwright.page import SiteProxy
    from podwright.store import History

APIS = ["virmgrpc", "podwright.v1"]


class Server:
    """Serves a controller, which it starts and closes.

    socket_path, socket_mode, private_folder: the Unix socket; None serves none.
    host, port: where gRPC answers; host None serves none, port 0 takes a free one.
    anywhere: listen beyond loopback, where callers are anonymous unless they hold a token.
    certs: the folder of TLS certificates for gRPC; None: no TLS. apart: gRPC in a process of its
    own, as vipu-server has it; else on this loop. web: where HTTP answers that
    is read only, host and port; None: nowhere.
    connection_idle: seconds until a silent connection to the socket is closed.
    counters: what else GetServerInfo counts. clock: seconds, never backwards. traces: spans of
    calls go there. history: where the page keeps what was. proxy, web_names: as `WebFront`.
    Raises wire.InvalidRequest for a host beyond loopback.
    """

    def __init__(
        self,
        controller: Controller,
        *,
        socket_path: Path | None,
        host: str | None = "127.0.0.1",
        port: int = 0,
        anywhere: bool = False,
        socket_mode: int = 0o600,
        private_folder: bool = False,
        connection_idle: float = IDLE_SECONDS,
        identity: Identity | None = None,
        certs: Path | None = None,
        apart: bool = False,
        web: tuple[str, int] | None = None,
        counters: Callable[[], dict[str, int]] = dict,
        clock: Callable[[], float] = time.monotonic,
        traces: Traces | None = None,
        history: History | None = None,
        proxy: SiteProxy | None = None,
        web_names: Iterable[str] = (),
    ) -> None:
        identity = identity or Identity()
        identity.authenticate = self._authenticate
        identity.authenticate_certificate = self._authenticate_certificate
        self._certs, self._apart = certs, apart
        if web is not None and not anywhere and not is_loopback(web[0]):
            raise InvalidRequest(
                f"{web[0]} is reachable from other machines, whose users nobody checks",
                asked=f"serve HTTP on {web[0]}",
                would_work="127.0.0.1, or say --listen-anywhere as well",
            )
        self._wanted_web = web
        self.web_port = 0
        self._check_tls(host, identity.secure)
        safe = anywhere or identity.secure
        if host is not None and not safe and not is_loopback(host):
            raise InvalidRequest(
                f"{host} is reachable from other machines, whose users nobody checks",
                asked=f"listen on {host}",
                would_work="127.0.0.1, or say --listen-anywhere as well",
            )
        self.controller = controller
        self.socket_path = socket_path
        self.host, self.port = host, 0
        self._wanted_port = port
        self._place = (
            SocketPlace(socket_path, mode=socket_mode, private=private_folder)
            if socket_path is not None
            else None
        )
        self._clock = clock
        self._counters = counters
        self.calls = Calls(controller, identity, self._describe, clock=clock)
        self.calls.traces = traces
        self._http = HttpFront(self.calls, idle=connection_idle, clock=clock)
        self._web = WebFront(
            self.calls,
            self._totals,
            self._gauges,
            history,
            proxy,
            names=web_names,
            ended=self._ended,
        )
        self._grpc: GrpcFront | None = None

    async def start(self) -> None:
        """Own the socket, recover the controller, answer.

        Raises wire.AlreadyExists when another server has the socket, wire.Unavailable when the
        store, the socket or the port cannot be had. Nothing is left behind then.
        """
        if self._place is not None:
            self._place.take()
        try:
            await self.controller.start()
            if self.host is not None:
                self._grpc = GrpcFront(self.calls, self._certs, apart=self._apart)
                self.port = await self._grpc.start(self.host, self._wanted_port)
            if self._wanted_web is not None:
                self.web_port = await self._web.start(*self._wanted_web)
            if self._place is not None:
                await self._http.start(self._place.listen())
        except BaseException:
            await self.stop(0)
            raise
        tell_ready()  # also when it stands by: it answers, and says so

    async def stop(self, grace: float = 5.0) -> bool:
        """Accept no more, finish what is under way, close the controller.

        grace: seconds for calls to end; after that their callers lose them, but a step on
        hardware that has begun still ends. Returns whether no partition and no lease is left.
        """
        if self._place is not None:
            self._place.hide()
        self.calls.end()
        await self._web.stop()
        try:
            fronts = (self._http, self._grpc)
            await asyncio.gather(*(front.stop(grace) for front in fronts if front is not None))
        finally:
            try:
                await self.controller.close()
            finally:
                if self._place is not None:
                    self._place.release()
                if self.calls.traces is not None:
                    await self.calls.traces.close()
        return self.controller.idle

    def adopt(self, controller: Controller, gate: Callable[[], PodwrightError | None]) -> None:
        """Serve this controller, already started, in the place of what was served.

        gate: asked at each call; why none may be answered now, or None.
        """
        self.controller = controller
        self.calls.adopt(controller, gate)

    def make_secure(self) -> None:
        """Callers on TCP must say who they are from now on, as the store demands.

        Raises wire.InvalidRequest where their keys would travel without TLS.
        """
        self._check_tls(self.host, True)
        self.calls.identity.secure = True

    def _check_tls(self, host: str | None, secure: bool) -> None:
        if host is not None and secure and self._certs is None and not is_loopback(host):
            raise InvalidRequest(
                "without TLS access keys would travel for all to read",
                asked=f"listen on {host}",
                would_work="--tls-certs DIR; vipu-server --tls-init makes it",
            )

    @property
    def page(self) -> str:
        """Where the page is for browsers; empty where there is none."""
        return self._web.address

    async def until_idle(self, seconds: float) -> None:
        """Return when nobody was served for so long: no call, partition or lease."""
        while True:
            quiet = self._clock() - self.calls.last_end
            if quiet < seconds:
                await asyncio.sleep(max(seconds - quiet, 0.01))
            elif self.calls.idle:
                return
            else:
                await asyncio.sleep(min(seconds, 1.0))

    def _doors(self) -> dict[str, Visitors]:
        return {
            "unix": self._http.server.door.visitors,
            "http": self._web.server.door.visitors,
        }

    def _totals(self) -> dict[str, int]:
        """What only grows, for /metrics."""
        return {
            "calls": self.calls.count,
            "gate_starts": self._grpc.gates if self._grpc is not None else 0,
            **self._counters(),
        }

    def _ended(self) -> dict[tuple[str, str], int]:
        """Connections by door and why the server ended them, for /metrics."""
        found = {
            (name, why): count
            for name, door in self._doors().items()
            for why, count in (("refused", door.refused), ("evicted", door.evicted))
        }
        if self._grpc is not None:
            found |= {("grpc", why): count for why, count in self._grpc.ended().items()}
        return found

    def _gauges(self) -> list[Gauge]:
        """What is so at this moment, for /metrics."""
        active = self.calls.health()["status"] == "ok"
        epoch = getattr(self.controller, "epoch", 0)
        stand = {name: len(door) for name, door in self._doors().items()}
        if self._grpc is not None:
            stand["grpc"] = self._grpc.connections
        return [
            ("active", "1: this server is active; 0: it stands by.", {}, int(active)),
            ("epoch", "How often the store was opened: each restart and takeover.", {}, epoch),
            ("calls_under_way", "Calls that are being answered.", {}, self.calls.under_way),
            *(
                ("connections", "Connections that stand.", {"door": name}, count)
                for name, count in stand.items()
            ),
        ]

    async def _authenticate(self, name: str, key: str) -> Caller:
        return await self.controller.authenticate(name, key)

    async def _authenticate_certificate(self, name: str, uri: str) -> Caller:
        return await self.controller.authenticate_certificate(name, uri)

    async def _describe(self, caller: Caller) -> ServerInfo:
        standby = self.calls.standby
        return ServerInfo(
            version=__version__,
            apis=APIS if self.port else APIS[1:],
            host=self.host or "" if self.port else "",
            port=self.port,
            caller=caller.name,
            role=caller.role.value,
            simulated=self.controller.simulated,
            pid=os.getpid(),
            clusters=[cluster.name for cluster in self.controller.clusters],
            counters={"calls": self.calls.count, **self._counters()},
            standby=standby is not None,
            active=standby.active if standby is not None else "",
            page=self.page,
        )
