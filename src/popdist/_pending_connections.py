"""Connections whose greeting is not complete yet.

No connection is waited for. One that sends nothing, or one byte now and then, holds up neither the
others nor the collective that goes on meanwhile. It may stay until its place is needed, so an
instance that was stopped in between (Ctrl-Z) is heard when it continues.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Iterator

#: Places for connections of strangers, beside those for the expected instances.
MAX_STRANGERS = 128


class Arrivals:
    """The connections to a listening socket. door: that socket.

    length: returns the number of bytes of a greeting, from the bytes received so far. hello:
    returns the bytes that each connection is sent first. expected: the number of instances that may
    connect at once. When `expected + STRANGERS` connections wait, the oldest is closed to make room
    for a new one.
    """

    def __init__(
        self,
        door: socket.socket,
        length: Callable[[bytes], int],
        hello: Callable[[], bytes] = bytes,
        expected: int = 0,
    ) -> None:
        door.setblocking(False)
        self._door, self._length, self._hello = door, length, hello
        self._limit = expected + MAX_STRANGERS
        self._by_rank: dict[int, _Arrival] = {}

    def register(self, poll: select.poll) -> None:
        """Register the listening socket and all waiting connections with a poll object."""
        for fd in (self._door.fileno(), *self._by_rank):
            poll.register(fd, select.POLLIN)

    def hear(self, ready_fds: set[int]) -> Iterator[tuple[socket.socket, bytes, bytes]]:
        """Read from these descriptors. Yield each greeting that is now complete.

        Yields the connection, which does not block and belongs to the caller from now on; the bytes
        that it was sent first; and the greeting.
        """
        if self._door.fileno() in ready_fds:
            self._accept_connections()
        for fd in ready_fds & self._by_rank.keys():
            arrival = self._by_rank[fd]
            try:
                greeting = arrival.hear(self._length)
            except OSError:
                self._close_connection(fd)
                continue
            if greeting is not None:
                del self._by_rank[fd]
                yield arrival.line, arrival.hello, greeting

    def close(self) -> None:
        """Close all waiting connections.

        The listening socket stays open; it belongs to its owner.
        """
        for fd in list(self._by_rank):
            self._close_connection(fd)

    def _accept_connections(self) -> None:
        while True:
            try:
                connection, _ = self._door.accept()
            except OSError:  # no connection is waiting, or no descriptor is left
                return
            connection.setblocking(False)
            first_bytes = self._hello()
            try:
                if first_bytes:
                    connection.send(first_bytes)
            except OSError:
                connection.close()
                continue
            if len(self._by_rank) >= self._limit:
                self._close_connection(next(iter(self._by_rank)))
            self._by_rank[connection.fileno()] = _Arrival(connection, first_bytes)

    def _close_connection(self, fd: int) -> None:
        self._by_rank.pop(fd).line.close()


class _Arrival:
    """A connection, and the bytes received from it."""

    def __init__(self, connection: socket.socket, first_bytes: bytes) -> None:
        self.line, self.hello = connection, first_bytes
        self._buffer = b""

    def hear(self, greeting_length: Callable[[bytes], int]) -> bytes | None:
        """Return the greeting once it is complete, else None.

        Read no byte beyond it. Raises OSError.
        """
        with contextlib.suppress(BlockingIOError):
            while (count := greeting_length(self._buffer) - len(self._buffer)) > 0:
                chunk = self.line.recv(count)
                if not chunk:
                    raise ConnectionResetError("the other side hung up")
                self._buffer += chunk
            return self._buffer
        return None
