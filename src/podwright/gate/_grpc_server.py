"""The gRPC server of a gate: `virmgrpc` and `podwright.v1`, health and reflection.

This module decodes bytes into values by protobuf. The server receives the values, and the
credentials of their sender.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from typing import Any

import grpc
import grpc.aio
import msgspec

from podwright.errors import (
    Internal,
    NoCapacity,
    PodwrightError,
    ServerBusy,
    TimedOut,
    Unavailable,
    error_from_json,
)
from podwright.gate._byte_forwarder import Forwarder, HiddenSocket, unread
from podwright.gate._gate_process import Setup
from podwright.gate._gate_server_link import (
    Cancel,
    Done,
    End,
    GateCounted,
    GateLink,
    GateRefused,
    Question,
    ShownCredentials,
)
from podwright.gate._handlers import Handler, handlers
from podwright.gate._health_and_reflection import GateHealth, add_services
from podwright.gate._tls import server_credentials
from podwright.gate._virm_handlers import Asker
from podwright.http import TooManyVisitors, Visitors
from podwright.wire import Method, Value, user_of
from podwright.wire.messages import ACCESS_KEY, USER_KEY, error_metadata

_log = logging.getLogger("podwright.server")
#: Seconds of silence after which a connection makes room for one that waits: a busy gate needs
#: that long to begin the first call of a connection.
_PATIENCE_S = 5.0
MAX_MESSAGE_BYTES = 1024 * 1024
MAX_METADATA_BYTES = 16 * 1024
#: Limits of calls at once: of all, and of one address or one account of this host.
MAX_CALLS, MAX_CALLS_PER_CALLER = 1024, 512
#: Limits of requests that have begun and are not yet complete: of all, and of one connection. The
#: third number is the seconds that one may take.
MAX_UNFINISHED_REQUESTS, MAX_UNFINISHED_PER_CALLER, UNFINISHED_S = 4096, 32, 10.0
_REPORT_PERIOD_S = 1.0  #: seconds between two words about the connections
#: Seconds at an end for refusals to be written, and for connections to be closed.
_CLOSING_TIME_S = 0.5
_FORWARDED_HEADERS = frozenset({"authorization", USER_KEY, ACCESS_KEY})
_GRPC_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES + 4096),
    ("grpc.max_concurrent_streams", 64),
    ("grpc.server_handshake_timeout_ms", 20_000),
    ("grpc.max_connection_idle_ms", 600_000),
    # The client of a server with a standby pings it each second during a call.
    ("grpc.http2.min_ping_interval_without_data_ms", 900),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)


class Gate:
    """Serves gRPC at a listening socket, and asks the server at the other end of a link."""

    def __init__(
        self, listener: socket.socket, link: GateLink[Done | GateRefused | End], setup: Setup
    ) -> None:
        self._setup = setup
        self._link = link
        self._inner = HiddenSocket()
        visitors = Visitors(setup.connections, setup.each, patience=_PATIENCE_S, has_unread=unread)
        self._forwarder = Forwarder(
            listener, self._inner, visitors, setup.memory, waiting_limit=setup.waiting
        )
        self._calls = Visitors(MAX_CALLS, MAX_CALLS_PER_CALLER, purpose="calls")
        self._unfinished = Visitors(
            MAX_UNFINISHED_REQUESTS,
            MAX_UNFINISHED_PER_CALLER,
            patience=2.0,
            purpose="unfinished requests",
        )
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[bytes]] = {}
        self._server: Any = None
        self._listening: asyncio.Task[None] | None = None
        self._reporting_task: asyncio.Task[None] | None = None
        self._health: GateHealth | None = None
        self._answering_tasks: set[asyncio.Task[Any]] = set()
        self._stopping_task: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()
        self._handlers = handlers()

    async def start(self) -> None:
        """Start answering."""
        self._server = server = grpc.aio.server(
            options=_GRPC_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS + MAX_UNFINISHED_REQUESTS + 64
        )
        server.add_generic_rpc_handlers((_HandlerTable(self),))
        self._health = add_services(server, self._handlers)
        if self._setup.certs:
            tls = server_credentials(self._setup.certs)
            server.add_secure_port(f"unix:{self._inner.path}", tls)
        else:
            server.add_insecure_port(f"unix:{self._inner.path}")
        await server.start()
        self._inner.hide()
        self._listening = asyncio.create_task(self._hear())
        self._health.begin(self._is_serving)
        self._reporting_task = asyncio.create_task(self._report_counts())
        self._forwarder.start()

    @property
    def is_closed(self) -> bool:
        """Whether the gate has stopped answering."""
        return self._closed.is_set()

    async def wait_until_stopped(self) -> None:
        """Wait until the gate has stopped, because the server asked for it or has gone."""
        await self._closed.wait()

    async def stop(self, grace: float) -> None:
        """Accept no more calls. grace: seconds in which calls that are under way may end.

        A call that is not answered by then, or that arrives meanwhile, gets UNAVAILABLE. gRPC's own
        stop would answer it with CANCELLED (1.85), as if its caller had given up. So gRPC is
        stopped last, when no connection reaches it any more.
        """
        if self._stopping_task is None:
            self._stopping_task = asyncio.create_task(self._stop(grace))
        await asyncio.shield(self._stopping_task)

    async def _stop(self, grace_s: float) -> None:
        self._forwarder.refuse()
        if self._reporting_task is not None:
            self._reporting_task.cancel()
        if self._health is not None:
            await self._health.end()
        for unfinished_call in self._unfinished:
            unfinished_call.leave()
        if self._answering_tasks:
            await asyncio.wait(self._answering_tasks, timeout=grace_s)
        self._fail_pending_calls()
        if self._answering_tasks:
            await asyncio.wait(self._answering_tasks, timeout=_CLOSING_TIME_S)
        await self._forwarder.hang_up(_CLOSING_TIME_S)
        await self._server.stop(0)
        self._forwarder.stop()
        self._link.close()
        self._closed.set()

    def _fail_pending_calls(self) -> None:
        """Refuse all calls that are under way with UNAVAILABLE."""
        for future in self._pending.values():
            if not future.done():
                future.set_exception(_server_ended_error())

    # -- the server ----------------------------------------------------------------------------

    async def _hear(self) -> None:
        task: asyncio.Task[None] | None = None
        while (message := await self._link.hear()) is not None:
            if isinstance(message, End):
                task = task or asyncio.create_task(self.stop(message.grace))
                continue
            future = self._pending.pop(message.id, None)
            if future is None or future.done():
                continue
            if isinstance(message, Done):
                future.set_result(message.reply)
            else:
                future.set_exception(error_from_json(message.error))
        self._fail_pending_calls()
        await self.stop(0)  # the server or the link has gone

    async def _ask_server(
        self, method_name: str, request_bytes: bytes, credentials: ShownCredentials
    ) -> bytes:
        number = next(self._numbers)
        future = self._pending[number] = asyncio.get_running_loop().create_future()
        self._link.send(Question(number, method_name, request_bytes, credentials))
        try:
            await self._link.drained()
            reply: bytes = await future
            return reply
        except OSError:
            raise _server_ended_error() from None
        finally:
            if self._pending.pop(number, None) is not None:
                self._link.send(Cancel(number))

    async def _report_counts(self) -> None:
        """Report the numbers of connections to the server, for its figures."""
        last_counts = GateCounted()
        while True:
            await asyncio.sleep(_REPORT_PERIOD_S)
            if (counts := self._forwarder.counted()) != last_counts:
                self._link.send(counts)
                last_counts = counts

    async def _is_serving(self) -> bool:
        """Return whether the server answers, and is active."""
        try:
            async with asyncio.timeout(5.0):
                reply = await self._ask_server("", b"", ShownCredentials())
        except (TimeoutError, PodwrightError):
            return False
        return reply == b"ok"

    def caller(self, credentials: ShownCredentials) -> Asker:
        """Return the function by which a call's handler asks the server on behalf of the caller."""

        async def ask(method: Method, request: Value) -> Any:
            request_bytes = msgspec.msgpack.encode(request)
            reply_bytes = await self._ask_server(method.name, request_bytes, credentials)
            return msgspec.msgpack.decode(reply_bytes, type=method.reply)

        return ask

    # -- strangers -----------------------------------------------------------------------------

    def handler(self, method_path: str, metadata: Any) -> Any:
        """Return gRPC's handler of a path; None: there is none."""
        handler = self._handlers.get(method_path)
        if handler is None:
            return None
        headers = [
            (name, str(header_value))
            for name, header_value in metadata or ()
            if name in _FORWARDED_HEADERS
        ]

        async def answer(messages: Any, call_context: Any) -> bytes:
            return await self._answer(method_path, handler, headers, messages, call_context)

        # A handler for a stream of requests sees a call begin before its message is complete.
        return grpc.stream_unary_rpc_method_handler(answer)

    async def _answer(
        self,
        method_path: str,
        handler: Handler,
        headers: list[tuple[str, str]],
        messages: Any,
        call_context: Any,
    ) -> bytes:
        connection_name = str(call_context.peer()).removeprefix("unix-abstract:")
        peer_address, caller_key = self._forwarder.peer(connection_name)
        call, task = _UnfinishedCall(), asyncio.current_task()
        assert task is not None
        self._answering_tasks.add(task)
        task.add_done_callback(self._answering_tasks.discard)
        try:
            if self._stopping_task is not None:
                raise _server_ended_error()
            if retry_after := self._forwarder.busy_retry_after_s(connection_name):
                raise ServerBusy.of(retry_after)
            message = await self._whole_message(messages, connection_name)
            self._forwarder.note_call_start(connection_name, len(message))
            call.name = connection_name
            self._calls.enter(call, caller_key)
            return await handler(
                self.caller,
                method_path,
                message,
                self._shown_credentials(call_context, peer_address, headers),
            )
        except TooManyVisitors as too_many:
            refusal: PodwrightError = NoCapacity(f"{too_many} at once", would_work="ask again")
        except PodwrightError as error:
            refusal = error
        except Exception:
            _log.exception("%s failed", method_path)
            refusal = Internal("the server failed", would_work="its log says more")
        finally:
            self._calls.gone(call)
            if call.name:
                self._forwarder.note_call_end(call.name)
        await call_context.abort(
            grpc.StatusCode[refusal.code],
            refusal.message[:1000],
            trailing_metadata=error_metadata(refusal),
        )
        raise AssertionError("abort always raises")

    async def _whole_message(self, messages: Any, connection_name: str) -> bytes:
        """Return the message when it is complete. Raises TooManyVisitors, or wire.TimedOut."""
        unfinished_call = _UnfinishedCall(
            silent_since=time.monotonic(), task=asyncio.current_task()
        )
        self._unfinished.enter(unfinished_call, connection_name)
        try:
            async with asyncio.timeout(UNFINISHED_S):
                message = await anext(aiter(messages), None)
        except TimeoutError:
            raise TimedOut(f"the request was not whole within {UNFINISHED_S:g} s") from None
        except asyncio.CancelledError:
            if not unfinished_call.was_sent_away:
                raise
            if self._stopping_task is not None:
                raise _server_ended_error() from None
            raise TooManyVisitors(MAX_UNFINISHED_PER_CALLER, "unfinished requests") from None
        finally:
            self._unfinished.gone(unfinished_call)
        return b"" if message is None else bytes(message)

    def _shown_credentials(
        self, call_context: Any, peer_address: str, headers: list[tuple[str, str]]
    ) -> ShownCredentials:
        if not self._setup.certs:
            return ShownCredentials(metadata=headers, peer=peer_address)
        auth_context = call_context.auth_context()
        alternative_names = [
            name.decode() for name in auth_context.get("x509_subject_alternative_name", ())
        ]
        common_names = [name.decode() for name in auth_context.get("x509_common_name", ())]
        user = user_of(alternative_names, common_names[0] if common_names else "")
        return ShownCredentials(metadata=headers, peer=peer_address, certificate=user)


def _server_ended_error() -> Unavailable:
    return Unavailable("the server has ended", would_work="try again")


class _UnfinishedCall:
    """A call, or its message while it arrives.

    task: the task that waits for the message. name: of the connection, once the message is
    complete.
    """

    def __init__(
        self, silent_since: float = float("inf"), task: asyncio.Task[Any] | None = None
    ) -> None:
        self.silent_since = silent_since
        self._task = task
        self.was_sent_away = False
        self.name = ""

    def leave(self) -> None:
        """Give up waiting for the message."""
        self.was_sent_away = True
        if self._task is not None:
            self._task.cancel()


class _HandlerTable(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Maps the path of each call to its handler."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def service(self, details: Any) -> Any:
        """Return the handler of a call; None makes gRPC answer UNIMPLEMENTED."""
        return self._gate.handler(details.method, details.invocation_metadata)
