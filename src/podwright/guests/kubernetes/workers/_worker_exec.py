"""Reaches a worker through the API server (pods/exec), for launchers that were given the right.

It passes bytes to the worker's own door and back (_worker_tunnel). The TLS connection of launcher
and worker goes through it from end to end. So the API server sees neither commands nor output, and
a caller without the job's keys is refused on this way as at the door itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from podwright.hosts._job_workers import CHUNK, EXEC_VARIABLE

if TYPE_CHECKING:
    import aiohttp

#: Where Kubernetes puts a pod's token, and the certificate by which it trusts the API server.
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PROTOCOL: Final = "v4.channel.k8s.io"
_MODULE: Final = "podwright.guests.kubernetes.workers._worker_tunnel"
#: Seconds for the API server to close the WebSocket. After that the connection is cut.
_CLOSE: Final = 0.5
#: The first byte of a message says what it is.
_INPUT, _OUTPUT, _ERRORS, _STATUS = range(4)
_STREAMS: Final = ("stdin", "stdout", "stderr")


class NoTunnel(Exception):
    """The API server opens no tunnel to a worker. Argument: why."""


class ExecPlace(NamedTuple):
    """What pods/exec needs to reach a job's workers.

    container: the container with the door. server: the URL of the API server. account: the folder
    with this pod's token and the API server's certificate.
    """

    namespace: str
    container: str
    server: str
    account: Path


class Tunnel(NamedTuple):
    """The near end of a tunnel, and the messages that say why it closed."""

    end: socket.socket
    messages: list[str]


def exec_place(environ: Mapping[str, str]) -> ExecPlace | None:
    """Return what pods/exec needs, or None if this launcher was not given the right."""
    namespace, _, container = environ.get(EXEC_VARIABLE, "").partition("/")
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    if not (namespace and container and host):
        return None
    url_host = f"[{host}]" if ":" in host else host
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    return ExecPlace(namespace, container, f"https://{url_host}:{port}", ACCOUNT)


@contextlib.asynccontextmanager
async def open_tunnel(place: ExecPlace, pod: str, port: int) -> AsyncIterator[Tunnel]:
    """Open a tunnel to that port of a worker. Raises NoTunnel."""
    import aiohttp

    path = f"/api/v1/namespaces/{place.namespace}/pods/{pod}/exec"
    command = (sys.executable, "-P", "-m", _MODULE, str(port))
    query = [("container", place.container), *((kind, "true") for kind in _STREAMS)]
    query += [("command", word) for word in command]
    try:
        believed = ssl.create_default_context(cafile=str(place.account / "ca.crt"))
        token = (place.account / "token").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise NoTunnel(f"this pod has no account: {error.strerror}") from None
    async with aiohttp.ClientSession() as session:
        try:
            line = await session.ws_connect(
                place.server + path,
                params=query,
                headers={"Authorization": f"Bearer {token}"},
                protocols=[_PROTOCOL],
                timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE),
                ssl=believed,
            )
        except aiohttp.WSServerHandshakeError as error:
            raise NoTunnel(f"the API server refuses pods/exec: {error.status}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise NoTunnel(f"the API server does not answer: {error}") from None
        near, far = socket.socketpair()
        messages: list[str] = []
        with near, far:
            near.setblocking(False)
            far.setblocking(False)
            carries = asyncio.gather(_carry_in(far, line), _carry_out(line, far, messages))
            try:
                yield Tunnel(near, messages)
            finally:
                carries.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await carries
                await line.close()


async def _carry_in(far: socket.socket, line: aiohttp.ClientWebSocketResponse) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):  # aiohttp's error for a lost connection is an OSError
        while data := await loop.sock_recv(far, CHUNK):
            await line.send_bytes(bytes([_INPUT]) + data)


async def _carry_out(
    line: aiohttp.ClientWebSocketResponse, far: socket.socket, messages: list[str]
) -> None:
    """Pass bytes on until the tunnel closes. The near end then reads its end."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        async for message in line:
            if not isinstance(message.data, bytes) or not message.data:
                continue
            kind, data = message.data[0], message.data[1:]
            if kind == _OUTPUT:
                await loop.sock_sendall(far, data)
            elif kind == _ERRORS:
                messages.append(data.decode(errors="replace").strip())
            elif kind == _STATUS:
                messages += _failure(data)
        far.shutdown(socket.SHUT_RDWR)


def _failure(data: bytes) -> list[str]:
    """Return why nothing could be run in the worker, in the API server's words."""
    try:
        status = json.loads(data)
        if status.get("status") == "Success" or status.get("reason") == "NonZeroExitCode":
            return []
        return [str(status.get("message") or "")]
    except (ValueError, AttributeError):
        return []
