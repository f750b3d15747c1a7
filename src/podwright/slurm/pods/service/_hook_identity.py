"""Who hooks and steps of other hosts are: root or Slurm's user, by MUNGE; or whoever holds a key
that only they can read, on sites without MUNGE (auth/slurm). Either way a request is proven as a
whole, and counts once."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import stat
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, Protocol

from podwright.errors import Unavailable
from podwright.hosts import MungeError, Vouches
from podwright.http import Reply

#: Seconds that the clocks of two hosts may differ; MUNGE's own.
CLOCKS_S: Final = 300.0
#: The header of an answer's signature.
WORD: Final = b"authentication-info"
_LEAST: Final = 16
_TIDY_S: Final = 30.0


class HookIdentity(Protocol):
    """What proves a request."""

    async def problem(self, shown: str, path: str, body: bytes) -> str:
        """Why a request is not to be believed; empty: it is. shown: its Authorization.

        Raises MungeError without MUNGE.
        """
        ...

    async def signed(self, reply: Reply, shown: str) -> Reply:
        """The answer with our word over its status, the request's credential and what it says, so
        that nobody else can let a job begin. shown: the request's Authorization."""
        ...

    async def shown(self, path: str) -> str:
        """The Authorization of a request of ours without a body. Raises MungeError."""
        ...

    async def believes(self, reply: Reply, shown: str) -> bool:
        """Did one of us sign this answer to the request that showed this? Raises MungeError."""
        ...


class Proofs:
    """By MUNGE. uids: root and Slurm's user. The credential's payload is the body."""

    def __init__(self, munge: Vouches, uids: Collection[int]) -> None:
        self._munge, self._uids = munge, uids

    async def signed(self, reply: Reply, shown: str) -> Reply:
        """By a credential of ours. Without MUNGE: as it is, and it counts for nothing."""
        try:
            ours = await asyncio.to_thread(self._munge.encode, _said(reply, shown))
        except MungeError:
            return reply
        word = (WORD, f"MUNGE {ours}".encode())
        return reply._replace(headers=(*reply.headers, word))

    async def shown(self, path: str) -> str:
        """See HookIdentity."""
        return f"MUNGE {await asyncio.to_thread(self._munge.encode, path.encode())}"

    async def believes(self, reply: Reply, shown: str) -> bool:
        """See HookIdentity."""
        proven = await asyncio.to_thread(self._munge.decode, _word(reply))
        return proven.uid in self._uids and proven.payload == _said(reply, shown)

    async def problem(self, shown: str, path: str, body: bytes) -> str:
        """See HookIdentity."""
        scheme, _, credential = shown.partition(" ")
        if scheme.lower() != "munge":
            return "over TCP a request needs a MUNGE credential"
        try:
            proven = await asyncio.to_thread(self._munge.decode, credential.strip())
        except MungeError as error:
            if error.absent:
                raise
            return f"MUNGE credential: {error}"
        if proven.payload != body:
            return "the MUNGE credential is that of another request"
        if proven.uid not in self._uids:
            return f"user {proven.uid} is not Slurm's"
        return ""


class KeyProofs:
    """By a key: `Authorization: Podwright TIME NONCE MAC`, in seconds since 1970 and hexadecimal.
    MAC is the HMAC-SHA256 of time, nonce, path and body, a line each. An answer's is that of its
    status, the request's three words, and what it says. clock: such seconds.
    """

    def __init__(self, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self._key, self._clock = key, clock
        self._seen: dict[str, float] = {}
        self._tidy = 0.0  # when what is over is forgotten next

    async def problem(self, shown: str, path: str, body: bytes) -> str:
        """See HookIdentity."""
        words = shown.split()
        if len(words) != 4 or words[0].lower() != "podwright" or not words[1].isdecimal():
            return "over TCP a request needs a signature by the key"
        _, at, nonce, mac = words
        if not hmac.compare_digest(mac.encode(), sign(self._key, at, nonce, path, body).encode()):
            return "the signature is that of another key or request"
        now = self._clock()
        if abs(now - int(at)) > CLOCKS_S:
            return f"the signature is of another time: clocks differ by {now - int(at):.0f} s"
        if now >= self._tidy:
            self._seen = {one: until for one, until in self._seen.items() if until > now}
            self._tidy = now + _TIDY_S
        if self._seen.get(nonce, now) > now:
            return "the signature was shown before"
        self._seen[nonce] = int(at) + CLOCKS_S + 1
        return ""

    async def signed(self, reply: Reply, shown: str) -> Reply:
        """By the key."""
        mac = _mac(self._key, _said(reply, shown))
        word = (WORD, f"Podwright {mac}".encode())
        return reply._replace(headers=(*reply.headers, word))

    async def shown(self, path: str) -> str:
        """See HookIdentity."""
        at, nonce = f"{self._clock():.0f}", secrets.token_hex(16)
        return f"Podwright {at} {nonce} {sign(self._key, at, nonce, path, b'')}"

    async def believes(self, reply: Reply, shown: str) -> bool:
        """See HookIdentity."""
        mac = _mac(self._key, _said(reply, shown))
        return hmac.compare_digest(_word(reply).encode(), mac.encode())


def _said(reply: Reply, shown: str) -> bytes:
    """What is signed of an answer: its status, the request's credential, and what it says."""
    assert isinstance(reply.body, bytes)
    return f"{reply.status}\n{shown.partition(' ')[2].strip()}\n".encode() + reply.body


def _word(reply: Reply) -> str:
    """The signature that came with an answer; empty: none."""
    found = next((text for name, text in reply.headers if name == WORD), b"")
    return found.decode("latin-1").partition(" ")[2].strip()


def _mac(key: bytes, said: bytes) -> str:
    return hmac.new(key, said, hashlib.sha256).hexdigest()


def sign(key: bytes, at: str, nonce: str, path: str, body: bytes) -> str:
    """The MAC of a request, in hexadecimal."""
    said = f"{at}\n{nonce}\n{path}\n".encode() + body
    return _mac(key, said)


def read_key(path: Path) -> bytes:
    """The key that a file's first line is. Raises Unavailable where others can read it, too."""
    action = f"read the key {path}"
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise Unavailable(
                f"{path} can be read by others", asked=action, would_work=f"chmod 600 {path}"
            )
        key = path.read_bytes().partition(b"\n")[0].strip()
    except OSError as error:
        raise Unavailable(
            f"{path}: {error.strerror}",
            asked=action,
            would_work="podwright slurm configure --write makes one; copy it to every host",
        ) from None
    if len(key) < _LEAST:
        raise Unavailable(
            f"{path} is too short for a key",
            asked=action,
            would_work="remove it, and podwright slurm configure --write makes one",
        )
    return key
