"""The server: one controller, its fronts, and the order in which they begin and end."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from podwright._version import __version__
from podwright.controller import Caller
from podwright.errors import PodwrightError
from podwright.hosts import tell_ready
from podwright.http import Figure
from podwright.server._caller_identity import Identity
from podwright.server._dispatch_calls import Calls
from podwright.server._grpc_front import GrpcFront
from podwright.server._listen_options import DEFAULT_PAGE, ListenOptions, PageOptions
from podwright.server._socket_lock import SocketPlace
from podwright.server._unix_http_front import HttpFront
from podwright.server._web_front import WebFront
from podwright.wire import ServerInfo

if TYPE_CHECKING:
    from podwright.controller import Controller
    from podwright.http import Visitors
    from podwright.store import Opened

APIS = ["virmgrpc", "podwright.v1"]


class Server:
    """Serves a controller, which it starts and closes.

    page_options: the options of the page. extra_counters: returns further counters for
    GetServerInfo. clock: seconds, never backwards. Raises wire.InvalidRequest for a host
    beyond loopback.
    """

    def __init__(
        self,
        controller: Controller,
        listen_options: ListenOptions,
        *,
        identity: Identity | None = None,
        page_options: PageOptions = DEFAULT_PAGE,
        extra_counters: Callable[[], dict[str, int]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        identity = identity or Identity()
        identity.authenticate = self._authenticate
        identity.authenticate_certificate = self._authenticate_certificate
        listen_options.check(secure=identity.secure)
        self._listen = listen_options
        self.controller = controller
        self.socket_path, self.host = listen_options.socket, listen_options.host
        self.port = self.web_port = 0
        self._place = (
            SocketPlace(
                listen_options.socket,
                socket_mode=listen_options.socket_mode,
                private_folder=listen_options.private_folder,
            )
            if listen_options.socket is not None
            else None
        )
        self._clock = clock
        self._counters = extra_counters
        self.calls = Calls(controller, identity, self._describe_server, clock=clock)
        self._http = HttpFront(self.calls, idle_seconds=listen_options.idle, clock=clock)
        self._web = WebFront(
            self.calls,
            self._total_metrics,
            self._gauge_metrics,
            page_options,
            self._ended_connections,
        )
        self._grpc: GrpcFront | None = None

    async def start(self, opened_store: Opened | None = None) -> None:
        """Take the socket, recover the controller, and answer.

        opened_store: what opening the store found, where that is done already.
        Raises wire.AlreadyExists when another server has the socket, and wire.Unavailable when the
        store, the socket or the port cannot be had. Nothing is left behind then.
        """
        if self._place is not None:
            self._place.take()
        try:
            if opened_store is None:
                await self.controller.start()
            else:
                await self.controller.start(opened_store)
            if self.host is not None:
                self._grpc = GrpcFront(
                    self.calls, self._listen.certs, own_process=self._listen.apart
                )
                self.port = await self._grpc.start(self.host, self._listen.port)
            if self._listen.web is not None:
                self.web_port = await self._web.open(*self._listen.web)
            if self._place is not None:
                await self._http.start(self._place.listen())
        except BaseException:
            await self.stop(0)
            raise
        tell_ready()  # also for a standby, which answers that it stands by

    async def stop(self, grace: float = 5.0) -> bool:
        """Accept no more calls, finish those under way, and close the controller.

        grace: seconds for calls to end. After that their callers lose them, but a step on hardware
        that has begun still ends. Returns whether no partition and no lease is left.
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
        return self.controller.idle

    def adopt(self, controller: Controller, gate: Callable[[], PodwrightError | None]) -> None:
        """Serve this controller, which has started, in place of the present one.

        gate: called at each call; returns why none may be answered now, or None.
        """
        self.controller = controller
        self.calls.adopt(controller, gate)

    def make_secure(self) -> None:
        """Require callers on TCP to identify themselves from now on, as the store demands.

        Raises wire.InvalidRequest where their keys would be sent without TLS.
        """
        self._listen.check_tls(secure=True)
        self.calls.identity.secure = True

    @property
    def page(self) -> str:
        """The address of the page for browsers; empty where there is none."""
        return self._web.address

    async def wait_until_idle(self, idle_seconds: float) -> None:
        """Return when nobody was served for `idle_seconds`: no call, partition or lease."""
        while True:
            quiet_seconds = self._clock() - self.calls.last_end
            if quiet_seconds < idle_seconds:
                await asyncio.sleep(max(idle_seconds - quiet_seconds, 0.01))
            elif self.calls.idle:
                return
            else:
                await asyncio.sleep(min(idle_seconds, 1.0))

    def _visitors_by_listener(self) -> dict[str, Visitors]:
        return {
            "unix": self._http.door.visitors,
            "http": self._web.door.visitors,
        }

    def _total_metrics(self) -> dict[str, int]:
        """Return the counters for /metrics, which only grow."""
        return {
            "calls": self.calls.count,
            "gate_starts": self._grpc.gates if self._grpc is not None else 0,
            **self._counters(),
        }

    def _ended_connections(self) -> dict[tuple[str, str], int]:
        """Return connections by listener and the reason why the server ended them, for /metrics."""
        connection_counts = {
            (name, reason): count
            for name, door in self._visitors_by_listener().items()
            for reason, count in (("refused", door.refused), ("evicted", door.evicted))
        }
        if self._grpc is not None:
            connection_counts |= {
                ("grpc", reason): count for reason, count in self._grpc.closed_connections().items()
            }
        return connection_counts

    def _fabric_metrics(self) -> list[Figure]:
        """Return the age of the last reading of the fabric, where there is one."""
        age = getattr(self.controller, "fabric_age", None)
        if age is None:
            return []
        return [
            Figure(
                "fabric_reading_age_seconds",
                "Seconds since the fabric was last read and compared.",
                round(age, 1),
            )
        ]

    def _gauge_metrics(self) -> list[Figure]:
        is_active = self.calls.health()["status"] == "ok"
        epoch = getattr(self.controller, "epoch", 0)
        open_connections = {name: len(door) for name, door in self._visitors_by_listener().items()}
        if self._grpc is not None:
            open_connections["grpc"] = self._grpc.connections
        return [
            Figure("active", "1: this server is active; 0: it stands by.", is_active),
            Figure(
                "read_only",
                "1: the store cannot be written, since its disk is full; 0: it can.",
                int(getattr(self.controller, "read_only", None) is not None),
            ),
            *self._fabric_metrics(),
            Figure("epoch", "How often the store was opened: each restart and takeover.", epoch),
            Figure("calls_under_way", "Calls that are being answered.", self.calls.under_way),
            *(
                Figure("connections", "Connections that stand.", count, {"door": name})
                for name, count in open_connections.items()
            ),
            Figure(
                "connections_waiting",
                "Connections to gRPC that wait for a place.",
                self._grpc.waiting if self._grpc is not None else 0,
            ),
        ]

    async def _authenticate(self, user_name: str, access_key: str) -> Caller:
        return await self.controller.authenticate(user_name, access_key)

    async def _authenticate_certificate(self, common_name: str, certificate_uri: str) -> Caller:
        return await self.controller.authenticate_certificate(common_name, certificate_uri)

    async def _describe_server(self, caller: Caller) -> ServerInfo:
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
            fabric=self.controller.fabric,
            fabric_age=-1.0 if (age := self.controller.fabric_age) is None else round(age, 1),
            fabric_problem=self.controller.fabric_problem,
            read_only=read_only_failure.problem
            if (read_only_failure := self.controller.read_only)
            else "",
        )
