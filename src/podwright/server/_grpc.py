"""The gRPC front: `virmgrpc` and `podwright.v1` on one TCP port, both driven by tables.

Imported only when the port is opened: grpc takes longer to import than all else together.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from podwright.controller import Caller
from podwright.server._calls import Calls
from podwright.server._identity import ANONYMOUS
from podwright.server._virm import ANSWERS, Answer
from podwright.wire import (
    METHODS,
    Internal,
    InvalidRequest,
    Method,
    PodwrightError,
    Unavailable,
    messages,
    read_certificates,
    user_of,
    virm,
)

_log = logging.getLogger("podwright.server")
MAX_MESSAGE = 1024 * 1024

_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a second server on the same port is an error, not a partner
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.max_concurrent_streams", 1024),
    # Clients that know two servers ask each second whether this one is still there.
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
)
_Handler = Callable[[bytes, Any], Awaitable[bytes]]


class GrpcFront:
    """Serves both protocols on TCP. certs: the folder of TLS certificates; None: no TLS."""

    def __init__(self, calls: Calls, certs: Path | None = None) -> None:
        self._calls = calls
        self._certs = certs
        self._server: Any = None

    async def start(self, host: str, port: int) -> int:
        """Answer on this address; port 0 takes a free one. Returns the port.

        host: an address or name, or `unix:PATH`, where the port means nothing.

        Raises wire.Unavailable when the address cannot be had.
        """
        server = grpc.aio.server(options=_OPTIONS)
        tls = self._certs is not None and not host.startswith("unix:")
        server.add_generic_rpc_handlers((_Table(self._calls, tls),))
        if host.startswith("unix:"):
            address = host
        else:
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._certs is None or not tls:
                bound = server.add_insecure_port(address)
            else:
                bound = server.add_secure_port(address, _tls(self._certs))
        except RuntimeError:
            bound = 0
        if not bound:
            raise Unavailable(
                f"cannot listen on {address}: it is taken, or no address of this machine",
                would_work="another --api-port, or 0 for a free one",
            )
        await server.start()
        self._server = server
        return int(bound)

    async def stop(self, grace: float) -> None:
        """Accept no more; calls under way have `grace` seconds."""
        if self._server is not None:
            await self._server.stop(grace)


def _tls(folder: Path) -> Any:
    """Both sides show a certificate of the same authority. Raises wire.InvalidRequest."""
    ca, key, cert = read_certificates(str(folder))
    return grpc.ssl_server_credentials(
        [(key, cert)], root_certificates=ca, require_client_auth=True
    )


class _Table(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Every call's handler, by its path."""

    def __init__(self, calls: Calls, tls: bool) -> None:
        ours = {messages.method_path(name): _ours(calls, m, tls) for name, m in METHODS.items()}
        theirs = {
            m.path: _theirs(calls, m, ANSWERS[name], tls) for name, m in virm.VIRM_METHODS.items()
        }
        self._handlers = {
            path: grpc.unary_unary_rpc_method_handler(handler)
            for path, handler in (ours | theirs).items()
        }

    def service(self, details: Any) -> Any:
        """The handler of a call, or None: UNIMPLEMENTED."""
        return self._handlers.get(details.method)


async def _caller(calls: Calls, path: str, data: bytes, context: Any, tls: bool) -> Caller:
    shown = _certificate(context.auth_context()) if tls else ("", "")
    metadata = context.invocation_metadata()
    return await calls.identity.of_metadata(metadata, path, data, shown)


def _certificate(found: Mapping[str, Sequence[bytes]]) -> tuple[str, str]:
    """Whose a connection's certificate is (wire.user_of)."""
    names, common = (
        [name.decode("utf-8", "replace") for name in found.get(key, ())]
        for key in ("x509_subject_alternative_name", "x509_common_name")
    )
    return user_of(names, common[0] if common else "")


def _ours(calls: Calls, method: Method, tls: bool) -> _Handler:
    path = messages.method_path(method.name)

    async def answer(data: bytes, context: Any) -> bytes:
        if method.name == "AnnounceAgent":  # a hint, which anybody may give
            caller = ANONYMOUS
        else:
            caller = await _caller(calls, path, data, context, tls)
        reply = await calls(caller, method, messages.decode(method.request, data))
        return messages.encode(reply)

    return _refusing(method.name, answer)


def _theirs(calls: Calls, method: virm.VirmMethod, answer_message: Answer, tls: bool) -> _Handler:
    async def answer(data: bytes, context: Any) -> bytes:
        caller = await _caller(calls, method.path, data, context, tls)
        try:
            message = method.request.FromString(data)
        except DecodeError:
            name = method.request.DESCRIPTOR.name
            raise InvalidRequest(f"these {len(data)} bytes are no {name}") from None
        reply: bytes = (await answer_message(calls, caller, message)).SerializeToString()
        return reply

    return _refusing(method.path.rpartition("/")[2], answer)


def _refusing(name: str, answer: _Handler) -> _Handler:
    """A refusal becomes its status code, its sentence, and its JSON in trailing metadata."""

    async def handler(data: bytes, context: Any) -> bytes:
        try:
            return await answer(data, context)
        except PodwrightError as error:
            refusal = error
        except Exception:
            _log.exception("%s failed", name)
            refusal = Internal("the server failed", asked=name, would_work="its log says more")
        return await _abort(context, refusal)

    return handler


async def _abort(context: Any, refusal: PodwrightError) -> bytes:
    await context.abort(
        grpc.StatusCode[refusal.code],
        refusal.message[:1000],
        trailing_metadata=messages.error_metadata(refusal),
    )
    raise AssertionError("abort always raises")
