"""The gRPC front as the server sees it: a port, a gate behind it, and the calls that come through.

The port is ours from the start, so that it is ours or refused before anybody is told of it. The
gate (podwright.gate) is started when somebody first connects: most commands never use TCP, and a
user waits for a server that a command starts. One that dies is started again.
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
    ShownService,
    from_server,
    spawn,
)
from podwright.http import listen
from podwright.server._calls import Calls
from podwright.server._identity import ANONYMOUS
from podwright.server._traces import TRACE_PARENT
from podwright.wire import METHODS, read_certificates

if TYPE_CHECKING:
    from podwright.gate._front import Gate

_log = logging.getLogger("podwright.server")
#: Seconds for which a gate of a server that was killed may still hold the port.
_HANDOVER = 2.0
_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  #: seconds before a gate that died is started again
_encode = msgspec.msgpack.Encoder().encode


class GrpcFront:
    """Serves both protocols on TCP. certs: the folder of TLS certificates; None: no TLS.

    apart: the gate is a process of its own, as a server has it; else it shares this loop.
    """

    def __init__(self, calls: Calls, certs: Path | None = None, *, apart: bool = False) -> None:
        self._calls = calls
        self._certs = certs
        self._apart = apart
        self._listener: socket.socket | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._link: GateLink[Any] | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ending = False
        self.gates = 0  #: that were started
        self._counted = GateCounted()
        self._ended: Counter[str] = Counter()

    async def start(self, host: str, port: int) -> int:
        """Answer on this address; port 0 takes a free one. Returns the port.

        Raises wire.Unavailable when the address cannot be had, wire.InvalidRequest for
        certificates that are none.
        """
        if self._certs is not None:
            check_certificates(self._certs)
        try:
            self._listener = await _listen(host, port)
        except OSError:
            raise Unavailable(
                f"cannot listen on {host}:{port}: it is taken, or no address of this machine",
                would_work="another --api-port, or 0 for a free one",
            ) from None
        asyncio.get_running_loop().add_reader(self._listener, self._first)
        return int(self._listener.getsockname()[1])

    async def stop(self, grace: float) -> None:
        """Accept no more; calls under way have `grace` seconds."""
        if self._listener is None or self._ending:
            return
        self._ending = True
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        if self._link is not None:
            self._link.say(End(grace))
        if self._keeper is not None:
            await asyncio.wait([self._keeper], timeout=grace + 2.0)
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    @property
    def connections(self) -> int:
        """Those that stand, by the gate's last word."""
        return self._counted.open

    def ended(self) -> dict[str, int]:
        """Connections that were ended or not taken, of all gates, by why."""
        return {why: self._ended[why] + count for why, count in self._counted.ended().items()}

    def _first(self) -> None:
        """Somebody knocks: let there be a gate."""
        assert self._listener is not None
        asyncio.get_running_loop().remove_reader(self._listener)
        self._keeper = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        pause = _PAUSE
        while not self._ending:
            begun = time.monotonic()
            try:
                await self._one()
            except OSError as error:
                _log.warning("the gate for gRPC cannot be started: %s", error)
            if self._ending:
                return
            pause = _PAUSE if time.monotonic() - begun > 60 else min(2 * pause, _LONGEST_PAUSE)
            _log.warning("the gate for gRPC has ended; the next one starts in %.1f s", pause)
            await asyncio.sleep(pause)

    async def _one(self) -> None:
        """One gate's life."""
        assert self._listener is not None
        ours, theirs = socket.socketpair()
        self.gates += 1
        self._ended.update(self._counted.ended())
        self._counted = GateCounted()
        process: asyncio.subprocess.Process | None = None
        saying: asyncio.Task[None] | None = None
        gate: Gate | None = None
        try:
            if self._apart:
                with theirs:
                    process = await spawn(self._listener, theirs, self._certs)
                    saying = asyncio.create_task(_retell(process))
            else:
                gate = await _within(self._listener, theirs, self._certs)
            self._link = link = await from_server(ours)
            await self._hear(link)
        finally:
            for task in self._tasks.values():
                task.cancel()
            ours.close()
            if gate is not None and not gate.ended:
                await gate.stop(0)
            if process is not None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            if saying is not None:
                await saying

    async def _hear(self, link: GateLink[Any]) -> None:
        """Begin one call in each turn of the loop, so that all others have theirs between."""
        try:
            while (word := await link.hear()) is not None:
                if isinstance(word, Question):
                    task = asyncio.create_task(self._answer(link, word))
                    self._tasks[word.id] = task
                elif isinstance(word, GateCounted):
                    self._counted = word
                elif (begun := self._tasks.get(word.id)) is not None:
                    begun.cancel()
                await asyncio.sleep(0)
        finally:
            link.close()

    async def _answer(self, link: GateLink[Any], ask: Question) -> None:
        try:
            reply = await self._reply(ask)
        except PodwrightError as refusal:
            link.say(GateRefused(ask.id, refusal.to_json()))
        except Exception:
            _log.exception("%s failed", ask.method)
            link.say(GateRefused(ask.id, Internal("the server failed", asked=ask.method).to_json()))
        else:
            link.say(Done(ask.id, reply))
        finally:
            self._tasks.pop(ask.id, None)

    async def _reply(self, ask: Question) -> bytes:
        if not ask.method:
            return self._calls.health()["status"].encode()
        method = METHODS.get(ask.method)
        if method is None:
            raise InvalidRequest(f"there is no call {ask.method[:100]!r}")
        if ask.method == "AnnounceAgent":  # a hint, which anybody may give
            caller = ANONYMOUS
        else:
            shown: ShownService = ask.shown
            if self._calls.traces is not None:
                TRACE_PARENT.set(dict(shown.metadata).get("traceparent", ""))
            caller = await self._calls.identity.of_metadata(
                shown.metadata, shown.proof, shown.certificate
            )
        try:
            request = msgspec.msgpack.decode(ask.request, type=method.request)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f"{error}", asked=ask.method) from None
        return _encode(await self._calls(caller, method, request))


async def _retell(process: asyncio.subprocess.Process) -> None:
    """What a gate says goes into our log, in its form."""
    assert process.stderr is not None
    while part := await process.stderr.read(4096):
        for line in part.decode("utf-8", "replace").splitlines():
            _log.error("the gate for gRPC: %s", line)


async def _listen(host: str, port: int) -> socket.socket:
    """A listening socket. The gate of a server that was killed may have it for a moment yet."""
    deadline = time.monotonic() + _HANDOVER
    while True:
        try:
            return await listen(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


async def _within(listener: socket.socket, theirs: socket.socket, certs: Path | None) -> Gate:
    """A gate on this loop."""
    from podwright.gate._front import Gate
    from podwright.gate._link import to_server

    setup = Setup(-1, -1, str(certs) if certs else "")
    gate = Gate(listener.dup(), await to_server(theirs), setup)
    await gate.start()
    return gate


def check_certificates(folder: Path) -> None:
    """Can TLS be spoken with them? Raises wire.InvalidRequest."""
    ca, _, _ = read_certificates(str(folder))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(cadata=ca.decode())
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    except (ssl.SSLError, ValueError) as error:
        raise InvalidRequest(
            f"the certificates in {folder} cannot be used: {error}",
            would_work="vipu-server --tls-init makes good ones",
        ) from None
