"""A key for a server on this machine goes only to a process that shows to be the server.

Any account may listen at a port while the server is down. gRPC connects, and connects again, by
itself, so a look at the port beforehand proves nothing about the connection that carries the key.
Here gRPC connects to this process, which opens the connection to the server, asks the kernel whose
process has accepted it, and passes on no byte before that.

In a user namespace without root, a server of root looks like one of nobody, and needs TLS.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable

from podwright.client._named_server import Address
from podwright.errors import Denied
from podwright.hosts import is_loopback, peer_of, tcp_owner
from podwright.wire import SYSTEM_SOCKET

#: Seconds within which the server must accept the connection.
_ACCEPT_TIMEOUT_S = 5.0
_POLL_S = 0.005
_CHUNK_BYTES = 1 << 18

#: Returns the uid of the process that has accepted the connection, or None while nobody has.
AskOwner = Callable[[socket.socket], int | None]


class VerifiedLoopback:
    """An endpoint in this process that leads to a server at a loopback address.

    target: for gRPC. refusal: why the last connection was not passed on; None: it was.
    """

    def __init__(
        self,
        address: Address,
        *,
        owner_of: AskOwner | None = None,
        trusted_uids: Callable[[], set[int]] | None = None,
    ) -> None:
        self._address = address
        self._owner_of = owner_of or tcp_owner
        self._trusted_uids = trusted_uids or server_uids
        self.refusal: Denied | None = None
        name = f"podwright-{os.getpid()}-{secrets.token_hex(8)}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"\0{name}")
        self._listener.listen()
        self.target = f"unix-abstract:{name}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                inner, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(inner,), daemon=True).start()

    def _connect(self, inner: socket.socket) -> None:
        with inner:
            if peer_of(inner).pid != os.getpid():
                return  # another process has found the name
            outer = self._open_trusted()
            if outer is None:
                return  # gRPC reports that the connection ended, and tries again
            with outer:
                outer.settimeout(None)
                outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                back = threading.Thread(target=_pump, args=(outer, inner), daemon=True)
                back.start()
                _pump(inner, outer)
                back.join()

    def _open_trusted(self) -> socket.socket | None:
        """Connect to the first of the host's addresses at which the server listens."""
        refusal = None
        try:
            places = socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM)
        except OSError:
            places = []
        for family, kind, protocol, _, place in places:
            outer = socket.socket(family, kind, protocol)
            try:
                outer.settimeout(_ACCEPT_TIMEOUT_S)
                outer.connect(place)
                refusal = self._refusal_of(outer)
            except OSError:
                outer.close()
                continue
            if refusal is None:
                self.refusal = None
                return outer
            outer.close()
        self.refusal = refusal
        return None

    def _refusal_of(self, outer: socket.socket) -> Denied | None:
        uid = None
        if is_loopback(outer.getpeername()[0]):
            deadline = time.monotonic() + _ACCEPT_TIMEOUT_S
            while (uid := self._owner_of(outer)) is None and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        if uid in self._trusted_uids():
            return None
        listener = (
            "who listens there is not known"
            if uid is None
            else f"a program of user {_name_of_uid(uid)} listens there"
        )
        return Denied(
            f"your access key was not sent to {self._address}: {listener}, and the server is "
            "root's, yours, or of the account that owns its socket",
            would_work="start vipu-server, if it is down; or name the folder of TLS certificates "
            "with --tls-certs, by which any server shows who it is",
            address_of_stranger=str(self._address),
        )


def server_uids() -> set[int]:
    """Return the accounts that are believed to be the server on this machine."""
    trusted = {0, os.geteuid(), os.getuid()}
    with contextlib.suppress(OSError):
        trusted.add(os.stat(SYSTEM_SOCKET).st_uid)
    return trusted


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Pass on all bytes, and then the end."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(_CHUNK_BYTES):
            sink.sendall(chunk)
    for end, direction in ((source, socket.SHUT_RD), (sink, socket.SHUT_WR)):
        with contextlib.suppress(OSError):
            end.shutdown(direction)


def _name_of_uid(uid: int) -> str:
    import pwd

    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return str(uid)
