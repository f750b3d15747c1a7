"""The output of instances, as whole lines with the instance's tag in front: `[1,RANK]<stdout>: `.

A line is held back until it is complete, so no other instance's output can come between. A line
that grows beyond MAX_LINE_BYTES is passed on in pieces. Only the last bytes of each stream are
kept, so memory stays flat however much is written and however slowly it is read.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable

#: The bytes of an incomplete line that are held back at most.
MAX_LINE_BYTES = 1 << 20
#: The bytes at the end of a stream that are kept.
TAIL_BYTES = 4096
#: The bytes that wait for a slow reader before poprun stops reading from the instances.
FULL = 1 << 20
#: Seconds from one shown line of a progress bar to the next.
BAR_SECONDS = 5.0
_TAG_COLOUR_CODES = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # SGR; no red, which says failure
_COLOUR_FORMAT = b"\x1b[%dm%s\x1b[0m"
#: The bytes that a ready pipe takes without blocking (PIPE_BUF).
_WRITE_PIECE_BYTES = 4096


class Stream:
    """One of the two streams of one instance. last: its last bytes, unchanged.

    has_colour: whether the tag has a colour by instance. has_timestamps: whether the time is in
    front of it.
    """

    def __init__(
        self,
        index: int,
        name: str,
        *,
        has_colour: bool = False,
        has_timestamps: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.index = index
        self.name = name
        self.tag = f"[1,{index}]<{name}>: ".encode()
        self.last = b""
        self._mark = (
            _COLOUR_FORMAT % (_TAG_COLOUR_CODES[index % len(_TAG_COLOUR_CODES)], self.tag)
            if has_colour
            else self.tag
        )
        self._has_timestamps, self._clock = has_timestamps, clock
        self._bar_written_at = clock()
        self._partial: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> bytes:
        """Return the lines that `data` completes."""
        self.last = (
            data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (self.last + data)[-TAIL_BYTES:]
        )
        if b"\r" in data or (self._size and b"\r" in self._partial[-1]):
            return self._feed_bar(data)
        lines, newline, unfinished = data.rpartition(b"\n")
        if not newline:
            self._keep_partial_line(data)
            return self.finish() if self._size >= MAX_LINE_BYTES else b""
        lines = b"".join([*self._partial, lines, newline])
        self._partial, self._size = [], 0
        if unfinished:
            self._keep_partial_line(unfinished)
        return lines

    def _feed_bar(self, data: bytes) -> bytes:
        """Handle carriage returns: only the last state of an overwritten line is passed on.

        A bar that goes on is shown once in BAR_SECONDS, as a line.
        """
        lines, newline, unfinished = b"".join([*self._partial, data]).rpartition(b"\n")
        self._partial, self._size = [], 0
        shown_lines = (
            b"".join(_shown_line_state(line) + b"\n" for line in lines.split(b"\n"))
            if newline
            else b""
        )
        overwritten, carriage_return, current_text = unfinished.rpartition(b"\r")
        bar_state = _shown_line_state(overwritten)
        if bar_state and self._clock() - self._bar_written_at >= BAR_SECONDS:
            self._bar_written_at = self._clock()
            shown_lines += bar_state + b"\n"
            bar_state = b""
        if unfinished:
            self._keep_partial_line(bar_state + carriage_return + current_text)
        return shown_lines + self.finish() if self._size >= MAX_LINE_BYTES else shown_lines

    def _keep_partial_line(self, piece: bytes) -> None:
        self._partial.append(piece)
        self._size += len(piece)

    def finish(self) -> bytes:
        """Return the incomplete last line, with a newline."""
        line = _shown_line_state(b"".join(self._partial))
        self._partial, self._size = [], 0
        return line + b"\n" if line else b""

    def tagged(self, lines: bytes) -> bytes:
        """Return whole lines with the tag in front of each."""
        prefix = self._mark
        if self._has_timestamps:
            wall_time = self._clock()
            text = time.strftime("%H:%M:%S", time.localtime(wall_time))
            prefix = f"{text}.{int(wall_time * 1000) % 1000:03} ".encode() + prefix
        return prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n" if lines else b""


def _shown_line_state(line: bytes) -> bytes:
    """Return what a line shows after all its carriage returns."""
    if b"\r" not in line:
        return line
    return next((part for part in reversed(line.split(b"\r")) if part), b"")


def last_lines(streams: list[Stream], count: int = 20) -> list[bytes]:
    """Return the last lines of an instance's streams, tagged; standard error comes last."""
    tagged_lines: list[bytes] = []
    for stream in streams:
        lines = [_shown_line_state(line) for line in stream.last.removesuffix(b"\n").split(b"\n")]
        lines = [line for line in lines if line]
        if len(stream.last) == TAIL_BYTES and len(lines) > 1:
            del lines[0]  # its beginning was cut off
        tagged_lines += [stream.tag + line for line in lines[-count:]]
    return tagged_lines


class Sink:
    """A buffer in front of a file descriptor that may be slow, or gone.

    is_slow: whether it is a pipe or a terminal, which takes only a small piece without blocking.
    has_colour: whether it is a terminal that shows colours.
    """

    def __init__(self, file_descriptor: int, *, is_slow: bool, has_colour: bool = False) -> None:
        self.handle = file_descriptor
        self.colour = has_colour
        self.broken = False
        self.size = 0
        self._slow = is_slow
        self._queue: deque[bytes] = deque()

    @property
    def full(self) -> bool:
        """Whether producers should wait."""
        return self.size >= FULL

    def add(self, data: bytes) -> None:
        """Append bytes to the buffer."""
        if data and not self.broken:
            self._queue.append(data)
            self.size += len(data)

    def pump(self) -> None:
        """Write what can be written now. Call it when the descriptor is ready."""
        if self._slow:
            buffered = self._take_head_piece()
        else:
            buffered = b"".join(self._queue)
            self._queue.clear()
        if not buffered:
            self.size = 0  # a signal may have raised after a write and before it was counted
            return
        piece = buffered[:_WRITE_PIECE_BYTES] if self._slow else buffered
        try:
            written_bytes = os.write(self.handle, piece)
        except BlockingIOError:
            written_bytes = 0
        except OSError:
            self.broken = True
            self._queue.clear()
            self.size = 0
            return
        self.size -= written_bytes
        if written_bytes < len(buffered):
            self._queue.appendleft(buffered[written_bytes:])

    def _take_head_piece(self) -> bytes:
        """Return about one piece from the head of the buffer: many short entries cost one write."""
        entries: list[bytes] = []
        count = 0
        while self._queue and count < _WRITE_PIECE_BYTES:
            entries.append(self._queue.popleft())
            count += len(entries[-1])
        return b"".join(entries)
