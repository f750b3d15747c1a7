"""The way to a worker through the API server (pods/exec), for launchers that were given the right.

It carries bytes to the worker's own door and back (_worker_tunnel). The TLS of launcher and worker
goes through it from end to end: the API server sees neither words nor output, and whoever has not
the job's keys is let in no more this way than by the door itself.
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

#: Where Kubernetes puts what a pod shows the API server, and what it believes of it.
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PROTOCOL: Final = "v4.channel.k8s.io"
_MODULE: Final = "podwright.hosts._worker_tunnel"
#: Seconds that the API server has to say goodbye; without it, the connection just ends.
_CLOSE: Final = 0.5
#: The first byte of a message says what it is.
_INPUT, _OUTPUT, _ERRORS, _STATUS = range(4)
_STREAMS: Final = ("stdin", "stdout", "stderr")


class NoTunnel(Exception):
    """The API server makes no way to a worker. Argument: why."""


class ExecPlace(NamedTuple):
    """Where a job's workers are for pods/exec. container: the one with the door. server: the API
    server's address. account: the folder of what this pod shows it."""

    namespace: str
    container: str
    server: str
    account: Path


class Tunnel(NamedTuple):
    """The near end of a tunnel, and what is said of why it closed."""

    end: socket.socket
    said: list[str]


def exec_place(environ: Mapping[str, str]) -> ExecPlace | None:
    """None: this launcher was not given the right."""
    namespace, _, container = environ.get(EXEC_VARIABLE, "").partition("/")
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    if not (namespace and container and host):
        return None
    at = f"[{host}]" if ":" in host else host
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    return ExecPlace(namespace, container, f"https://{at}:{port}", ACCOUNT)


@contextlib.asynccontextmanager
async def open_tunnel(place: ExecPlace, pod: str, port: int) -> AsyncIterator[Tunnel]:
    """Bytes to that port of a worker there and back. Raises NoTunnel."""
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
        said: list[str] = []
        with near, far:
            near.setblocking(False)
            far.setblocking(False)
            carries = asyncio.gather(_carry_in(far, line), _carry_out(line, far, said))
            try:
                yield Tunnel(near, said)
            finally:
                carries.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await carries
                await line.close()


async def _carry_in(far: socket.socket, line: aiohttp.ClientWebSocketResponse) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):  # aiohttp.ClientError is one, where a connection is lost
        while data := await loop.sock_recv(far, CHUNK):
            await line.send_bytes(bytes([_INPUT]) + data)


async def _carry_out(
    line: aiohttp.ClientWebSocketResponse, far: socket.socket, said: list[str]
) -> None:
    """Until the tunnel closes: then the near end hears so."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        async for message in line:
            if not isinstance(message.data, bytes) or not message.data:
                continue
            kind, data = message.data[0], message.data[1:]
            if kind == _OUTPUT:
                await loop.sock_sendall(far, data)
            elif kind == _ERRORS:
                said.append(data.decode(errors="replace").strip())
            elif kind == _STATUS:
                said += _failure(data)
        far.shutdown(socket.SHUT_RDWR)


def _failure(data: bytes) -> list[str]:
    """Why nothing could be run there, as the API server says it."""
    try:
        status = json.loads(data)
        if status.get("status") == "Success" or status.get("reason") == "NonZeroExitCode":
            return []
        return [str(status.get("message") or "")]
    except (ValueError, AttributeError):
        return []
