"""Who is at the other end of a connection within this host, as the kernel reports it (Linux)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from podwright.hosts._loopback import is_loopback

if TYPE_CHECKING:
    import socket


class _NetlinkSocket:
    """A socket for questions to the kernel. It is closed with the thread that owns it."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def __del__(self) -> None:
        self.socket.close()


#: One for each thread, since closing a socket takes longer than asking.
_kernel = threading.local()


class Peer(NamedTuple):
    """A process, and the user it runs as."""

    pid: int
    uid: int


def peer_of(connection: socket.socket) -> Peer:
    """Return the process that made this connection to a Unix socket (SO_PEERCRED)."""
    import socket  # 4 ms that most commands need not pay
    import struct

    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, _ = struct.unpack("iII", credentials)
    return Peer(pid, uid)


def tcp_owner(connection: socket.socket) -> int | None:
    """Return the uid at the other end of a TCP connection within this host, from the kernel.

    It is one query (sock_diag(7)), which takes 30 us whatever the number of connections, and at
    most 0.1 s. None: that end has gone, is not a process of this host, or may not be asked about;
    or no process has accepted the connection yet, for which the kernel would say root.
    """
    import socket  # as above
    import struct

    try:
        peer_address, own_address = connection.getpeername(), connection.getsockname()
        family, address_bytes = _family_and_addresses(peer_address[0], own_address[0])
        # inet_diag_req_v2 (linux/inet_diag.h) with the other end's socket, from its own point of
        # view.
        request = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
        request += (
            struct.pack(">HH", peer_address[1], own_address[1])
            + address_bytes
            + struct.pack("=III", 0, *_ANY_SOCKET_COOKIE)
        )
        header = struct.pack(
            "=IHHII", 16 + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0
        )
        if not hasattr(_kernel, "line"):
            _kernel.line = _NetlinkSocket(
                socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
            )
            _kernel.line.socket.settimeout(0.1)
        _kernel.line.socket.send(header + request)
        reply = _kernel.line.socket.recv(4096)
    except OSError:
        vars(_kernel).pop("line", None)  # a late answer would be taken for that of the next query
        return None
    if len(reply) < 88 or struct.unpack_from("=H", reply, 4)[0] != _SOCK_DIAG_BY_FAMILY:
        return None
    socket_state, (uid, inode) = reply[17], struct.unpack_from("=II", reply, 80)
    # A closed socket has no uid any more, and one without an inode belongs to no process.
    return int(uid) if socket_state == _TCP_ESTABLISHED and inode else None


def caller_of(connection: socket.socket) -> str:
    """Return what tells callers of a TCP port apart: an address or, on this host, an account."""
    address = str(connection.getpeername()[0])
    owner = (
        tcp_owner(connection) if is_loopback(address.removeprefix(_IPV4_MAPPED_PREFIX)) else None
    )
    return address if owner is None else f"uid {owner}"


# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h (INET_DIAG_NOCOOKIE), net/tcp_states.h
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _TCP_ESTABLISHED = 4, 20, 1, 1
_ANY_SOCKET_COOKIE = (0xFFFFFFFF, 0xFFFFFFFF)
_IPV4_MAPPED_PREFIX = "::ffff:"


def _family_and_addresses(peer_address: str, own_address: str) -> tuple[int, bytes]:
    """Return the family and both addresses, each in 16 bytes.

    IPv4 over an IPv6 socket counts as IPv4.
    """
    import socket

    addresses = [
        address.partition("%")[0].removeprefix(_IPV4_MAPPED_PREFIX)
        for address in (peer_address, own_address)
    ]
    family = socket.AF_INET6 if ":" in addresses[0] else socket.AF_INET
    return family, b"".join(
        socket.inet_pton(family, address).ljust(16, b"\0") for address in addresses
    )
