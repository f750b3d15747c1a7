"""Reaching a server over TCP: Podwright's, or a V-IPU controller of Graphcore's.

A plain connection is tried first, since importing grpc costs 130 ms even where nobody listens.
"""

from __future__ import annotations

import socket

from podwright.client._named_server import ANONYMOUS, Address, Credentials, unreachable_error
from podwright.client._transport import Transport
from podwright.wire import METHODS, ServerInfo, ServerInfoRequest


def listens(address: Address, timeout: float) -> bool:
    """Return whether a process accepts connections at this address."""
    try:
        _try_connect(address, timeout)
    except OSError:
        return False
    return True


def connect_tcp(
    address: Address,
    timeout: float,
    credentials: Credentials = ANONYMOUS,
    *,
    failover: bool = False,
) -> tuple[Transport, ServerInfo]:
    """Return a transport for the server at this address, and its description of itself.

    failover: the server is one of those that may take over from one another. A server that does not
    know podwright.v1 is called in the vendor's protocol. Raises Unavailable where no server
    answers, and TimedOut where it does not describe itself in time.
    """
    try:
        _try_connect(address, timeout)
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise unreachable_error(str(address), reason.lower()) from None
    from podwright.client._grpc_transport import GrpcTransport, UnsupportedCall
    from podwright.client._virm_transport import VirmTransport

    grpc_transport = GrpcTransport(
        address.host, address.port, credentials=credentials, failover=failover
    )
    transport: Transport = grpc_transport
    method = METHODS["GetServerInfo"]
    try:
        try:
            server_info = grpc_transport.call(method, ServerInfoRequest(), timeout)
        except UnsupportedCall:
            transport = VirmTransport(grpc_transport.channel)
            server_info = transport.call(method, ServerInfoRequest(), timeout)
    except BaseException:
        grpc_transport.close()
        raise
    assert isinstance(server_info, ServerInfo)
    return transport, server_info


def _try_connect(address: Address, timeout: float) -> None:
    socket.create_connection((address.host, address.port), timeout=timeout).close()
