"""The protocol between poprun and its relay on another host, over whatever carries bytes there.

ssh and srun carry standard input and output. Login scripts may print before the relay does, so the
relay's first bytes are a mark and its version. srun holds output back until a newline comes, so
each frame ends with one. A frame is JSON, on which all versions of Python agree, or the unchanged
output of an instance. Nothing here blocks: bytes that cannot be sent yet are kept, and `waiting` is
their number.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from podwright.errors import PodwrightError

_MARK = b"\npodwright-relay "
_FRAME_HEADER = struct.Struct(">IBIB")  # size of the rest, kind, and for output: instance, stream
_JSON_FRAME, _OUTPUT_FRAME = 0, 1
#: The limit of a frame; a larger one is not ours.
_MAX_FRAME_BYTES = 64 << 20
#: The bytes that a host may send before its relay's mark.
_MAX_GREETING_BYTES = 1 << 20
OUTPUT = "output"


class HostTask(NamedTuple):
    """The task of a host: the first message that poprun sends to the relay there.

    name: of the run there. owns: each instance's rank and own variables. folder: poprun's working
    folder. program: a program that must exist there; empty: the instances find it. session:
    poprun's run folder. placement, gpus: see Plan. in_pid_namespace: whether a PID namespace
    contains the instances. returns: whether instances return results (_exchange). traces: whether
    they write records for the timeline. without_input: whether the input of instance 0 is empty.
    """

    name: str
    owns: Sequence[tuple[int, Mapping[str, str]]]
    folder: str
    program: str
    placement: str
    gpus: Sequence[Any]
    environ: Mapping[str, str]
    session: str
    in_pid_namespace: bool
    returns: bool
    traces: bool
    without_input: bool = False


class RelayConnection:
    """One end of the connection. reading, writing: file descriptors. closed: the other end is gone.

    greets: this end begins with the mark and its version, and the other end waits for them.
    version: the version of the other end; None until it is known.
    """

    def __init__(self, reading: int, writing: int, *, greets: str = "") -> None:
        self.handle, self.writing = reading, writing
        for fd in (reading, writing):
            os.set_blocking(fd, False)
        self.closed = False
        self.version: str | None = "" if greets else None
        self._rest = b""
        self._out: list[bytes] = []
        self.waiting = 0
        if greets:
            self._queue_frame(_MARK + greets.encode() + b"\n")

    def send(self, *message: Any) -> None:
        """Send a message. The other end may be gone already."""
        import json  # 3 ms that a launch on one host does not need

        message_json = json.dumps(message).encode()
        self._queue_frame(
            _FRAME_HEADER.pack(len(message_json) + 1, _JSON_FRAME, 0, 0) + message_json + b"\n"
        )

    def send_output(self, rank: int, stream: int, output: bytes) -> None:
        """Pass on an instance's output: standard output (0) or standard error (1)."""
        self._queue_frame(
            _FRAME_HEADER.pack(len(output) + 1, _OUTPUT_FRAME, rank, stream) + output + b"\n"
        )

    def _queue_frame(self, frame: bytes) -> None:
        if not self.closed:
            self._out.append(frame)
            self.waiting += len(frame)
            self.pump()

    def pump(self) -> None:
        """Send what can be sent now. Call it when `writing` is ready and `waiting` is not 0."""
        unsent_bytes = b"".join(self._out)
        sent_bytes = 0
        try:
            while sent_bytes < len(unsent_bytes):
                sent_bytes += os.write(self.writing, unsent_bytes[sent_bytes : sent_bytes + 65536])
        except BlockingIOError:
            pass
        except OSError:
            # The other end no longer reads. Its earlier messages may still be read here.
            sent_bytes = len(unsent_bytes)
        self._out = [unsent_bytes[sent_bytes:]] if sent_bytes < len(unsent_bytes) else []
        self.waiting = len(unsent_bytes) - sent_bytes

    def receive(self) -> list[tuple[Any, ...]]:
        """Return the messages since the last call; output as (OUTPUT, instance, stream, bytes)."""
        import json

        try:
            chunk = os.read(self.handle, 1 << 20)
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        if not chunk:
            self.closed = True
        self._rest += chunk
        if self.version is None and not self._has_read_greeting():
            return []
        messages: list[tuple[Any, ...]] = []
        frame_start = 0
        while len(self._rest) - frame_start >= _FRAME_HEADER.size:
            frame_size, frame_kind, rank, stream = _FRAME_HEADER.unpack_from(
                self._rest, frame_start
            )
            if not 0 < frame_size <= _MAX_FRAME_BYTES:
                self.closed = True
                break
            body_start, body_end = (
                frame_start + _FRAME_HEADER.size,
                frame_start + _FRAME_HEADER.size + frame_size,
            )
            if len(self._rest) < body_end:
                break
            frame_body = self._rest[body_start : body_end - 1]
            frame_start = body_end
            if frame_kind == _OUTPUT_FRAME:
                messages.append((OUTPUT, rank, stream, frame_body))
                continue
            try:
                messages.append(tuple(json.loads(frame_body)))
            except ValueError:
                self.closed = True
                break
        self._rest = self._rest[frame_start:]
        return messages

    def _has_read_greeting(self) -> bool:
        noise, marker, greeting = self._rest.partition(_MARK)
        version, newline, remaining_bytes = greeting.partition(b"\n")
        if not marker or not newline:
            if len(noise) > _MAX_GREETING_BYTES:
                self.closed = True
            return False
        self.version, self._rest = version.decode(errors="replace"), remaining_bytes
        return True

    def close(self) -> None:
        """Close the connection."""
        self.closed = True
        for fd in {self.handle, self.writing}:
            with contextlib.suppress(OSError):
                os.close(fd)


class HostsUnusable(PodwrightError):
    """The launch cannot use hosts that it needs."""

    code = "UNAVAILABLE"
    exit_code = 69
