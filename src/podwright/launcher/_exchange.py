"""What a launch carries to its instances, and brings back from each: a function and its results.

The payload lies in the run's folder on every host, a file for this user alone; on other hosts it
came over the launch's own line. What an instance gives back it writes into a third stream, beside
output and errors; poprun keeps it in a file for each instance. So hosts need share no file system,
and nobody else has a way to write either.
"""

from __future__ import annotations

import binascii
import os
from collections.abc import Iterator
from typing import NamedTuple

from podwright.functions import PAYLOAD_VARIABLE as PAYLOAD_VARIABLE
from podwright.functions import RESULT_VARIABLE as RESULT_VARIABLE

#: The streams of an instance, by their numbers on a line between hosts.
STREAMS = ("out", "err")
RESULT_STREAM = "result"
#: What an instance says for the launch's timeline, and the variable that names the pipe (popdist).
TRACE_STREAM, TRACE_VARIABLE = "trace", "POPDIST_TRACE"
_PIECE = 3 << 20  # three bytes are four characters of base64


class Exchange(NamedTuple):
    """payload: for all instances. folder: where `result.RANK` of each is put; it exists."""

    payload: bytes
    folder: str


def streams(*, returns: bool, traces: bool = False) -> dict[str, int]:
    """The names of an instance's streams, and their numbers."""
    names = (*STREAMS, RESULT_STREAM, TRACE_STREAM)
    wanted = (True, True, returns, traces)
    return {name: n for n, name in enumerate(names) if wanted[n]}


def pieces(payload: bytes) -> Iterator[str]:
    """The payload as text, piece by piece; at least one."""
    for at in range(0, max(len(payload), 1), _PIECE):
        yield binascii.b2a_base64(payload[at : at + _PIECE], newline=False).decode()


def add_piece(path: str, text: str) -> None:
    """Put one more piece into the payload's file."""
    append(path, binascii.a2b_base64(text))


def append(path: str, data: bytes) -> None:
    """Add to a file of ours; a link is not followed. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(path, flags, 0o600)
    try:
        while data:
            data = data[os.write(handle, data) :]
    finally:
        os.close(handle)


class Results:
    """What instances gave back, as it comes, in a file for each. Files stay open in between."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._open: dict[int, int] = {}

    def add(self, rank: int, data: bytes) -> None:
        """More of what an instance gives back. Raises OSError."""
        handle = self._open.get(rank)
        if handle is None:
            path = os.path.join(self._folder, f"{RESULT_STREAM}.{rank}")
            # What an earlier start of the same instances gave back is not theirs.
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = self._open[rank] = os.open(path, flags, 0o600)
        while data:
            data = data[os.write(handle, data) :]

    def close(self) -> None:
        """No more comes."""
        for handle in self._open.values():
            os.close(handle)
        self._open = {}
