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

from podwright.hosts._kubernetes_workers import EXEC_VARIABLE, STREAM_CHUNK_BYTES

if TYPE_CHECKING:
    import aiohttp

#: Where Kubernetes puts a pod's token, and the certificate by which it trusts the API server.
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_PROTOCOL: Final = "v4.channel.k8s.io"
_TUNNEL_MODULE: Final = "podwright.guests.kubernetes.workers._worker_tunnel"
#: Seconds for the API server to close the WebSocket. After that the connection is cut.
_CLOSE_TIMEOUT_S: Final = 0.5
#: The first byte of a message says what it is.
_INPUT_CHANNEL, _OUTPUT_CHANNEL, _ERROR_CHANNEL, _STATUS_CHANNEL = range(4)
_STREAM_NAMES: Final = ("stdin", "stdout", "stderr")


class TunnelRefused(Exception):
    """The API server opens no tunnel to a worker. Argument: why."""


class ExecTarget(NamedTuple):
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


def read_exec_target(environ: Mapping[str, str]) -> ExecTarget | None:
    """Return what pods/exec needs, or None if this launcher was not given the right."""
    namespace, _, container = environ.get(EXEC_VARIABLE, "").partition("/")
    api_server_host = environ.get("KUBERNETES_SERVICE_HOST", "")
    if not (namespace and container and api_server_host):
        return None
    url_host = f"[{api_server_host}]" if ":" in api_server_host else api_server_host
    api_server_port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    return ExecTarget(namespace, container, f"https://{url_host}:{api_server_port}", ACCOUNT)


@contextlib.asynccontextmanager
async def open_tunnel(
    exec_target: ExecTarget, pod_name: str, worker_port: int
) -> AsyncIterator[Tunnel]:
    """Open a tunnel to that port of a worker. Raises TunnelRefused."""
    import aiohttp

    exec_path = f"/api/v1/namespaces/{exec_target.namespace}/pods/{pod_name}/exec"
    command = (sys.executable, "-P", "-m", _TUNNEL_MODULE, str(worker_port))
    query_parameters = [
        ("container", exec_target.container),
        *((stream_name, "true") for stream_name in _STREAM_NAMES),
    ]
    query_parameters += [("command", command_word) for command_word in command]
    try:
        tls_context = ssl.create_default_context(cafile=str(exec_target.account / "ca.crt"))
        account_token = (exec_target.account / "token").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise TunnelRefused(f"this pod has no account: {error.strerror}") from None
    async with aiohttp.ClientSession() as session:
        try:
            websocket = await session.ws_connect(
                exec_target.server + exec_path,
                params=query_parameters,
                headers={"Authorization": f"Bearer {account_token}"},
                protocols=[_EXEC_PROTOCOL],
                timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_TIMEOUT_S),
                ssl=tls_context,
            )
        except aiohttp.WSServerHandshakeError as error:
            raise TunnelRefused(f"the API server refuses pods/exec: {error.status}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise TunnelRefused(f"the API server does not answer: {error}") from None
        near_socket, far_socket = socket.socketpair()
        close_messages: list[str] = []
        with near_socket, far_socket:
            near_socket.setblocking(False)
            far_socket.setblocking(False)
            carry_tasks = asyncio.gather(
                _carry_to_pod(far_socket, websocket),
                _carry_from_pod(websocket, far_socket, close_messages),
            )
            try:
                yield Tunnel(near_socket, close_messages)
            finally:
                carry_tasks.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await carry_tasks
                await websocket.close()


async def _carry_to_pod(
    far_socket: socket.socket, websocket: aiohttp.ClientWebSocketResponse
) -> None:
    event_loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):  # aiohttp's error for a lost connection is an OSError
        while chunk := await event_loop.sock_recv(far_socket, STREAM_CHUNK_BYTES):
            await websocket.send_bytes(bytes([_INPUT_CHANNEL]) + chunk)


async def _carry_from_pod(
    websocket: aiohttp.ClientWebSocketResponse, far_socket: socket.socket, close_messages: list[str]
) -> None:
    """Pass bytes on until the tunnel closes. The near end then reads its end."""
    event_loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        async for websocket_message in websocket:
            if not isinstance(websocket_message.data, bytes) or not websocket_message.data:
                continue
            channel, payload = websocket_message.data[0], websocket_message.data[1:]
            if channel == _OUTPUT_CHANNEL:
                await event_loop.sock_sendall(far_socket, payload)
            elif channel == _ERROR_CHANNEL:
                close_messages.append(payload.decode(errors="replace").strip())
            elif channel == _STATUS_CHANNEL:
                close_messages += _failure_messages(payload)
        far_socket.shutdown(socket.SHUT_RDWR)


def _failure_messages(status_json: bytes) -> list[str]:
    """Return why nothing could be run in the worker, in the API server's words."""
    try:
        exec_status = json.loads(status_json)
        if exec_status.get("status") == "Success" or exec_status.get("reason") == "NonZeroExitCode":
            return []
        return [str(exec_status.get("message") or "")]
    except (ValueError, AttributeError):
        return []
