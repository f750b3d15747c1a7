"""What serves a controller: gRPC on TCP, HTTP on a Unix socket, and who calls."""

from podwright.server._identity import TOKEN_TTL, Identity
from podwright.server._server import Server, is_loopback
from podwright.server._sockets import Lock, prepare_folder

__all__ = ["TOKEN_TTL", "Identity", "Lock", "Server", "is_loopback", "prepare_folder"]
