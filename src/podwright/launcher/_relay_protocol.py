"""The line between poprun and its relay on another host, through whatever carries bytes there.

ssh and srun carry standard input and output. Login scripts may print before the relay does, so it
begins with a mark and its version. srun holds output back until a newline comes, so each frame
ends with one. Frames are JSON, which no two versions of Python disagree about, or what instances
write, as it is. Nothing here blocks: what cannot be sent yet waits, and `waiting` says so.
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
#: A frame beyond this is no frame of ours.
_MAX = 64 << 20
#: Bytes that a host may say before its relay's mark.
_MAX_GREETING = 1 << 20
OUTPUT = "output"


class HostTask(NamedTuple):
    """What poprun wants of a host: the first that it says to the relay there.

    name: of the run there. owns: each instance's rank and own variables. folder: poprun's own.
    program: what must be there; empty: the instances find it. session: poprun's run folder.
    placement, gpus: as a plan has them. held: in a PID namespace. returns: instances give something
    back (_exchange); traces: and say what they do.
    """

    name: str
    owns: Sequence[tuple[int, Mapping[str, str]]]
    folder: str
    program: str
    placement: str
    gpus: Sequence[Any]
    environ: Mapping[str, str]
    session: str
    held: bool
    returns: bool
    traces: bool


class RelayConnection:
    """One end. reading, writing: file descriptors; closed: the other end is gone.

    greets: this end begins with the mark and its version; the other end then waits for it.
    version: what the other end said; None until it did.
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
        """Say something; nobody may be left to hear it."""
        import json  # 3 ms that a launch on one host has no need of

        body = json.dumps(message).encode()
        self._put(_FRAME.pack(len(body) + 1, _JSON, 0, 0) + body + b"\n")

    def send_output(self, index: int, stream: int, data: bytes) -> None:
        """Pass on what an instance wrote: to standard output (0) or standard error (1)."""
        self._put(_FRAME.pack(len(data) + 1, _OUTPUT, index, stream) + data + b"\n")

    def _put(self, data: bytes) -> None:
        if not self.closed:
            self._out.append(data)
            self.waiting += len(data)
            self.pump()

    def pump(self) -> None:
        """Send what can be sent now; call it when `writing` is ready and something is waiting."""
        data = b"".join(self._out)
        done = 0
        try:
            while done < len(data):
                done += os.write(self.writing, data[done : done + 65536])
        except BlockingIOError:
            pass
        except OSError:
            done = len(data)  # nobody listens; what was said before that may still be read
        self._out = [data[done:]] if done < len(data) else []
        self.waiting = len(data) - done

    def receive(self) -> list[tuple[Any, ...]]:
        """What was said since; output as (OUTPUT, instance, stream, bytes)."""
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
        """Hang up."""
        self.closed = True
        for handle in {self.handle, self.writing}:
            with contextlib.suppress(OSError):
                os.close(handle)


class HostsUnusable(PodwrightError):
    """Hosts that a launch needs cannot be had."""

    code = "UNAVAILABLE"
    exit_code = 69
