"""What instances write, as whole lines with the instance's tag in front: `[1,RANK]<stdout>: `.

A line is held back until it is whole, so nothing of another instance can come between; one that
grows beyond any sense is passed on in pieces. Nothing else is kept but the last words of each
stream, so memory stays flat however much is written and however slowly it is read.
"""

from __future__ import annotations

import os
from collections import deque

#: Bytes of a line that is still held back for its end.
MAX_LINE = 1 << 20
#: Bytes of a stream's last words.
TAIL = 4096
#: Bytes that wait for a slow reader before poprun stops reading from the instances.
FULL = 1 << 20
#: What a pipe that is ready takes without blocking (PIPE_BUF).
_PIECE = 4096


class Stream:
    """One of the two streams of one instance. last: its last words, as they came."""

    def __init__(self, index: int, name: str) -> None:
        self.index = index
        self.name = name
        self.tag = f"[1,{index}]<{name}>: ".encode()
        self.last = b""
        self._begun: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> bytes:
        """The lines that `data` completes, tagged."""
        self.last = (self.last + data)[-TAIL:]
        lines, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._hold(data)
            return self.finish() if self._size >= MAX_LINE else b""
        lines = b"".join([*self._begun, lines])
        self._begun, self._size = [], 0
        if rest:
            self._hold(rest)
        return self.tag + lines.replace(b"\n", b"\n" + self.tag) + b"\n"

    def _hold(self, piece: bytes) -> None:
        self._begun.append(piece)
        self._size += len(piece)

    def finish(self) -> bytes:
        """The line that was begun and never ended, made whole."""
        line = b"".join(self._begun)
        self._begun, self._size = [], 0
        return self.tag + line + b"\n" if line else b""


def last_lines(streams: list[Stream], count: int = 20) -> list[bytes]:
    """The last lines of an instance's streams, tagged; standard error comes last."""
    found: list[bytes] = []
    for stream in streams:
        lines = stream.last.splitlines()
        if len(stream.last) == TAIL and len(lines) > 1:
            del lines[0]  # it has lost its beginning
        found += [stream.tag + line for line in lines[-count:]]
    return found


class Sink:
    """A queue in front of a file descriptor that may be slow, or gone.

    slow: it is a pipe or a terminal, which takes no more than a piece without blocking.
    """

    def __init__(self, handle: int, *, slow: bool) -> None:
        self.handle = handle
        self.broken = False
        self.size = 0
        self._slow = slow
        self._queue: deque[bytes] = deque()

    @property
    def full(self) -> bool:
        """Whoever fills it should wait."""
        return self.size >= FULL

    def add(self, data: bytes) -> None:
        """Put into the line."""
        if data and not self.broken:
            self._queue.append(data)
            self.size += len(data)

    def pump(self) -> None:
        """Write what can be written now; call it when the descriptor is ready."""
        if self._slow:
            data = self._take()
        else:
            data = b"".join(self._queue)
            self._queue.clear()
        if not data:
            return
        piece = data[:_PIECE] if self._slow else data
        try:
            done = os.write(self.handle, piece)
        except BlockingIOError:
            done = 0
        except OSError:
            self.broken = True
            self._queue.clear()
            self.size = 0
            return
        self.size -= done
        if done < len(data):
            self._queue.appendleft(data[done:])

    def _take(self) -> bytes:
        """About a piece from the head of the line: many short entries cost one write."""
        taken: list[bytes] = []
        size = 0
        while self._queue and size < _PIECE:
            taken.append(self._queue.popleft())
            size += len(taken[-1])
        return b"".join(taken)
