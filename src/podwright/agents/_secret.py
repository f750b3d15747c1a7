"""How server and agent know each other: a shared key that never travels.

Each call carries a time, a nonce and an HMAC over them, the call's name and its bytes; each
answer an HMAC over the nonce and its own bytes. So neither side takes orders or facts from a
stranger, nothing can be changed on the way, and no call can be played again. What travels can
still be read: it holds no secrets.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path

from podwright.wire import InvalidRequest, Unauthenticated

AUTH_KEY = "podwright-agent-auth"
PROOF_KEY = "podwright-agent-proof"
#: Seconds that the clocks of server and agent may differ.
WINDOW = 120.0
_LEAST = 16


def read_key(path: Path) -> bytes:
    """The key in a file. Raises wire.InvalidRequest when others may read it, or it is short."""
    try:
        mode = path.stat().st_mode
        key = path.read_bytes().strip()
    except OSError as error:
        raise InvalidRequest(f"cannot read the key {path}: {error.strerror}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise InvalidRequest(
            f"the key {path} can be read by others", would_work=f"chmod 600 {path}"
        )
    if len(key) < _LEAST:
        raise InvalidRequest(
            f"the key {path} has {len(key)} bytes, fewer than {_LEAST}",
            would_work="make one with: openssl rand -hex 32",
        )
    return key


class Secret:
    """One side's use of the key. clock: seconds since 1970."""

    def __init__(self, key: bytes, *, clock: Callable[[], float] = time.time) -> None:
        self._key = key
        self._clock = clock
        self._seen: dict[str, float] = {}

    def sign(self, call: str, body: bytes) -> tuple[str, str]:
        """For a call: what goes into its metadata, and the nonce that its answer must prove."""
        nonce = secrets.token_hex(16)
        when = f"{self._clock():.3f}"
        return f"{when} {nonce} {self._mac('call', call, when, nonce, body)}", nonce

    def check(self, call: str, body: bytes, said: str) -> str:
        """The nonce of a call that was signed with our key. Raises wire.Unauthenticated."""
        parts = said.split()
        if len(parts) != 3:
            raise _stranger("it is not signed", call)
        when, nonce, mac = parts
        if not hmac.compare_digest(mac, self._mac("call", call, when, nonce, body)):
            raise _stranger("it is signed with another key", call)
        now = self._clock()
        if abs(now - float(when)) > WINDOW:
            raise _stranger(f"its clock is {now - float(when):.0f} s apart from ours", call)
        if nonce in self._seen:
            raise _stranger("it was played again", call)
        self._seen = {n: t for n, t in self._seen.items() if now - t < 2 * WINDOW}
        self._seen[nonce] = now
        return nonce

    def prove(self, nonce: str, body: bytes) -> str:
        """For an answer: what goes into its trailing metadata."""
        return self._mac("answer", nonce, "", "", body)

    def believe(self, nonce: str, body: bytes, proof: str) -> None:
        """Raises wire.Unauthenticated for an answer of somebody without our key."""
        if not hmac.compare_digest(proof, self.prove(nonce, body)):
            raise Unauthenticated(
                "what answers there does not have the server's agent key",
                would_work="start server and agent with the same --agent-key file",
            )

    def _mac(self, kind: str, *parts: str | bytes) -> str:
        digest = hmac.new(self._key, f"podwright-agent {kind}".encode(), hashlib.sha256)
        for part in parts:
            raw = part.encode() if isinstance(part, str) else part
            digest.update(len(raw).to_bytes(8, "big") + raw)
        return digest.hexdigest()


def _stranger(problem: str, call: str) -> Unauthenticated:
    return Unauthenticated(
        f"the agent does not know this caller: {problem}",
        asked=call,
        would_work="start server and agent with the same --agent-key file, and set their clocks",
    )
