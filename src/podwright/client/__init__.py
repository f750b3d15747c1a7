"""One typed client of the server: finds it, identifies itself, asks what it can do.

GrpcTransport and VirmTransport import grpc, which costs 0.13 s, so they are loaded when they are
first used. So are the functions that wait in the queue, since few commands wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.client._client import TIMEOUT, Client
from podwright.client._failover import PATIENCE, FailoverTransport
from podwright.client._find_server import FoundServer, LocalServers, find_server, reopen
from podwright.client._local_server_paths import contexts_path
from podwright.client._named_server import (
    HOST_VARIABLE,
    PORT_VARIABLE,
    Address,
    Credentials,
    NamedServer,
    ServerOptions,
    parse_addresses,
    server_for_proxy,
)
from podwright.client._start_server import start_server
from podwright.client._transport import FakeTransport, Transport
from podwright.client._unix import UnixTransport
from podwright.ground.lazy_imports import lazy_names

if TYPE_CHECKING:
    from podwright.client._grpc_transport import GrpcTransport
    from podwright.client._port_forward import PortForwarder, run_through
    from podwright.client._queue_waits import (
        OUR_TURN,
        POLL_SECONDS,
        RECOVERY_SECONDS,
        acquire_in_line,
        acquire_now,
        take_back,
        wait_in_line,
        withdraw,
    )
    from podwright.client._server_contexts import (
        Context,
        Contexts,
        contexts_as_toml,
        contexts_schema,
        read_contexts,
        write_contexts,
    )
    from podwright.client._virm_transport import VirmTransport

__all__ = [
    "HOST_VARIABLE",
    "OUR_TURN",
    "PATIENCE",
    "POLL_SECONDS",
    "PORT_VARIABLE",
    "RECOVERY_SECONDS",
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
    "NamedServer",
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
    "reopen",
    "run_through",
    "server_for_proxy",
    "start_server",
    "take_back",
    "wait_in_line",
    "withdraw",
    "write_contexts",
]

#: Each module, and the names that come from it.
_LATER = {
    "_server_contexts": (
        *("Context", "Contexts", "contexts_as_toml", "contexts_schema", "read_contexts"),
        "write_contexts",
    ),
    "_grpc_transport": ("GrpcTransport",),
    "_port_forward": ("PortForwarder", "run_through"),
    "_virm_transport": ("VirmTransport",),
    "_queue_waits": (
        *("OUR_TURN", "POLL_SECONDS", "RECOVERY_SECONDS", "acquire_in_line", "acquire_now"),
        *("take_back", "wait_in_line", "withdraw"),
    ),
}

if not TYPE_CHECKING:  # with it, no misspelt name would be found
    __getattr__ = lazy_names(__name__, _LATER)
