"""Which server a command talks to. The order is a promise of the design:

1. the one named by option, environment or configuration file; if it is down, that is an error; 2.
the system's socket; 3. this user's socket; 4. localhost:8090; 5. where none of these exists, a
server of this user's own, started in the background.

On a machine that has a system's server, running or not, 3 and 5 are left out. Otherwise a user who
meets the system's server while it is down would work on a simulated pod, and lose that work when
the system's server is back.

The search probes a server with one call, which asks who it is. The connection of that call is then
used for the others.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, NoReturn

from podwright.client._client import TIMEOUT, Client
from podwright.client._connect_tcp import connect_tcp, listens
from podwright.client._failover import PATIENCE, FailoverTransport, Opener
from podwright.client._local_server_paths import (
    DEFAULT_HOST,
    LOOPBACK_HOSTS,
    SYSTEM_CONFIG,
    SYSTEM_SERVER_FILES,
    find_system_mark,
    private_folder,
)
from podwright.client._named_server import (
    ANONYMOUS,
    Address,
    Credentials,
    NamedServer,
    ServerOptions,
    named_server,
)
from podwright.client._start_server import start_server
from podwright.client._transport import Transport
from podwright.client._unix import UnixTransport
from podwright.errors import PodwrightError, TimedOut, Unavailable
from podwright.wire import DEFAULT_PORT, SYSTEM_SOCKET, ServerInfo, user_socket

#: Seconds within which a server must answer the probe.
PROBE_TIMEOUT = 5.0
_NO_SERVER_ERRNOS = (errno.ENOENT, errno.ECONNREFUSED)


class FoundServer(NamedTuple):
    """A server that answered. how: `named`, `system`, `user`, `default` or `started`."""

    client: Client
    info: ServerInfo
    how: str

    @property
    def address(self) -> str:
        """`host:port` of the server's gRPC, or its socket if it has no such port."""
        transport: Transport | None = self.client.transport
        if isinstance(transport, FailoverTransport):
            transport = transport.current
        if not isinstance(transport, UnixTransport) or not self.info.port:
            return self.client.where
        host = self.info.host
        return str(Address(DEFAULT_HOST if host in ("", "0.0.0.0", "::") else host, self.info.port))


class LocalServers(NamedTuple):
    """The places to look in: this machine's, or a test's."""

    system: str = SYSTEM_SOCKET
    config: str = SYSTEM_CONFIG
    default: Address = Address(DEFAULT_HOST, DEFAULT_PORT)
    start: Callable[[str, Mapping[str, str], Callable[[], bool]], bool] = start_server
    marks: tuple[str, ...] = SYSTEM_SERVER_FILES

    @classmethod
    def running(cls, error: BaseException) -> LocalServers:
        """Return this machine's places, where no server is started: `error` is raised."""

        def start(folder: str, environ: Mapping[str, str], ready: Callable[[], bool]) -> bool:
            raise error

        return cls(start=start)


def find_server(
    options: ServerOptions,
    environ: Mapping[str, str],
    *,
    timeout: float = TIMEOUT,
    local_servers: LocalServers | None = None,
) -> FoundServer:
    """Find the server to talk to, in the order above. Start one if need be.

    timeout: seconds for each later call; the probe takes at most PROBE_TIMEOUT of it. Raises
    Unavailable for a server that should run and does not, TimedOut for one that hangs,
    InvalidRequest for a malformed address.
    """
    locations = local_servers or LocalServers()
    search = _ServerSearch(timeout, user_socket(environ), locations)
    if target := named_server(options, environ, locations.config):
        return search.named(target)
    if server := search.system():
        return server
    if system_mark := find_system_mark(locations.marks):
        return search.default() or search.away(system_mark)
    return search.users("user") or search.default() or search.started(environ)


def reopen(server: NamedServer, *, timeout: float = TIMEOUT) -> Client:
    """Return a client of a server that another process has found, as the same caller.

    Nothing is looked up again, since an option, a file or the current context may have changed. The
    client connects at its first call, so the server may be away for a while.
    """
    if not server.addresses and "," not in server.socket:
        return Client(UnixTransport(server.socket), timeout=timeout)
    if len(server.addresses) == 1 and not server.socket:
        opener = partial(_open_again, server.addresses[0], server.credentials)
        return Client(FailoverTransport([opener], server.by, server=server), timeout=timeout)
    return _ServerSearch(timeout, user_socket(os.environ), LocalServers()).failover(server)


def _open_again(address: Address, credentials: Credentials, timeout: float) -> Transport:
    return connect_tcp(address, timeout, credentials)[0]


