"""Servers of a few lines that do what a real one never does: lie, hang, vanish."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from podwright.wire import ServerInfo

Answer = bytes | None
#: What to send for a call of this name with this body; None ends the connection instead.
Handler = Callable[[str, dict[str, Any]], Answer]


def http(value: Any, status: int = 200, headers: str = "") -> bytes:
    """An HTTP answer that carries `value` as JSON."""
    body = json.dumps(value).encode()
    return f"HTTP/1.1 {status} X\r\n{headers}content-length: {len(body)}\r\n\r\n".encode() + body


class Stub:
    """A listening Unix socket. calls: what arrived; connections: how many were opened."""

    def __init__(self, path: Path, handler: Handler, *, backlog: int = 8) -> None:
        self.path = str(path)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.connections = 0
        self._handler = handler
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(backlog)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as stream:
            while line := stream.readline():
                length = 0
                while (header := stream.readline().strip().lower()) != b"":
                    if header.startswith(b"content-length:"):
                        length = int(header.split(b":")[1])
                name = line.split()[1].decode().rpartition("/")[2]
                body = json.loads(stream.read(length))
                self.calls.append((name, body))
                answer = self._handler(name, body)
                if answer is None:
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                connection.sendall(answer)

    def drop_connections(self) -> None:
        """End every connection; go on listening."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()
        for thread in self._threads:
            thread.join(120)


@contextlib.contextmanager
def stub(path: Path, handler: Handler) -> Iterator[Stub]:
    server = Stub(path, handler)
    try:
        yield server
    finally:
        server.close()


def answers_info(**fields: Any) -> Handler:
    """A server that says who it is, and has nothing."""
    info = {"version": "9.9", "apis": ["podwright.v1"], **fields}
    assert ServerInfo(**info)

    def handler(name: str, body: dict[str, Any]) -> bytes:
        return http(info if name == "GetServerInfo" else {})

    return handler
