"""The exchange of a launch with its instances: it sends a function to all, and gets their results.

The payload is in the run's folder on every host, in a private file; it reaches other hosts over the
launch's own connection. An instance writes its result into a third stream, beside output and
errors, and poprun keeps it in a file for each instance. So hosts need no common file system, and
nobody else can write either of the two.
"""

from __future__ import annotations

import binascii
import os
from collections.abc import Iterator
from typing import NamedTuple

from podwright.functions import PAYLOAD_VARIABLE as PAYLOAD_VARIABLE
from podwright.functions import RESULT_VARIABLE as RESULT_VARIABLE

#: The streams of an instance, by their numbers on a line between hosts.
OUTPUT_STREAMS = ("out", "err")
RESULT_STREAM = "result"
#: The stream of an instance's records for the timeline, and the variable that names its pipe
#: (popdist).
TRACE_STREAM, TRACE_VARIABLE = "trace", "POPDIST_TRACE"
_PAYLOAD_PIECE_BYTES = 3 << 20  # three bytes are four characters of base64


class Exchange(NamedTuple):
    """payload: the bytes for all instances. folder: an existing folder that gets `result.RANK` of
    each.
    """

    payload: bytes
    folder: str


def streams(*, returns: bool, traces: bool = False) -> dict[str, int]:
    """Return the names of an instance's streams, with their numbers."""
    stream_names = (*OUTPUT_STREAMS, RESULT_STREAM, TRACE_STREAM)
    is_wanted = (True, True, returns, traces)
    return {name: number for number, name in enumerate(stream_names) if is_wanted[number]}


def pieces(payload: bytes) -> Iterator[str]:
    """Yield the payload as text, in pieces; at least one."""
    for piece_start in range(0, max(len(payload), 1), _PAYLOAD_PIECE_BYTES):
        yield binascii.b2a_base64(
            payload[piece_start : piece_start + _PAYLOAD_PIECE_BYTES], newline=False
        ).decode()


def add_piece(path: str, encoded_piece: str) -> None:
    """Append one more piece to the payload's file."""
    append(path, binascii.a2b_base64(encoded_piece))


def append(path: str, data: bytes) -> None:
    """Append to a file of ours. A link is not followed. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)


class Results:
    """The results of instances as they arrive, in a file for each. Files stay open meanwhile."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._open: dict[int, int] = {}

    def add(self, rank: int, data: bytes) -> None:
        """Append more of an instance's result. Raises OSError."""
        descriptor = self._open.get(rank)
        if descriptor is None:
            path = os.path.join(self._folder, f"{RESULT_STREAM}.{rank}")
            # The result of an earlier start of the same instance does not belong to this one.
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = self._open[rank] = os.open(path, flags, 0o600)
        while data:
            data = data[os.write(descriptor, data) :]

    def close(self) -> None:
        """Close all files."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open = {}
