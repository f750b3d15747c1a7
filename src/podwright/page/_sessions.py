"""Who is logged in.

Two random texts prove a session: a cookie, which scripts cannot read, and a secret, which the page
keeps in its origin's localStorage and sends as a header.

A browser sends cookies to every port of a host, so on a shared machine the server of another
account receives them. localStorage belongs to one port alone, so that server never sees the secret.
A script that reads the secret, on the other hand, cannot read the cookie. Only this process knows
the sessions. A session ends when it was not used for an hour, after twelve hours, and with the
server.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

SESSION_IDLE_S: Final = 3600.0  #: seconds
SESSION_MAX_AGE_S: Final = 12 * 3600.0
MAX_SESSIONS: Final = 1000  #: sessions in all; the one that was silent longest is closed
EACH: Final = 20  #: sessions of one user

_C = TypeVar("_C")


class SessionProof(NamedTuple):
    """The two texts by which a browser proves its session."""

    cookie: str
    secret: str

    @property
    def digest(self) -> bytes:
        """A name for the proof, from which the proof cannot be derived."""
        return hashlib.sha256(f"{self.cookie} {self.secret}".encode()).digest()


class Sessions(Generic[_C]):
    """Sessions of callers. clock: seconds, never backwards."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: By the digest of the proof: caller, name, beginning, last use. The last used session is
        #: last.
        self._open: OrderedDict[bytes, tuple[_C, str, float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, caller: _C, user_name: str) -> SessionProof:
        """Open a session. Return its proof."""
        now = self._clock()
        own_digests = [
            digest for digest, (_, other_name, *_) in self._open.items() if other_name == user_name
        ]
        for session_digest in own_digests[: max(0, len(own_digests) + 1 - EACH)]:
            del self._open[session_digest]
        while len(self._open) >= MAX_SESSIONS:
            self._open.popitem(last=False)
        proof = SessionProof(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        self._open[proof.digest] = (caller, user_name, now, now)
        return proof

    def caller(self, proof: SessionProof) -> _C | None:
        """Return the caller of a session; None if there is no such session or it is over."""
        digest, now = proof.digest, self._clock()
        session = self._open.get(digest)
        if session is None:
            return None
        caller, name, opened_at, last_used_at = session
        if now >= last_used_at + SESSION_IDLE_S or now >= opened_at + SESSION_MAX_AGE_S:
            del self._open[digest]
            return None
        self._open[digest] = (caller, name, opened_at, now)
        self._open.move_to_end(digest)
        return caller

    def close(self, proof: SessionProof) -> None:
        """End a session."""
        self._open.pop(proof.digest, None)
