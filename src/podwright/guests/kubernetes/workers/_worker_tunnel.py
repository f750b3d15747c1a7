"""What pods/exec starts in a worker. Run as a module: `python -m … PORT`.

It passes bytes between its caller (_pods_exec_client) and that port of its own pod, and interprets
none of them. The worker's door finds out who calls.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Sequence

from podwright.hosts._kubernetes_workers import STREAM_CHUNK_BYTES

#: Seconds for a caller to hang up once the door has hung up. The door's last bytes may still be on
#: their way.
_STDIN_JOIN_TIMEOUT_S = 5.0


def _connect_port(port: int) -> socket.socket:
    """Return a connection to the port on this host. Raises OSError."""
    try:
        return socket.create_connection(("127.0.0.1", port))
    except OSError:
        if not socket.has_ipv6:
            raise
        return socket.create_connection(("::1", port))


def _forward_stdin(door_socket: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while stdin_chunk := os.read(0, STREAM_CHUNK_BYTES):
            door_socket.sendall(stdin_chunk)
    with contextlib.suppress(OSError):
        door_socket.shutdown(socket.SHUT_RDWR)


def main(arguments: Sequence[str]) -> int:
    """Pass bytes until the connection ends, and return the exit code."""
    door_port = int(arguments[0])
    try:
        door_socket = _connect_port(door_port)
    except OSError:
        print(f"nothing answers at its port {door_port}", file=sys.stderr)
        return 1
    stdin_thread = threading.Thread(target=_forward_stdin, args=(door_socket,), daemon=True)
    stdin_thread.start()
    with contextlib.suppress(OSError):
        while door_bytes := door_socket.recv(STREAM_CHUNK_BYTES):
            while door_bytes:
                door_bytes = door_bytes[os.write(1, door_bytes) :]
    stdin_thread.join(_STDIN_JOIN_TIMEOUT_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
