"""The connection between poprun and its guardian: small tuples, whole or not at all, over two
pipes.

Messages are encoded by marshal, Python's format for its own code. Both ends are one program,
forked, so it is safe here, and it costs no import. Pipes cost no import either, while the module
for sockets costs 4 ms.
"""

from __future__ import annotations

import contextlib
import marshal
import os
from typing import Any

_SIZE_HEADER_BYTES = 8


class Channel:
    """One end. closed: the other end is gone. handle: for poll."""

    def __init__(self, read_handle: int, write_handle: int) -> None:
        self.handle, self._write_handle = read_handle, write_handle
        self._rest = b""
        self.closed = False

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Return the two ends of one connection."""
        (our_reader, their_writer), (their_reader, our_writer) = os.pipe(), os.pipe()
        return cls(our_reader, our_writer), cls(their_reader, their_writer)

    def send(self, *message: Any) -> None:
        """Send a message. The other end may be gone already."""
        encoded = marshal.dumps(message)
        # `receive` notices that the other end is gone: its last messages may be unread yet.
        with contextlib.suppress(OSError):
            unsent = len(encoded).to_bytes(_SIZE_HEADER_BYTES, "big") + encoded
            while unsent:
                unsent = unsent[os.write(self._write_handle, unsent) :]

    def receive(self) -> list[tuple[Any, ...]]:
        """The messages since the last call. Call it when `handle` is readable."""
        try:
            chunk = os.read(self.handle, 1 << 20)
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        if not chunk:
            self.closed = True
        self._rest += chunk
        messages = []
        while len(self._rest) >= _SIZE_HEADER_BYTES:
            body_size = int.from_bytes(self._rest[:_SIZE_HEADER_BYTES], "big")
            if len(self._rest) < _SIZE_HEADER_BYTES + body_size:
                break
            messages.append(
                marshal.loads(self._rest[_SIZE_HEADER_BYTES : _SIZE_HEADER_BYTES + body_size])
            )
            self._rest = self._rest[_SIZE_HEADER_BYTES + body_size :]
        return messages

    def receive_one(self) -> tuple[Any, ...]:
        """Wait for one message. Empty: the other end is gone. Call it before any `receive`."""
        header = self._read_exactly(_SIZE_HEADER_BYTES)
        body = self._read_exactly(int.from_bytes(header, "big")) if header else b""
        message: tuple[Any, ...] = marshal.loads(body) if body else ()
        return message

    def _read_exactly(self, byte_count: int) -> bytes:
        received = b""
        while len(received) < byte_count:
            chunk = os.read(self.handle, byte_count - len(received))
            if not chunk:
                return b""
            received += chunk
        return received

    @property
    def handles(self) -> tuple[int, int]:
        """Both descriptors of this end."""
        return self.handle, self._write_handle

    def close(self) -> None:
        """Close this end."""
        for handle in self.handles:
            os.close(handle)
