"""The calls that an agent has received, so that it obeys none twice and none of a replaced server.

A call that changes something is written to a file before it is obeyed, so a restarted agent refuses
what the killed one refused. A call that only reads is kept in memory.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from podwright.errors import Fenced, Internal, InvalidRequest, Unauthenticated
from podwright.ground.durable_files import write_whole

#: The number of lines after which the file is rewritten without the calls that have expired.
_REWRITE_AFTER_LINES = 1000


class Call(msgspec.Struct, frozen=True):
    """A line of the file. at: when the call was signed. epoch: that of the server's start."""

    nonce: str
    at: float
    server: str
    epoch: int


class Heard:
    """The calls that were received.

    keep_seconds: seconds after which an old call is refused for its age, so it need not be kept any
    longer. path: the file; None keeps the calls in memory. Raises wire.InvalidRequest when the file
    is not one of this format.
    """

    def __init__(self, keep_seconds: float, path: Path | None = None, *, now: float = 0.0) -> None:
        self._keep, self._path = keep_seconds, path
        self._nonce_times: dict[str, float] = {}
        self._last: dict[str, Call] = {}
        self._lines = 0
        if path is not None:
            self._load_calls(path, now)

    def hear(self, call: Call, now: float, *, lasting: bool) -> None:
        """Record a call. With `lasting`, the record is durable on return.

        Raises wire.Unauthenticated for a call that was received before, and wire.Fenced for a call
        of a server that a newer one has replaced.
        """
        if call.nonce in self._nonce_times:
            raise Unauthenticated(
                "the agent does not know this caller: it was played again",
                would_work="make a new call",
            )
        latest_call = self._last.get(call.server)
        if latest_call is not None and call.epoch < latest_call.epoch:
            raise Fenced(
                f"a newer start of this server (epoch {latest_call.epoch}, not {call.epoch}) gives "
                "the orders now"
            )
        self._forget(now)
        self._nonce_times[call.nonce] = call.at
        if latest_call is None or (call.epoch, call.at) >= (latest_call.epoch, latest_call.at):
            self._last[call.server] = call
        if lasting and self._path is not None:
            self._append_call(self._path, call)

    def _forget(self, now: float) -> None:
        expired_nonces = [
            nonce for nonce, signed_at in self._nonce_times.items() if now - signed_at > self._keep
        ]
        for nonce in expired_nonces:
            del self._nonce_times[nonce]

    def _append_call(self, path: Path, call: Call) -> None:
        try:
            if self._lines >= _REWRITE_AFTER_LINES:
                self._rewrite(path)
                return
            with open(path, "ab", opener=_open_private) as file:
                file.write(msgspec.json.encode(call) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            self._lines += 1
        except OSError as error:
            raise Internal(f"the agent cannot write {path}: {error.strerror}") from None

    def _rewrite(self, path: Path) -> None:
        """Replace the file with one that contains only the calls that have not expired."""
        remaining_calls = {call.nonce: call for call in self._last.values()}
        for nonce, signed_at in self._nonce_times.items():
            remaining_calls.setdefault(nonce, Call(nonce, signed_at, "", 0))
        write_whole(path, msgspec.json.Encoder().encode_lines(remaining_calls.values()))
        self._lines = len(remaining_calls)

    def _load_calls(self, path: Path, now: float) -> None:
        try:
            lines = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise InvalidRequest(f"cannot read {path}: {error.strerror}") from None
        for line_number, line in enumerate(lines):
            try:
                call = msgspec.json.decode(line, type=Call) if line else None
            except msgspec.MsgspecError:
                if line_number == len(lines) - 1:
                    break  # killed while writing it, so the call was not obeyed
                raise InvalidRequest(
                    f"{path} holds no calls of servers", would_work="move it away"
                ) from None
            if call is None:
                continue
            self._nonce_times[call.nonce] = call.at
            latest_call = self._last.get(call.server)
            if call.server and (latest_call is None or call.epoch >= latest_call.epoch):
                self._last[call.server] = call
        self._forget(now)
        self._rewrite(path)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
