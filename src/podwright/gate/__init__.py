"""The gRPC gate: a process of its own that reads strangers' bytes, and passes calls to the server.

Everything that arrives over TCP uses the time, memory and descriptors of this process. The server
receives only complete calls. Its Unix socket and web port keep answering beside it. The gate's
process loads the modules that import grpc; importing this package does not.
"""

from podwright.gate._gate_process import Setup, spawn, words
from podwright.gate._gate_server_link import (
    Cancel,
    Done,
    End,
    GateCounted,
    GateLink,
    GateRefused,
    LinkMessage,
    Question,
    ShownCredentials,
    from_server,
    to_server,
)

__all__ = [
    "Cancel",
    "Done",
    "End",
    "GateCounted",
    "GateLink",
    "GateRefused",
    "LinkMessage",
    "Question",
    "Setup",
    "ShownCredentials",
    "from_server",
    "spawn",
    "to_server",
    "words",
]
