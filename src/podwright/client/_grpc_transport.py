"""Calls over gRPC, the wire protocol of V-IPU, for servers on other machines.

Importing this module imports grpc and protobuf. No other module of this package does so at its top.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from podwright.client._local_server_paths import LOOPBACK_HOSTS
from podwright.client._named_server import (
    ANONYMOUS,
    Address,
    Credentials,
    NamedServer,
    unreachable_error,
)
from podwright.client._verified_loopback import VerifiedLoopback
from podwright.errors import (
    InvalidRequest,
    PodwrightError,
    ServerBusy,
    TimedOut,
    Unauthenticated,
    Unavailable,
    error_from_code,
    error_from_json,
)
from podwright.wire import Method, Value, munge_payload, read_certificates
from podwright.wire.messages import (
    ACCESS_KEY,
    ERROR_KEY,
    USER_KEY,
    decode,
    encode,
    method_path,
)

if TYPE_CHECKING:
    from podwright.hosts import Vouches

_OPTIONS = (
    ("grpc.enable_http_proxy", 0),  # a controller is not behind a web proxy
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),  # a listing of a million devices
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.http2.max_pings_without_data", 0),
)
#: Seconds of silence in a call after which the client asks whether the server is alive, and seconds
#: for its answer. A host that lost its power sends nothing. Where another server may take over,
#: that must be detected within the five seconds of a takeover.
_KEEPALIVE_S = (20.0, 20.0)
_KEEPALIVE_FAILOVER = (1.0, 2.0)


class UnsupportedCall(InvalidRequest):
    """The server does not have this call."""


def _check_key_privacy(address: Address, credentials: Credentials) -> None:
    if not credentials.certs and address.host not in LOOPBACK_HOSTS:
        raise InvalidRequest(
            f"the access key would travel to {address} for all to read",
            would_work="name the folder of TLS certificates with --tls-certs",
        )


def _munge(socket_option: str) -> Vouches:
    """Return MUNGE on this machine. Raises Unauthenticated where it does not answer."""
    from podwright.hosts import Munge, MungeError

    try:
        munge = Munge(socket_option if "/" in socket_option else "")
        munge.encode(b"")
    except MungeError as error:
        raise Unauthenticated(
            f"MUNGE does not answer on this machine: {error}",
            operation="show a MUNGE credential",
            would_work="start munged, or show an access key or a certificate",
        ) from None
    return munge


def _munge_credential(munge: Vouches, payload: bytes) -> str:
    from podwright.hosts import MungeError

    try:
        return munge.encode(payload)
    except MungeError as error:
        raise Unavailable(f"MUNGE does not answer on this machine: {error}") from None


#: gRPC's message for a certificate that does not name the host that was called.
_WRONG_NAME_PATTERN = re.compile(r"not in peer certificate|[Hh]ostname [Vv]erification")


class GrpcChannel:
    """A gRPC channel that raises the errors of podwright.errors. It connects at the first call."""

    def __init__(
        self,
        address: Address,
        token: str | None = None,
        credentials: Credentials = ANONYMOUS,
        *,
        failover: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.where, self._host = str(address), address.host
        self.server = NamedServer(self.where, addresses=(address,), credentials=credentials)
        self._pause = sleep
        self._reconnect = partial(
            GrpcChannel, address, token, credentials, failover=failover, sleep=sleep
        )
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._loopback: VerifiedLoopback | None = None
        self._munge_option = "no" if token or credentials.key else credentials.munge
        self._munge: Vouches | None = None
        if self._munge_option not in ("", "no"):
            self._munge = _munge(self._munge_option)
        if token:
            self._metadata = (("authorization", f"Bearer {token}"),)
        elif credentials.key:
            _check_key_privacy(address, credentials)
            self._metadata = ((USER_KEY, credentials.user), (ACCESS_KEY, credentials.key))
        ping_interval, ping_timeout = _KEEPALIVE_FAILOVER if failover else _KEEPALIVE_S
        channel_options = (
            *_OPTIONS,
            ("grpc.keepalive_time_ms", round(ping_interval * 1000)),
            ("grpc.keepalive_timeout_ms", round(ping_timeout * 1000)),
        )
        if credentials.certs:
            tls_credentials = grpc.ssl_channel_credentials(*read_certificates(credentials.certs))
            self._channel = grpc.secure_channel(
                str(address), tls_credentials, options=channel_options
            )
        elif self._metadata:
            # The key is in clear, so gRPC does not connect by itself.
            self._loopback = VerifiedLoopback(address)
            self._channel = grpc.insecure_channel(
                self._loopback.target,
                options=(*channel_options, ("grpc.default_authority", str(address))),
            )
        else:
            self._channel = grpc.insecure_channel(str(address), options=channel_options)

    def call(
        self,
        path: str,
        request: Any,
        timeout: float,
        encoder: Callable[[Any], bytes],
        decoder: Callable[[bytes], Any],
    ) -> Any:
        """Make one call. Raises the server's refusal, Unsupported, Unavailable or TimedOut.

        A server that refuses a call as busy has not begun it. The call is made again after the time
        that the server named, as long as the timeout allows.
        """
        request_body = encoder(request)
        deadline, remaining = time.monotonic() + timeout, timeout
        while True:
            try:
                return self._call_with_munge(path, request_body, remaining, decoder)
            except ServerBusy as busy_error:
                # The random factor spreads clients that were refused together, so that they do not
                # return together.
                pause_seconds = busy_error.retry_after_s * random.uniform(1.0, 1.5)
                if time.monotonic() + pause_seconds >= deadline:
                    raise
                self._pause(pause_seconds)
                remaining = round(deadline - time.monotonic(), 3)

    def _call_with_munge(
        self, rpc_path: str, request_body: bytes, timeout: float, decoder: Callable[[bytes], Any]
    ) -> Any:
        """Make a call, with a MUNGE credential if the server asks for one."""
        try:
            return self._call_once(rpc_path, request_body, timeout, decoder)
        except Unauthenticated as error:
            if self._munge_option or self._munge or not error.data.get("munge"):
                raise
            try:
                self._munge = _munge("")
            except Unauthenticated:
                raise error from None  # the server's refusal says what else works
        return self._call_once(rpc_path, request_body, timeout, decoder)

    def _call_once(
        self, rpc_path: str, request_body: bytes, timeout: float, decoder: Callable[[bytes], Any]
    ) -> Any:
        rpc = self._channel.unary_unary(rpc_path, response_deserializer=decoder)
        metadata = self._metadata
        if self._munge is not None:
            credential = _munge_credential(self._munge, munge_payload(rpc_path, request_body))
            metadata = (("authorization", f"MUNGE {credential}"),)
        try:
            return rpc(request_body, timeout=timeout, metadata=metadata)
        except grpc.RpcError as error:
            raise self._call_error(error, rpc_path, timeout) from None

    def another(self) -> GrpcChannel:
        """Return a channel to the same server, with the same credentials."""
        return self._reconnect()

    def close(self) -> None:
        """Close the connection for good."""
        self._channel.close()
        if self._loopback is not None:
            self._loopback.close()

    def _call_error(self, error: grpc.RpcError, rpc_path: str, timeout: float) -> PodwrightError:
        if self._loopback is not None and self._loopback.refusal is not None:
            return self._loopback.refusal
        trailing_metadata = dict(error.trailing_metadata() or ())
        if (refusal_json := trailing_metadata.get(ERROR_KEY)) is not None:
            return error_from_json(json.loads(refusal_json))
        status_code, details = error.code().name, " ".join((error.details() or "").split())
        call_name = rpc_path.rpartition("/")[2]
        if status_code == "UNIMPLEMENTED":
            return UnsupportedCall(
                f"the server at {self.where} does not know the call {call_name}",
                would_work="it is older than this command, or not Podwright's",
            )
        if status_code == "UNAVAILABLE" and _WRONG_NAME_PATTERN.search(details):
            return Unavailable(
                f"the certificate of the server at {self.where} is for other names than "
                f"{self._host}",
                would_work="use a name that it has, or let an administrator add this one: "
                f"vipu-server --tls-renew --name {self._host}, with the others",
            )
        if status_code in (
            "UNAVAILABLE",
            "CANCELLED",
        ):  # a server that shuts down cancels its calls
            return unreachable_error(self.where, details or "the connection ended")
        if status_code == "DEADLINE_EXCEEDED":
            return TimedOut(
                f"the server at {self.where} gave no answer within {timeout:g} s",
                operation=call_name,
                would_work="A longer --timeout waits for it; what was asked may still be under way",
            )
        if status_code == "UNKNOWN" and not details:
            return Unavailable(f"what answers at {self.where} is not a V-IPU server")
        return error_from_code(status_code, details)


class GrpcTransport:
    """Calls podwright.v1 at a TCP address. token: from `Client.issue_token`, or none.

    failover: the server is one of those that may take over from one another.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token: str | None = None,
        credentials: Credentials = ANONYMOUS,
        *,
        failover: bool = False,
    ) -> None:
        self._reconnect = partial(GrpcTransport, host, port, token, credentials, failover=failover)
        self.channel = GrpcChannel(Address(host, port), token, credentials, failover=failover)
        self.where = self.channel.where
        self.server = self.channel.server

    def call(self, method: Method, request: Value, timeout: float) -> Value:
        """Make one call of podwright.v1."""
        reply = self.channel.call(
            method_path(method.name),
            request,
            timeout,
            encode,
            lambda reply_bytes: decode(method.reply, reply_bytes),
        )
        assert isinstance(reply, Value)
        return reply

    def another(self) -> GrpcTransport:
        """Return a transport to the same server, over a connection of its own."""
        return self._reconnect()

    def close(self) -> None:
        """Close the connection for good."""
        self.channel.close()
