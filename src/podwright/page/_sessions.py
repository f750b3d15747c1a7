"""Who is logged in: a random name in a cookie that scripts cannot read, known to this process
alone. A session ends when it was not used for an hour, after twelve hours, and with the server."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

IDLE: Final = 3600.0  #: seconds
LONGEST: Final = 12 * 3600.0
MOST: Final = 1000  #: sessions in all; who was silent longest goes
EACH: Final = 20  #: sessions of one user
LINKS: Final = 4096  #: one-time links that are remembered as used

_C = TypeVar("_C")


class Sessions(Generic[_C]):
    """Sessions of callers. clock: seconds, never backwards."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: By the digest of the cookie: who, whose name, begun, last used. The last used is last.
        self._open: OrderedDict[bytes, tuple[_C, str, float, float]] = OrderedDict()
        self._used: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, caller: _C, name: str) -> str:
        """A session. Returns what the cookie holds."""
        now = self._clock()
        own = [key for key, (_, other, *_) in self._open.items() if other == name]
        for key in own[: max(0, len(own) + 1 - EACH)]:
            del self._open[key]
        while len(self._open) >= MOST:
            self._open.popitem(last=False)
        cookie = secrets.token_urlsafe(32)
        self._open[_digest(cookie)] = (caller, name, now, now)
        return cookie

    def caller(self, cookie: str) -> _C | None:
        """Whose session it is; None: nobody's, or it is over."""
        key, now = _digest(cookie), self._clock()
        found = self._open.get(key)
        if found is None:
            return None
        caller, name, begun, used = found
        if now >= used + IDLE or now >= begun + LONGEST:
            del self._open[key]
            return None
        self._open[key] = (caller, name, begun, now)
        self._open.move_to_end(key)
        return caller

    def close(self, cookie: str) -> None:
        """It is over."""
        self._open.pop(_digest(cookie), None)

    def first_use(self, token: str) -> bool:
        """Whether a one-time token was not used before; from now on it was."""
        key = _digest(token)
        if key in self._used:
            return False
        self._used[key] = None
        if len(self._used) > LINKS:
            self._used.popitem(last=False)
        return True


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
