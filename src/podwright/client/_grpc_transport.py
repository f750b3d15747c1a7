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

from podwright.client._addresses import NOBODY, Address, Credentials, unreachable
from podwright.client._local_servers import LOOPBACK
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
_KEEPALIVE = (20.0, 20.0)
_KEEPALIVE_OF_SEVERAL = (1.0, 2.0)


class Unsupported(InvalidRequest):
    """The server does not have this call."""


def _check_private(address: Address, credentials: Credentials) -> None:
    if not credentials.certs and address.host not in LOOPBACK:
        raise InvalidRequest(
            f"the access key would travel to {address} for all to read",
            would_work="name the folder of TLS certificates with --tls-certs",
        )


def _munge(where: str) -> Vouches:
    """Return MUNGE on this machine. Raises Unauthenticated where it does not answer."""
    from podwright.hosts import Munge, MungeError

    try:
        munge = Munge(where if "/" in where else "")
        munge.encode(b"")
    except MungeError as error:
        raise Unauthenticated(
            f"MUNGE does not answer on this machine: {error}",
            operation="show a MUNGE credential",
            would_work="start munged, or show an access key or a certificate",
        ) from None
    return munge


def _vouched(munge: Vouches, payload: bytes) -> str:
    from podwright.hosts import MungeError

    try:
        return munge.encode(payload)
    except MungeError as error:
        raise Unavailable(f"MUNGE does not answer on this machine: {error}") from None


#: gRPC's message for a certificate that does not name the host that was called.
_WRONG_NAME = re.compile(r"not in peer certificate|[Hh]ostname [Vv]erification")


class GrpcChannel:
    """A gRPC channel that raises the errors of podwright.errors. It connects at the first call."""

    def __init__(
        self,
        address: Address,
        token: str | None = None,
        credentials: Credentials = NOBODY,
        *,
        several: bool = False,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.where, self._host = str(address), address.host
        self._pause = pause
        self._reconnect = partial(
            GrpcChannel, address, token, credentials, several=several, pause=pause
        )
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._munge_option = "no" if token or credentials.key else credentials.munge
        self._munge: Vouches | None = None
        if self._munge_option not in ("", "no"):
            self._munge = _munge(self._munge_option)
        if token:
            self._metadata = (("authorization", f"Bearer {token}"),)
        elif credentials.key:
            _check_private(address, credentials)
            self._metadata = ((USER_KEY, credentials.user), (ACCESS_KEY, credentials.key))
        interval, patience = _KEEPALIVE_OF_SEVERAL if several else _KEEPALIVE
        options = (
            *_OPTIONS,
            ("grpc.keepalive_time_ms", round(interval * 1000)),
            ("grpc.keepalive_timeout_ms", round(patience * 1000)),
        )
        if credentials.certs:
            tls = grpc.ssl_channel_credentials(*read_certificates(credentials.certs))
            self._channel = grpc.secure_channel(str(address), tls, options=options)
        else:
            self._channel = grpc.insecure_channel(str(address), options=options)

    def call(
        self,
        path: str,
        request: Any,
        timeout: float,
        encoded: Callable[[Any], bytes],
        decoded: Callable[[bytes], Any],
    ) -> Any:
        """Make one call. Raises the server's refusal, Unsupported, Unavailable or TimedOut.

        A server that refuses a call as busy has not begun it. The call is made again after the time
        that the server named, as long as the timeout allows.
        """
        body = encoded(request)
        deadline, left = time.monotonic() + timeout, timeout
        while True:
            try:
                return self._proven(path, body, left, decoded)
            except ServerBusy as busy:
                # The random factor spreads clients that were refused together, so that they do not
                # return together.
                pause = busy.retry_after_s * random.uniform(1.0, 1.5)
                if time.monotonic() + pause >= deadline:
                    raise
                self._pause(pause)
                left = round(deadline - time.monotonic(), 3)

    def _proven(
        self, path: str, body: bytes, timeout: float, decoded: Callable[[bytes], Any]
    ) -> Any:
        """Make a call, with a MUNGE credential if the server asks for one."""
        try:
            return self._once(path, body, timeout, decoded)
        except Unauthenticated as refusal:
            if self._munge_option or self._munge or not refusal.data.get("munge"):
                raise
            try:
                self._munge = _munge("")
            except Unauthenticated:
                raise refusal from None  # the server's refusal says what else works
        return self._once(path, body, timeout, decoded)

    def _once(self, path: str, body: bytes, timeout: float, decoded: Callable[[bytes], Any]) -> Any:
        call = self._channel.unary_unary(path, response_deserializer=decoded)
        metadata = self._metadata
        if self._munge is not None:
            proof = _vouched(self._munge, munge_payload(path, body))
            metadata = (("authorization", f"MUNGE {proof}"),)
        try:
            return call(body, timeout=timeout, metadata=metadata)
        except grpc.RpcError as error:
            raise self._refusal(error, path, timeout) from None

    def another(self) -> GrpcChannel:
        """Return a channel to the same server, with the same credentials."""
        return self._reconnect()

    def close(self) -> None:
        """Close the connection for good."""
        self._channel.close()

    def _refusal(self, error: grpc.RpcError, path: str, timeout: float) -> PodwrightError:
        trailing = dict(error.trailing_metadata() or ())
        if (refusal := trailing.get(ERROR_KEY)) is not None:
            return error_from_json(json.loads(refusal))
        code, details = error.code().name, " ".join((error.details() or "").split())
        name = path.rpartition("/")[2]
        if code == "UNIMPLEMENTED":
            return Unsupported(
                f"the server at {self.where} does not know the call {name}",
                would_work="it is older than this command, or not Podwright's",
            )
        if code == "UNAVAILABLE" and _WRONG_NAME.search(details):
            return Unavailable(
                f"the certificate of the server at {self.where} is for other names than "
                f"{self._host}",
                would_work="use a name that it has, or let an administrator add this one: "
                f"vipu-server --tls-renew --name {self._host}, with the others",
            )
        if code in ("UNAVAILABLE", "CANCELLED"):  # a server that shuts down cancels its calls
            return unreachable(self.where, details or "the connection ended")
        if code == "DEADLINE_EXCEEDED":
            return TimedOut(
                f"the server at {self.where} gave no answer within {timeout:g} s",
                operation=name,
                would_work="A longer --timeout waits for it; what was asked may still be under way",
            )
        if code == "UNKNOWN" and not details:
            return Unavailable(f"what answers at {self.where} is not a V-IPU server")
        return error_from_code(code, details)


class GrpcTransport:
    """Calls podwright.v1 at a TCP address. token: from `Client.issue_token`, or none.

    several: the server is one of those that may take over from one another.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token: str | None = None,
        credentials: Credentials = NOBODY,
        *,
        several: bool = False,
    ) -> None:
        self._reconnect = partial(GrpcTransport, host, port, token, credentials, several=several)
        self.channel = GrpcChannel(Address(host, port), token, credentials, several=several)
        self.where = self.channel.where

    def call(self, method: Method, request: Value, timeout: float) -> Value:
        """Make one call of podwright.v1."""
        reply = self.channel.call(
            method_path(method.name),
            request,
            timeout,
            encode,
            lambda data: decode(method.reply, data),
        )
        assert isinstance(reply, Value)
        return reply

    def another(self) -> GrpcTransport:
        """Return a transport to the same server, over a connection of its own."""
        return self._reconnect()

    def close(self) -> None:
        """Close the connection for good."""
        self.channel.close()
