"""One typed client of the server: finds it, identifies itself, asks what it can do.

GrpcTransport and VirmTransport import grpc, which costs 0.13 s, so they are loaded when they are
first used. So are the functions that wait in the queue, since few commands wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podwright.client._addresses import (
    HOST_VARIABLE,
    PORT_VARIABLE,
    Address,
    Credentials,
    ServerOptions,
    parse_addresses,
    server_for_proxy,
)
from podwright.client._client import TIMEOUT, Client
from podwright.client._failover import PATIENCE, FailoverTransport
from podwright.client._find import FoundServer, LocalServers, find_server
from podwright.client._local_servers import contexts_path
from podwright.client._start import start_server
from podwright.client._transport import FakeTransport, Transport
from podwright.client._unix import UnixTransport

if TYPE_CHECKING:
    from podwright.client._contexts import Context, Contexts, read_contexts, write_contexts
    from podwright.client._contexts import as_toml as contexts_as_toml
    from podwright.client._contexts import schema as contexts_schema
    from podwright.client._grpc_transport import GrpcTransport
    from podwright.client._port_forward import PortForwarder, run_through
    from podwright.client._queue_waits import (
        OUR_TURN,
        QUESTION,
        RECOVERY,
        acquire_in_line,
        acquire_now,
        span,
        take_back,
        wait_in_line,
        withdraw,
    )
    from podwright.client._virm_transport import VirmTransport

__all__ = [
    "HOST_VARIABLE",
    "OUR_TURN",
    "PATIENCE",
    "PORT_VARIABLE",
    "QUESTION",
    "RECOVERY",
    "TIMEOUT",
    "Address",
    "Client",
    "Context",
    "Contexts",
    "Credentials",
    "FailoverTransport",
    "FakeTransport",
    "FoundServer",
    "GrpcTransport",
    "LocalServers",
    "PortForwarder",
    "ServerOptions",
    "Transport",
    "UnixTransport",
    "VirmTransport",
    "acquire_in_line",
    "acquire_now",
    "contexts_as_toml",
    "contexts_path",
    "contexts_schema",
    "find_server",
    "parse_addresses",
    "read_contexts",
    "run_through",
    "server_for_proxy",
    "span",
    "start_server",
    "take_back",
    "wait_in_line",
    "withdraw",
    "write_contexts",
]

_QUEUE_WAIT_NAMES = (
    "OUR_TURN",
    "QUESTION",
    "RECOVERY",
    "acquire_in_line",
    "acquire_now",
    "span",
    "take_back",
    "wait_in_line",
    "withdraw",
)


def __getattr__(name: str) -> Any:
    if name == "GrpcTransport":
        from podwright.client._grpc_transport import GrpcTransport

        return GrpcTransport
    if name == "VirmTransport":
        from podwright.client._virm_transport import VirmTransport

        return VirmTransport
    if name in ("PortForwarder", "run_through"):
        from podwright.client import _port_forward

        return getattr(_port_forward, name)
    if name in ("Context", "Contexts", "read_contexts", "write_contexts"):
        from podwright.client import _contexts

        return getattr(_contexts, name)
    if name in ("contexts_as_toml", "contexts_schema"):
        from podwright.client import _contexts

        return {"contexts_as_toml": _contexts.as_toml, "contexts_schema": _contexts.schema}[name]
    if name in _QUEUE_WAIT_NAMES:
        from podwright.client import _queue_waits

        return getattr(_queue_waits, name)
    raise AttributeError(name)
