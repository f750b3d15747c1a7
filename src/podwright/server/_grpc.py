"""The gRPC front: `virmgrpc` and `podwright.v1` on one TCP port, over HTTP/2 of our own."""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path
from socket import SOCK_STREAM
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from podwright.server._calls import Calls
from podwright.server._grpc_heads import Head, Status
from podwright.server._http2 import Connection, Peers
from podwright.wire import InvalidRequest, Unavailable, read_certificates, user_of

if TYPE_CHECKING:
    from podwright.server._grpc_calls import Handler

MAX_MESSAGE = 1024 * 1024
_BACKLOG = 512
_UNIMPLEMENTED = 12


class GrpcFront:
    """Serves both protocols on TCP. certs: the folder of TLS certificates; None: no TLS."""

    def __init__(self, calls: Calls, certs: Path | None = None) -> None:
        self._calls = calls
        self._certs = certs
        self._handlers: dict[str, Handler] = {}
        self._server: asyncio.Server | None = None
        self._peers = Peers()
        self._certificates: WeakKeyDictionary[Connection, tuple[str, str]] = WeakKeyDictionary()

    async def start(self, host: str, port: int) -> int:
        """Answer on this address; port 0 takes a free one. Returns the port.

        Raises wire.Unavailable when the address cannot be had, wire.InvalidRequest for
        certificates that are none.
        """
        loop = asyncio.get_running_loop()
        try:
            tls = _tls(self._certs) if self._certs is not None else None
            if not port:  # one port, not one for each address that a name has
                host = str((await loop.getaddrinfo(host, 0, type=SOCK_STREAM))[0][4][0])
            self._server = await loop.create_server(
                self._connect, host, port, ssl=tls, backlog=_BACKLOG
            )
        except OSError:
            raise Unavailable(
                f"cannot listen on {host}:{port}: it is taken, or no address of this machine",
                would_work="another --api-port, or 0 for a free one",
            ) from None
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self, grace: float) -> None:
        """Accept no more; calls under way have `grace` seconds."""
        if self._server is None:
            return
        self._server.close()
        self._peers.ended = True
        await asyncio.sleep(0)  # who was just let in stands among them after this
        for peer in list(self._peers):
            peer.end()
        if tasks := [task for peer in self._peers for task in peer.tasks]:
            await asyncio.wait(tasks, timeout=grace)
        for peer in list(self._peers):
            peer.close()
        await self._left(1.0)
        for peer in list(self._peers):
            peer.transport.abort()
        await self._left(1.0)

    async def _left(self, seconds: float) -> None:
        """Wait until all have gone, but no longer."""
        if left := [peer.gone for peer in self._peers]:
            await asyncio.wait(left, timeout=seconds)

    def _connect(self) -> Connection:
        return Connection(self._answer, MAX_MESSAGE, self._peers)

    async def _answer(self, connection: Connection, head: Head, message: bytes) -> bytes:
        if not self._handlers:
            from podwright.server._grpc_calls import handlers

            self._handlers = handlers(self._calls)
        handler = self._handlers.get(head.path)
        if handler is None:
            raise Status(_UNIMPLEMENTED, f"there is no {head.path[:100]}")
        certificate = ("", "")
        if self._certs is not None:
            certificate = self._certificates.get(connection) or _certificate(connection)
            self._certificates[connection] = certificate
        return await handler(message, head, certificate)


def _tls(folder: Path) -> ssl.SSLContext:
    """Both sides show a certificate of the same authority. Raises wire.InvalidRequest."""
    ca, _, _ = read_certificates(str(folder))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(cadata=ca.decode())
        context.load_cert_chain(os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem"))
    except (ssl.SSLError, ValueError) as error:
        raise InvalidRequest(
            f"the certificates in {folder} cannot be used: {error}",
            would_work="vipu-server --tls-init makes good ones",
        ) from None
    return context


def _certificate(connection: Connection) -> tuple[str, str]:
    """Whose a connection's certificate is (wire.user_of)."""
    found = connection.transport.get_extra_info("peercert")
    if not found:
        return "", ""
    names = [str(value) for _, value in found.get("subjectAltName", ())]
    common = [value for part in found["subject"] for key, value in part if key == "commonName"]
    return user_of(names, common[0] if common else "")
