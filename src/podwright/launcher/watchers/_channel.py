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

_HEAD = 8


class Channel:
    """One end. closed: the other end is gone. handle: for poll."""

    def __init__(self, reading: int, writing: int) -> None:
        self.handle, self._writing = reading, writing
        self._rest = b""
        self.closed = False

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Return the two ends of one connection."""
        (reading, theirs), (from_us, writing) = os.pipe(), os.pipe()
        return cls(reading, writing), cls(from_us, theirs)

    def send(self, *message: Any) -> None:
        """Send a message. The other end may be gone already."""
        body = marshal.dumps(message)
        # `receive` notices that the other end is gone: its last messages may be unread yet.
        with contextlib.suppress(OSError):
            data = len(body).to_bytes(_HEAD, "big") + body
            while data:
                data = data[os.write(self._writing, data) :]

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
        while len(self._rest) >= _HEAD:
            size = int.from_bytes(self._rest[:_HEAD], "big")
            if len(self._rest) < _HEAD + size:
                break
            messages.append(marshal.loads(self._rest[_HEAD : _HEAD + size]))
            self._rest = self._rest[_HEAD + size :]
        return messages

    def receive_one(self) -> tuple[Any, ...]:
        """Wait for one message. Empty: the other end is gone. Call it before any `receive`."""
        size = self._exactly(_HEAD)
        body = self._exactly(int.from_bytes(size, "big")) if size else b""
        message: tuple[Any, ...] = marshal.loads(body) if body else ()
        return message

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = os.read(self.handle, size - len(data))
            if not chunk:
                return b""
            data += chunk
        return data

    @property
    def handles(self) -> tuple[int, int]:
        """Both descriptors of this end."""
        return self.handle, self._writing

    def close(self) -> None:
        """Close this end."""
        for handle in self.handles:
            os.close(handle)
