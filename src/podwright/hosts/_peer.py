"""Who is at the other end of a connection within this host, by the kernel's word (Linux)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from podwright.hosts._loopback import is_loopback

if TYPE_CHECKING:
    import socket


class _Line:
    """A line to the kernel, which ends with the thread that it is of."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def __del__(self) -> None:
        self.socket.close()


#: Of each thread: to close one takes longer than to ask.
_kernel = threading.local()


class Peer(NamedTuple):
    """A process, and the user it runs as."""

    pid: int
    uid: int


def peer_of(connection: socket.socket) -> Peer:
    """The process that made this connection to a Unix socket (SO_PEERCRED)."""
    import socket  # 4 ms that most commands need not pay
    import struct

    said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, _ = struct.unpack("iII", said)
    return Peer(pid, uid)


def tcp_owner(connection: socket.socket) -> int | None:
    """The uid at the other end of a TCP connection within this host, by the kernel's word.

    One question to it (sock_diag(7)), which takes 30 us whatever the number of connections. None:
    that end has gone, is no process of this host, or may not be asked for. At most 0.1 s.
    """
    import socket  # as above
    import struct

    try:
        theirs, ours = connection.getpeername(), connection.getsockname()
        family, ends = _family(theirs[0], ours[0])
        # inet_diag_req_v2 (linux/inet_diag.h): the other end's socket, as it sees itself.
        asked = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
        asked += struct.pack(">HH", theirs[1], ours[1]) + ends + struct.pack("=III", 0, *_ANY)
        head = struct.pack("=IHHII", 16 + len(asked), _BY_FAMILY, _REQUEST, 1, 0)
        if not hasattr(_kernel, "line"):
            _kernel.line = _Line(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG))
            _kernel.line.socket.settimeout(0.1)
        _kernel.line.socket.send(head + asked)
        said = _kernel.line.socket.recv(4096)
    except OSError:
        vars(_kernel).pop("line", None)  # a late answer would be taken for the next one's
        return None
    if len(said) < 88 or struct.unpack_from("=H", said, 4)[0] != _BY_FAMILY:
        return None
    state, uid = said[17], struct.unpack_from("=I", said, 80)[0]
    return int(uid) if state == _ESTABLISHED else None  # after its end the uid says nothing


def caller_of(connection: socket.socket) -> str:
    """By what the callers of a TCP port are told apart: an address, on this host an account."""
    address = str(connection.getpeername()[0])
    owner = tcp_owner(connection) if is_loopback(address.removeprefix(_MAPPED)) else None
    return address if owner is None else f"uid {owner}"


# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h (INET_DIAG_NOCOOKIE), net/tcp_states.h
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ESTABLISHED = 4, 20, 1, 1
_ANY = (0xFFFFFFFF, 0xFFFFFFFF)
_MAPPED = "::ffff:"


def _family(theirs: str, ours: str) -> tuple[int, bytes]:
    """The family, and both addresses, each in 16 bytes. IPv4 over an IPv6 socket is IPv4."""
    import socket

    both = [text.partition("%")[0].removeprefix(_MAPPED) for text in (theirs, ours)]
    family = socket.AF_INET6 if ":" in both[0] else socket.AF_INET
    return family, b"".join(socket.inet_pton(family, text).ljust(16, b"\0") for text in both)
