"""The gRPC front as the server sees it: a port, a gate behind it, and the calls that come through.

The server binds the port at its start, so that the port is either its own or refused before any
client learns of it. The gate (podwright.gate) is started when the first client connects: most
commands never use TCP, and a user waits for a server that a command starts. A gate that dies is
started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from podwright.errors import Internal, InvalidRequest, PodwrightError, Unavailable
from podwright.gate import (
    Done,
    End,
    GateCounted,
    GateLink,
    GateRefused,
    Question,
    Setup,
    ShownCredentials,
    from_server,
    spawn,
)
from podwright.http import listen
from podwright.server._caller_identity import ANONYMOUS_CALLER
from podwright.server._dispatch_calls import Calls
from podwright.wire import METHODS, read_certificates

if TYPE_CHECKING:
    from podwright.gate._grpc_server import Gate

_log = logging.getLogger("podwright.server")
#: Seconds for which the gate of a killed server may still hold the port.
_ADDRESS_WAIT_S = 2.0
_RESTART_PAUSE_S, _LONGEST_RESTART_PAUSE_S = (
    0.1,
    5.0,
)  #: seconds after which a gate that died is started again
_encode_msgpack = msgspec.msgpack.Encoder().encode


class GrpcFront:
    """Serves both protocols on TCP. certificate_folder: the folder of TLS certificates; None: no
    TLS.

    own_process: the gate is a process of its own, as in a server; otherwise it shares this loop.
    """

    def __init__(
        self, calls: Calls, certificate_folder: Path | None = None, *, own_process: bool = False
    ) -> None:
        self._calls = calls
        self._certs = certificate_folder
        self._apart = own_process
        self._listener: socket.socket | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._link: GateLink[Any] | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ending = False
        self.gates = 0  #: number of gates that were started
        self._counted = GateCounted()
        self._ended_connections: Counter[str] = Counter()

    async def start(self, host: str, port: int) -> int:
        """Answer on this address; port 0 takes a free one. Return the port.

        Raises wire.Unavailable when the address cannot be bound, and wire.InvalidRequest for
        invalid certificates.
        """
        if self._certs is not None:
            check_certificates(self._certs)
        try:
            self._listener = await _open_listener(host, port)
        except OSError:
            raise Unavailable(
                f"cannot listen on {host}:{port}: it is taken, or no address of this machine",
                would_work="give another --api-port, or 0 for a free one",
            ) from None
        asyncio.get_running_loop().add_reader(self._listener, self._start_first_gate)
        return int(self._listener.getsockname()[1])

    async def stop(self, grace: float) -> None:
        """Accept no more calls. Calls under way have `grace` seconds to end."""
        if self._listener is None or self._ending:
            return
        self._ending = True
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        if self._link is not None:
            self._link.send(End(grace))
        if self._keeper is not None:
            await asyncio.wait([self._keeper], timeout=grace + 2.0)
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    @property
    def connections(self) -> int:
        """The number of connections that have a place, by the gate's last report."""
        return self._counted.open

    @property
    def waiting(self) -> int:
        """The number of connections that wait for a place, by the gate's last report."""
        return self._counted.waiting

    def closed_connections(self) -> dict[str, int]:
        """The number of connections that were ended or not accepted, over all gates, by reason."""
        return {
            reason: self._ended_connections[reason] + count
            for reason, count in self._counted.counts_by_reason().items()
        }

    def _start_first_gate(self) -> None:
        """Start a gate at the first connection."""
        assert self._listener is not None
        asyncio.get_running_loop().remove_reader(self._listener)
        self._keeper = asyncio.create_task(self._keep_gate_running())

    async def _keep_gate_running(self) -> None:
        restart_pause = _RESTART_PAUSE_S
        while not self._ending:
            started_at = time.monotonic()
            try:
                await self._run_gate()
            except OSError as error:
                _log.warning("the gate for gRPC cannot be started: %s", error)
            if self._ending:
                return
            restart_pause = (
                _RESTART_PAUSE_S
                if time.monotonic() - started_at > 60
                else min(2 * restart_pause, _LONGEST_RESTART_PAUSE_S)
            )
            _log.warning(
                "the gate for gRPC has ended; the next one starts in %.1f s", restart_pause
            )
            await asyncio.sleep(restart_pause)

    async def _run_gate(self) -> None:
        """Run one gate until it ends."""
        assert self._listener is not None
        server_end, gate_end = socket.socketpair()
        self.gates += 1
        self._ended_connections.update(self._counted.counts_by_reason())
        self._counted = GateCounted()
        process: asyncio.subprocess.Process | None = None
        output_task: asyncio.Task[None] | None = None
        gate: Gate | None = None
        try:
            if self._apart:
                with gate_end:
                    process = await spawn(self._listener, gate_end, self._certs)
                    output_task = asyncio.create_task(_log_gate_output(process))
            else:
                gate = await _gate_in_process(self._listener, gate_end, self._certs)
            self._link = link = await from_server(server_end)
            await self._hear(link)
        finally:
            for task in self._tasks.values():
                task.cancel()
            server_end.close()
            if gate is not None and not gate.is_closed:
                await gate.stop(0)
            if process is not None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            if output_task is not None:
                await output_task

    async def _hear(self, link: GateLink[Any]) -> None:
        """Begin one call in each turn of the loop, so that other tasks run in between."""
        try:
            while (message := await link.hear()) is not None:
                if isinstance(message, Question):
                    task = asyncio.create_task(self._answer(link, message))
                    self._tasks[message.id] = task
                elif isinstance(message, GateCounted):
                    self._counted = message
                elif (running_task := self._tasks.get(message.id)) is not None:
                    running_task.cancel()
                await asyncio.sleep(0)
        finally:
            link.close()

    async def _answer(self, link: GateLink[Any], question: Question) -> None:
        try:
            reply = await self._reply_bytes(question)
        except PodwrightError as refusal:
            link.send(GateRefused(question.id, refusal.to_json()))
        except Exception:
            _log.exception("%s failed", question.method)
            link.send(
                GateRefused(
                    question.id, Internal("the server failed", operation=question.method).to_json()
                )
            )
        else:
            link.send(Done(question.id, reply))
        finally:
            self._tasks.pop(question.id, None)

    async def _reply_bytes(self, question: Question) -> bytes:
        if not question.method:
            return self._calls.health()["status"].encode()
        method = METHODS.get(question.method)
        if method is None:
            raise InvalidRequest(f"there is no call {question.method[:100]!r}")
        if question.method == "AnnounceAgent":  # it is a hint, which every caller may give
            caller = ANONYMOUS_CALLER
        else:
            credentials: ShownCredentials = question.shown
            caller = await self._calls.identity.caller_of_metadata(
                credentials.metadata, credentials.proof, credentials.certificate
            )
        try:
            request = msgspec.msgpack.decode(question.request, type=method.request)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f"{error}", operation=question.method) from None
        return _encode_msgpack(await self._calls(caller, method, request))


