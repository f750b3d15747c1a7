"""Proves that a request from another host comes from root or from Slurm's user.

MUNGE says who made a request. Sites without MUNGE (auth/slurm) use a key that only root and Slurm's
user can read. Either proof covers the whole request, and either is accepted once only.
"""

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

#: Seconds by which the clocks of two hosts may differ. MUNGE has the same limit.
CLOCK_SKEW_LIMIT_S: Final = 300.0
#: The header that carries a reply's signature.
SIGNATURE_HEADER: Final = b"authentication-info"
_MIN_KEY_BYTES: Final = 16
_NONCE_TIDY_INTERVAL_S: Final = 30.0


class HookIdentity(Protocol):
    """Proves requests and replies between hosts, and checks such proofs."""

    async def problem(self, authorization: str, path: str, body: bytes) -> str:
        """Return why a request cannot be trusted, or "" if it can.

        authorization: the request's Authorization header. Raises MungeError where MUNGE does not
        answer.
        """
        ...

    async def signed(self, reply: Reply, authorization: str) -> Reply:
        """Return the reply with a signature over its status, the request's credential and its body.

        The signature keeps anybody else from letting a job begin. authorization: the request's
        Authorization header.
        """
        ...

    async def authorization(self, path: str) -> str:
        """Return the Authorization header for a request of ours that has no body. Raises
        MungeError.
        """
        ...

    async def believes(self, reply: Reply, authorization: str) -> bool:
        """Return whether one of our services signed this reply to the request with this
        Authorization header. Raises MungeError.
        """
        ...


class MungeProofs:
    """Proofs by MUNGE credentials. The payload of a request's credential is the request's body.

    uids: root and Slurm's user, whose credentials are accepted.
    """

    def __init__(self, munge: Vouches, uids: Collection[int]) -> None:
        self._munge, self._uids = munge, uids

    async def signed(self, reply: Reply, authorization: str) -> Reply:
        """Return the reply with a credential of ours. Without MUNGE the reply stays unsigned, and
        its receiver does not trust it.
        """
        try:
            credential = await asyncio.to_thread(
                self._munge.encode, _signed_content(reply, authorization)
            )
        except MungeError:
            return reply
        header = (SIGNATURE_HEADER, f"MUNGE {credential}".encode())
        return reply._replace(headers=(*reply.headers, header))

    async def authorization(self, path: str) -> str:
        """See HookIdentity."""
        return f"MUNGE {await asyncio.to_thread(self._munge.encode, path.encode())}"

    async def believes(self, reply: Reply, authorization: str) -> bool:
        """See HookIdentity."""
        credential = await asyncio.to_thread(self._munge.decode, _reply_signature(reply))
        return credential.uid in self._uids and credential.payload == _signed_content(
            reply, authorization
        )

    async def problem(self, authorization: str, path: str, body: bytes) -> str:
        """See HookIdentity."""
        scheme, _, credential = authorization.partition(" ")
        if scheme.lower() != "munge":
            return "over TCP a request needs a MUNGE credential"
        try:
            decoded_credential = await asyncio.to_thread(self._munge.decode, credential.strip())
        except MungeError as error:
            if error.absent:
                raise
            return f"MUNGE credential: {error}"
        if decoded_credential.payload != body:
            return "the MUNGE credential is that of another request"
        if decoded_credential.uid not in self._uids:
            return f"user {decoded_credential.uid} is not Slurm's"
        return ""


