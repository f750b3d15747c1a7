"""Whoever has connected to an instance and not yet said all of its greeting.

Nobody is waited for: whoever says nothing, or one byte now and then, holds up neither the others
nor the collective that goes on meanwhile. It may stay until its place is wanted: an instance that
was stopped in between (Ctrl-Z) is heard when it goes on.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Iterator

#: Strangers that may stand there beside the instances that are expected.
STRANGERS = 128


class Arrivals:
    """Those at a door. door: it listens.

    length: bytes that a greeting has, by what has come of it. hello: what each is told first.
    expected: instances that may come at once. Beyond them and STRANGERS, who came first makes room.
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
        self._most = expected + STRANGERS
        self._here: dict[int, _Arrival] = {}

    def register(self, poll: select.poll) -> None:
        """What is to be heard here counts for this poll."""
        for number in (self._door.fileno(), *self._here):
            poll.register(number, select.POLLIN)

    def hear(self, numbers: set[int]) -> Iterator[tuple[socket.socket, bytes, bytes]]:
        """Of those descriptors, each greeting that is whole now: its connection, which is the
        caller's from here on and does not block, what it was told first, and what it said."""
        if self._door.fileno() in numbers:
            self._accept()
        for number in numbers & self._here.keys():
            arrival = self._here[number]
            try:
                said = arrival.hear(self._length)
            except OSError:
                self._send_away(number)
                continue
            if said is not None:
                del self._here[number]
                yield arrival.line, arrival.hello, said

    def close(self) -> None:
        """Nobody is heard any more; the door stays its owner's."""
        for number in list(self._here):
            self._send_away(number)

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._door.accept()
            except OSError:  # nobody more, or no descriptor is left
                return
            line.setblocking(False)
            hello = self._hello()
            try:
                if hello:
                    line.send(hello)
            except OSError:
                line.close()
                continue
            if len(self._here) >= self._most:
                self._send_away(next(iter(self._here)))
            self._here[line.fileno()] = _Arrival(line, hello)

    def _send_away(self, number: int) -> None:
        self._here.pop(number).line.close()


class _Arrival:
    """A connection, and what it has said."""

    def __init__(self, line: socket.socket, hello: bytes) -> None:
        self.line, self.hello = line, hello
        self._said = b""

    def hear(self, length: Callable[[bytes], int]) -> bytes | None:
        """Its greeting, once it is whole; not a byte more is read. Raises OSError."""
        with contextlib.suppress(BlockingIOError):
            while (wanted := length(self._said) - len(self._said)) > 0:
                piece = self.line.recv(wanted)
                if not piece:
                    raise ConnectionResetError("the other side hung up")
                self._said += piece
            return self._said
        return None
