"""Who is at the other end of a Unix socket, by the kernel's word (SO_PEERCRED, Linux)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import socket


class Peer(NamedTuple):
    """A process, and the user it runs as."""

    pid: int
    uid: int


def peer_of(connection: socket.socket) -> Peer:
    """The process that made this connection."""
    import socket  # 4 ms that most commands need not pay
    import struct

    said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, _ = struct.unpack("iII", said)
    return Peer(pid, uid)