class KeyProofs:
    """Proofs by a shared key, in the header `Authorization: Podwright TIME NONCE MAC`.

    TIME is in seconds since 1970; NONCE and MAC are hexadecimal. A request's MAC is the HMAC-SHA256
    of time, nonce, path and body, one on each line. A reply's MAC covers the reply's status, the
    request's three words and the reply's body. clock: returns seconds since 1970.

    A nonce is kept in memory until its time is more than CLOCK_SKEW_LIMIT_S ago. A request that is
    shown to the same process again is refused before that by its nonce, and after that by its time.
    """

    def __init__(self, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self._key, self._clock = key, clock
        self._seen: dict[str, float] = {}
        self._next_tidy_time = 0.0  # when old nonces are forgotten next

    async def problem(self, authorization: str, path: str, body: bytes) -> str:
        """See HookIdentity."""
        header_parts = authorization.split()
        if (
            len(header_parts) != 4
            or header_parts[0].lower() != "podwright"
            or not header_parts[1].isdecimal()
        ):
            return "over TCP a request needs a signature by the key"
        _, timestamp, nonce, mac = header_parts
        if not hmac.compare_digest(
            mac.encode(), sign(self._key, timestamp, nonce, path, body).encode()
        ):
            return "the signature is that of another key or request"
        now = self._clock()
        if abs(now - int(timestamp)) > CLOCK_SKEW_LIMIT_S:
            return (
                f"the signature is of another time: clocks differ by {now - int(timestamp):.0f} s"
            )
        if now >= self._next_tidy_time:
            self._seen = {
                seen_nonce: expiry_time
                for seen_nonce, expiry_time in self._seen.items()
                if expiry_time > now
            }
            self._next_tidy_time = now + _NONCE_TIDY_INTERVAL_S
        if self._seen.get(nonce, now) > now:
            return "the signature was shown before"
        self._seen[nonce] = int(timestamp) + CLOCK_SKEW_LIMIT_S + 1
        return ""

    async def signed(self, reply: Reply, authorization: str) -> Reply:
        """Return the reply with its MAC."""
        mac = _content_mac(self._key, _signed_content(reply, authorization))
        header = (SIGNATURE_HEADER, f"Podwright {mac}".encode())
        return reply._replace(headers=(*reply.headers, header))

    async def authorization(self, path: str) -> str:
        """See HookIdentity."""
        timestamp, nonce = f"{self._clock():.0f}", secrets.token_hex(16)
        return f"Podwright {timestamp} {nonce} {sign(self._key, timestamp, nonce, path, b'')}"

    async def believes(self, reply: Reply, authorization: str) -> bool:
        """See HookIdentity."""
        mac = _content_mac(self._key, _signed_content(reply, authorization))
        return hmac.compare_digest(_reply_signature(reply).encode(), mac.encode())


def _signed_content(reply: Reply, authorization: str) -> bytes:
    """Return the bytes that a reply's signature covers: its status, the request's credential and
    its body.
    """
    assert isinstance(reply.body, bytes)
    return f"{reply.status}\n{authorization.partition(' ')[2].strip()}\n".encode() + reply.body


def _reply_signature(reply: Reply) -> str:
    """Return the signature that came with a reply, or "" if it has none."""
    header = next(
        (header_value for name, header_value in reply.headers if name == SIGNATURE_HEADER),
        b"",
    )
    return header.decode("latin-1").partition(" ")[2].strip()


def _content_mac(key: bytes, content: bytes) -> str:
    return hmac.new(key, content, hashlib.sha256).hexdigest()


def sign(key: bytes, timestamp: str, nonce: str, path: str, body: bytes) -> str:
    """Return the MAC of a request, in hexadecimal."""
    content = f"{timestamp}\n{nonce}\n{path}\n".encode() + body
    return _content_mac(key, content)


def read_key(path: Path) -> bytes:
    """Return the key, which is the file's first line.

    Raises Unavailable where the file cannot be read, where others can read it too, or where the key
    is too short.
    """
    action = f"read the key {path}"
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise Unavailable(
                f"{path} can be read by others", operation=action, would_work=f"chmod 600 {path}"
            )
        key = path.read_bytes().partition(b"\n")[0].strip()
    except OSError as error:
        raise Unavailable(
            f"{path}: {error.strerror}",
            operation=action,
            would_work="podwright slurm configure --write makes one; copy it to every host",
        ) from None
    if len(key) < _MIN_KEY_BYTES:
        raise Unavailable(
            f"{path} is too short for a key",
            operation=action,
            would_work="remove it, and podwright slurm configure --write makes one",
        )
    return key