async def _log_gate_output(process: asyncio.subprocess.Process) -> None:
    """Write a gate's output into the server's log, in the log's form."""
    assert process.stderr is not None
    while chunk := await process.stderr.read(4096):
        for line in chunk.decode("utf-8", "replace").splitlines():
            _log.error("the gate for gRPC: %s", line)


async def _open_listener(host: str, port: int) -> socket.socket:
    """Return a listening socket. The gate of a killed server may hold the address for a moment."""
    deadline = time.monotonic() + _ADDRESS_WAIT_S
    while True:
        try:
            return await listen(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


async def _gate_in_process(
    listener: socket.socket, gate_end: socket.socket, certificate_folder: Path | None
) -> Gate:
    """Return a gate that runs on this loop."""
    from podwright.gate._gate_server_link import to_server
    from podwright.gate._grpc_server import Gate

    setup = Setup(-1, -1, str(certificate_folder) if certificate_folder else "")
    gate = Gate(listener.dup(), await to_server(gate_end), setup)
    await gate.start()
    return gate


def check_certificates(folder: Path) -> None:
    """Check that the certificates can be used for TLS. Raises wire.InvalidRequest."""
    pem, _, _ = read_certificates(str(folder))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(cadata=pem.decode())
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    except (ssl.SSLError, ValueError) as error:
        raise InvalidRequest(
            f"the certificates in {folder} cannot be used: {error}",
            would_work="vipu-server --tls-init makes good ones",
        ) from None
