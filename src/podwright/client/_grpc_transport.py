"""Calls over gRPC, the wire of V-IPU: for servers on other machines.

Importing this module imports grpc and protobuf; nothing else in this package does at its top.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from podwright.client._addresses import NOBODY, Address, Credentials, unreachable
from podwright.client._local_servers import LOOPBACK
from podwright.errors import (
    InvalidRequest,
    PodwrightError,
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
    ("grpc.enable_http_proxy", 0),  # a controller is no web site
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),  # a listing of a million devices
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.http2.max_pings_without_data", 0),
)
#: Seconds without a word, in a call, after which the server is asked whether it is still there,
#: and seconds for its answer. A host that lost its power says nothing: where another server may
#: take over, that must be found out within the five seconds of a takeover.
_KEEPALIVE = (20.0, 20.0)
_KEEPALIVE_OF_SEVERAL = (1.0, 2.0)


class Unsupported(InvalidRequest):
    """The server does not know this call."""


def _check_private(address: Address, credentials: Credentials) -> None:
    if not credentials.certs and address.host not in LOOPBACK:
        raise InvalidRequest(
            f"the access key would travel to {address} for all to read",
            would_work="name the folder of TLS certificates with --tls-certs",
        )


def _munge(where: str) -> Vouches:
    """MUNGE on this machine. Raises Unauthenticated where there is none."""
    from podwright.hosts import Munge, MungeError

    try:
        munge = Munge(where if "/" in where else "")
        munge.encode(b"")
    except MungeError as error:
        raise Unauthenticated(
            f"MUNGE does not answer on this machine: {error}",
            asked="show a MUNGE credential",
            would_work="start munged, or show an access key or a certificate",
        ) from None
    return munge


def _vouched(munge: Vouches, payload: bytes) -> str:
    from podwright.hosts import MungeError

    try:
        return munge.encode(payload)
    except MungeError as error:
        raise Unavailable(f"MUNGE does not answer on this machine: {error}") from None


#: gRPC's words for a certificate that is not for the name by which the server was called.
_WRONG_NAME = re.compile(r"not in peer certificate|[Hh]ostname [Vv]erification")


class GrpcChannel:
    """A gRPC channel that answers in our errors. The kernel's connection opens with a call."""

    def __init__(
        self,
        address: Address,
        token: str | None = None,
        credentials: Credentials = NOBODY,
        *,
        several: bool = False,
    ) -> None:
        self.where, self._host = str(address), address.host
        self._again = partial(GrpcChannel, address, token, credentials, several=several)
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._wish = "no" if token or credentials.key else credentials.munge
        self._munge: Vouches | None = None
        if self._wish not in ("", "no"):
            self._munge = _munge(self._wish)
        if token:
            self._metadata = (("authorization", f"Bearer {token}"),)
        elif credentials.key:
            _check_private(address, credentials)
            self._metadata = ((USER_KEY, credentials.user), (ACCESS_KEY, credentials.key))
        pause, patience = _KEEPALIVE_OF_SEVERAL if several else _KEEPALIVE
        options = (
            *_OPTIONS,
            ("grpc.keepalive_time_ms", round(pause * 1000)),
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
        """One call. Raises the server's refusal, Unsupported, Unavailable or TimedOut."""
        body = encoded(request)
        try:
            return self._once(path, body, timeout, decoded)
        except Unauthenticated as refusal:
            if self._wish or self._munge or not refusal.data.get("munge"):
                raise
            try:
                self._munge = _munge("")
            except Unauthenticated:
                raise refusal from None  # no munged here: what else would work, it says
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
        """To the same server, with the same credentials."""
        return self._again()

    def close(self) -> None:
        """Close the connection for good."""
        self._channel.close()

    def _refusal(self, error: grpc.RpcError, path: str, timeout: float) -> PodwrightError:
        for key, body in error.trailing_metadata() or ():
            if key == ERROR_KEY:
                return error_from_json(json.loads(body))
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
        if code in ("UNAVAILABLE", "CANCELLED"):  # we gave nothing up: a server that ends says so
            return unreachable(self.where, details or "the connection ended")
        if code == "DEADLINE_EXCEEDED":
            return TimedOut(
                f"the server at {self.where} gave no answer within {timeout:g} s",
                asked=name,
                would_work="A longer --timeout waits for it; what was asked may still be under way",
            )
        if code == "UNKNOWN" and not details:
            return Unavailable(f"what answers at {self.where} is not a V-IPU server")
        return error_from_code(code, details)


class GrpcTransport:
    """Calls podwright.v1 at a TCP address. token: from `Client.issue_token`, or none.

    several: it is one of those that may take over from one another.
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
        self._again = partial(GrpcTransport, host, port, token, credentials, several=several)
        self.channel = GrpcChannel(Address(host, port), token, credentials, several=several)
        self.where = self.channel.where

    def call(self, method: Method, request: Value, timeout: float) -> Value:
        """One call of podwright.v1."""
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
        """To the same server, over a connection of its own."""
        return self._again()

    def close(self) -> None:
        """Close the connection for good."""
        self.channel.close()
