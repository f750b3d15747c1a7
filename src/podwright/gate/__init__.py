"""gRPC in a process of its own: strangers' bytes are read here, and calls go on to the server.

Whatever comes over TCP costs this process its time, its memory and its descriptors; the server,
whose Unix socket and web port answer beside it, sees finished calls alone. What imports grpc is
loaded by that process, not by this package's door.
"""

from podwright.gate._gate_process import Setup, spawn, words
from podwright.gate._link import (
    Cancel,
    Done,
    End,
    GateCounted,
    GateLink,
    GateRefused,
    Question,
    ShownService,
    Word,
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
    "Question",
    "Setup",
    "ShownService",
    "Word",
    "from_server",
    "spawn",
    "to_server",
    "words",
]
