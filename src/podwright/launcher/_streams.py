"""What instances write, as whole lines with the instance's tag in front: `[1,RANK]<stdout>: `.

A line is held back until it is whole, so nothing of another instance can come between; one that
grows beyond any sense is passed on in pieces. Nothing else is kept but the last words of each
stream, so memory stays flat however much is written and however slowly it is read.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable

#: Bytes of a line that is still held back for its end.
MAX_LINE = 1 << 20
#: Bytes of a stream's last words.
TAIL = 4096
#: Bytes that wait for a slow reader before poprun stops reading from the instances.
FULL = 1 << 20
#: Seconds from one line to the next of a progress bar.
BAR_EVERY = 5.0
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # SGR; no red, which says failure
_COLOUR = b"\x1b[%dm%s\x1b[0m"
#: What a pipe that is ready takes without blocking (PIPE_BUF).
_PIECE = 4096


class Stream:
    """One of the two streams of one instance. last: its last words, as they came.

    colour: the tag has a colour by instance. stamped: the time is in front of it.
    """

    def __init__(
        self,
        index: int,
        name: str,
        *,
        colour: bool = False,
        stamped: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.index = index
        self.name = name
        self.tag = f"[1,{index}]<{name}>: ".encode()
        self.last = b""
        self._mark = _COLOUR % (_COLOURS[index % len(_COLOURS)], self.tag) if colour else self.tag
        self._stamped, self._clock = stamped, clock
        self._shown = clock()
        self._begun: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> bytes:
        """The lines that `data` completes."""
        self.last = data[-TAIL:] if len(data) >= TAIL else (self.last + data)[-TAIL:]
        if b"\r" in data or (self._size and b"\r" in self._begun[-1]):
            return self._feed_bar(data)
        lines, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._hold_back(data)
            return self.finish() if self._size >= MAX_LINE else b""
        lines = b"".join([*self._begun, lines, newline])
        self._begun, self._size = [], 0
        if rest:
            self._hold_back(rest)
        return lines

    def _feed_bar(self, data: bytes) -> bytes:
        """Carriage returns: of a line that is written over, its last state counts.

        A bar that goes on is shown once in BAR_EVERY seconds, as a line.
        """
        lines, newline, rest = b"".join([*self._begun, data]).rpartition(b"\n")
        self._begun, self._size = [], 0
        out = b"".join(_state(line) + b"\n" for line in lines.split(b"\n")) if newline else b""
        before, returned, now = rest.rpartition(b"\r")
        state = _state(before)
        if state and self._clock() - self._shown >= BAR_EVERY:
            self._shown = self._clock()
            out += state + b"\n"
            state = b""
        if rest:
            self._hold_back(state + returned + now)
        return out + self.finish() if self._size >= MAX_LINE else out

    def _hold_back(self, piece: bytes) -> None:
        self._begun.append(piece)
        self._size += len(piece)

    def finish(self) -> bytes:
        """The line that was begun and never ended, made whole."""
        line = _state(b"".join(self._begun))
        self._begun, self._size = [], 0
        return line + b"\n" if line else b""

    def tagged(self, lines: bytes) -> bytes:
        """Whole lines with the tag in front of each."""
        mark = self._mark
        if self._stamped:
            now = self._clock()
            clock = time.strftime("%H:%M:%S", time.localtime(now))
            mark = f"{clock}.{int(now * 1000) % 1000:03} ".encode() + mark
        return mark + lines[:-1].replace(b"\n", b"\n" + mark) + b"\n" if lines else b""


def _state(line: bytes) -> bytes:
    """What stands in a line after all its carriage returns."""
    if b"\r" not in line:
        return line
    return next((part for part in reversed(line.split(b"\r")) if part), b"")


def last_lines(streams: list[Stream], count: int = 20) -> list[bytes]:
    """The last lines of an instance's streams, tagged; standard error comes last."""
    found: list[bytes] = []
    for stream in streams:
        lines = [_state(line) for line in stream.last.removesuffix(b"\n").split(b"\n")]
        lines = [line for line in lines if line]
        if len(stream.last) == TAIL and len(lines) > 1:
            del lines[0]  # it has lost its beginning
        found += [stream.tag + line for line in lines[-count:]]
    return found


class Sink:
    """A queue in front of a file descriptor that may be slow, or gone.

    slow: it is a pipe or a terminal, which takes no more than a piece without blocking.
    colour: it is a terminal that shows colours.
    """

    def __init__(self, handle: int, *, slow: bool, colour: bool = False) -> None:
        self.handle = handle
        self.colour = colour
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
            self.size = 0  # a signal may have raised between a write and its being counted
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