def _open_socket(path: str, timeout: float) -> Transport:
    return UnixTransport(path)


def _paths(target: NamedServer) -> list[str]:
    return [path for path in target.socket.split(",") if path]


class _ServerSearch:
    def __init__(self, timeout: float, user_path: str, local_servers: LocalServers) -> None:
        self.timeout = timeout
        self.probe = min(PROBE_TIMEOUT, timeout)
        self.user = user_path
        self.folder = os.path.dirname(user_path)
        self.places = local_servers
        self.credentials = ANONYMOUS

    def named(self, target: NamedServer) -> FoundServer:
        self.credentials = target.credentials
        socket_paths = _paths(target)
        if len(socket_paths) + len(target.addresses) > 1:
            client = self.failover(target)
            try:
                return FoundServer(client, client.get_server_info(timeout=PATIENCE), "named")
            except BaseException:
                client.close()
                raise
        if socket_paths:
            return self._ask(socket_paths[0], "named")
        (address,) = target.addresses
        return self._local(address) or self._tcp(address, "named")

    def failover(self, target: NamedServer) -> Client:
        """Return a client of whichever of these servers is active. It connects at its first
        call.
        """
        self.credentials = target.credentials
        openers: list[Opener] = [partial(_open_socket, path) for path in _paths(target)]
        openers += [partial(self._open_tcp, address) for address in target.addresses]
        addresses = ",".join([*_paths(target), *map(str, target.addresses)])
        return Client(FailoverTransport(openers, addresses, server=target), timeout=self.timeout)

    def _open_tcp(self, address: Address, timeout: float) -> Transport:
        if local := self._local(address):
            return local.client.transport
        return connect_tcp(address, timeout, self.credentials, failover=True)[0]

    def system(self) -> FoundServer | None:
        """Find the system's server.

        Its socket without a server behind it means that the server is down.
        """
        try:
            is_socket = stat.S_ISSOCK(os.stat(self.places.system).st_mode)
        except OSError:
            return None
        return self._ask(self.places.system, "system") if is_socket else None

    def users(self, found_by: str) -> FoundServer | None:
        """Find this user's own server.

        Its socket without a server behind it was left by one that died.
        """
        if not private_folder(self.folder):
            return None
        try:
            return self._ask(self.user, found_by)
        except Unavailable as error:
            if error.data.get("errno") in _NO_SERVER_ERRNOS:
                return None
            raise

    def default(self) -> FoundServer | None:
        if not listens(self.places.default, self.probe):
            return None
        return self._tcp(self.places.default, "default")

    def away(self, mark_path: str) -> NoReturn:
        raise Unavailable(
            f"this machine's server does not run: there is {mark_path}, and nobody answers at "
            f"{self.places.system}",
            would_work="start it (systemctl start vipu-server), or wait until it is back; another "
            "one has to be named: --api-host, or PODWRIGHT_SOCKET, as of one of your own. If this "
            "machine is to have no server of its own: systemctl mask vipu-server",
            mark=mark_path,
        )

    def started(self, environ: Mapping[str, str]) -> FoundServer:
        private_folder(self.folder, create=True)
        servers: list[FoundServer] = []

        def ready() -> bool:
            try:
                if server := self.users("user"):
                    servers.append(server)
            except TimedOut:
                pass  # the machine is busy: the server runs, and will answer
            return bool(servers)

        started_here = self.places.start(self.folder, environ, ready)
        return servers[0]._replace(how="started") if started_here else servers[0]

    def _local(self, address: Address) -> FoundServer | None:
        """Reach a named server on this machine by its socket, where the kernel says who calls."""
        if address.host not in LOOPBACK_HOSTS or self.credentials.key or self.credentials.certs:
            return None
        for socket_path in (self.places.system, self.user):
            try:
                if socket_path == self.user and not private_folder(self.folder):
                    continue
                server = self._ask(socket_path, "named")
            except PodwrightError:
                continue
            if server.info.port == address.port:
                return server
            server.client.close()
        return None

    def _ask(self, socket_path: str, found_by: str) -> FoundServer:
        client = Client(UnixTransport(socket_path), timeout=self.timeout)
        try:
            return FoundServer(client, client.get_server_info(timeout=self.probe), found_by)
        except BaseException:
            client.close()
            raise

    def _tcp(self, address: Address, found_by: str) -> FoundServer:
        transport, info = connect_tcp(address, self.probe, self.credentials)
        return FoundServer(Client(transport, timeout=self.timeout), info, found_by)
