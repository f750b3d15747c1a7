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
_FRAME = struct.Struct(">IBIB")  # size of the rest, kind, and for output: instance, stream
_JSON, _OUTPUT = 0, 1
#: The limit of a frame; a larger one is not ours.
_MAX = 64 << 20
#: The bytes that a host may send before its relay's mark.
_MAX_GREETING = 1 << 20
OUTPUT = "output"


class HostTask(NamedTuple):
    """The task of a host: the first message that poprun sends to the relay there.

    name: of the run there. owns: each instance's rank and own variables. folder: poprun's working
    folder. program: a program that must exist there; empty: the instances find it. session:
    poprun's run folder. placement, gpus: see Plan. in_pid_namespace: whether a PID namespace
    contains the instances. returns: whether instances return results (_exchange). traces: whether
    they write records for the timeline.
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


class RelayConnection:
    """One end of the connection. reading, writing: file descriptors. closed: the other end is gone.

    greets: this end begins with the mark and its version, and the other end waits for them.
    version: the version of the other end; None until it is known.
    """

    def __init__(self, reading: int, writing: int, *, greets: str = "") -> None:
        self.handle, self.writing = reading, writing
        for handle in (reading, writing):
            os.set_blocking(handle, False)
        self.closed = False
        self.version: str | None = "" if greets else None
        self._rest = b""
        self._out: list[bytes] = []
        self.waiting = 0
        if greets:
            self._put(_MARK + greets.encode() + b"\n")

    def send(self, *message: Any) -> None:
        """Send a message. The other end may be gone already."""
        import json  # 3 ms that a launch on one host does not need

        body = json.dumps(message).encode()
        self._put(_FRAME.pack(len(body) + 1, _JSON, 0, 0) + body + b"\n")

    def send_output(self, index: int, stream: int, data: bytes) -> None:
        """Pass on an instance's output: standard output (0) or standard error (1)."""
        self._put(_FRAME.pack(len(data) + 1, _OUTPUT, index, stream) + data + b"\n")

    def _put(self, data: bytes) -> None:
        if not self.closed:
            self._out.append(data)
            self.waiting += len(data)
            self.pump()

    def pump(self) -> None:
        """Send what can be sent now. Call it when `writing` is ready and `waiting` is not 0."""
        data = b"".join(self._out)
        done = 0
        try:
            while done < len(data):
                done += os.write(self.writing, data[done : done + 65536])
        except BlockingIOError:
            pass
        except OSError:
            done = len(data)  # nobody reads it; earlier messages of the other end may still be read
        self._out = [data[done:]] if done < len(data) else []
        self.waiting = len(data) - done

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
        if self.version is None and not self._greeted():
            return []
        messages: list[tuple[Any, ...]] = []
        at = 0
        while len(self._rest) - at >= _FRAME.size:
            size, kind, index, stream = _FRAME.unpack_from(self._rest, at)
            if not 0 < size <= _MAX:
                self.closed = True
                break
            begin, end = at + _FRAME.size, at + _FRAME.size + size
            if len(self._rest) < end:
                break
            body = self._rest[begin : end - 1]
            at = end
            if kind == _OUTPUT:
                messages.append((OUTPUT, index, stream, body))
                continue
            try:
                messages.append(tuple(json.loads(body)))
            except ValueError:
                self.closed = True
                break
        self._rest = self._rest[at:]
        return messages

    def _greeted(self) -> bool:
        before, mark, after = self._rest.partition(_MARK)
        version, newline, rest = after.partition(b"\n")
        if not mark or not newline:
            if len(before) > _MAX_GREETING:
                self.closed = True
            return False
        self.version, self._rest = version.decode(errors="replace"), rest
        return True

    def close(self) -> None:
        """Close the connection."""
        self.closed = True
        for handle in {self.handle, self.writing}:
            with contextlib.suppress(OSError):
                os.close(handle)


class HostsUnusable(PodwrightError):
    """The launch cannot use hosts that it needs."""

    code = "UNAVAILABLE"
    exit_code = 69
