"""Reaching a server over TCP: ours, or a V-IPU controller of Graphcore's.

A plain connection comes first. It costs nothing where nobody listens, and importing grpc to be
told so costs 130 ms.
"""

from __future__ import annotations

import socket

from podwright.client._addresses import NOBODY, Address, Credentials, unreachable
from podwright.client._transport import Transport
from podwright.wire import METHODS, ServerInfo, ServerInfoRequest


def listens(address: Address, timeout: float) -> bool:
    """Does anybody accept connections at this address?"""
    try:
        _knock(address, timeout)
    except OSError:
        return False
    return True


def connect_tcp(
    address: Address, timeout: float, credentials: Credentials = NOBODY, *, several: bool = False
) -> tuple[Transport, ServerInfo]:
    """A transport for what answers there, and who it says it is. several: others may answer, too.

    A server that does not know podwright.v1 is spoken to in the vendor's protocol alone.
    Raises Unavailable where nobody answers, TimedOut where nobody says who it is in time.
    """
    try:
        _knock(address, timeout)
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise unreachable(str(address), reason.lower()) from None
    from podwright.client._grpc_transport import GrpcTransport, Unsupported
    from podwright.client._virm_transport import VirmTransport

    ours = GrpcTransport(address.host, address.port, credentials=credentials, several=several)
    transport: Transport = ours
    method = METHODS["GetServerInfo"]
    try:
        try:
            info = ours.call(method, ServerInfoRequest(), timeout)
        except Unsupported:
            transport = VirmTransport(ours.channel)
            info = transport.call(method, ServerInfoRequest(), timeout)
    except BaseException:
        ours.close()
        raise
    assert isinstance(info, ServerInfo)
    return transport, info


def _knock(address: Address, timeout: float) -> None:
    socket.create_connection((address.host, address.port), timeout=timeout).close()
