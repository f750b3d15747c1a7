"""Who calls: the kernel's word on a Unix socket, our own short-lived token on TCP, or nobody.

gRPC cannot ask the kernel for its peer, so the Unix socket hands out tokens that are bound to
the caller's uid. They are signed with a key that lives and dies with the server process.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Iterable

from podwright.controller import Caller, Role
from podwright.wire import Token, Unauthenticated

#: Seconds that a token lives: long enough for one command to begin its calls.
TOKEN_TTL = 60.0
_CLAIM = struct.Struct("!qd")  # uid, end of life by our clock
_REMEMBERED = 4096
_USER, _ACCESS = "podwright-user-id", "podwright-access-key"  # wire.messages imports protobuf

ANONYMOUS = Caller(name="anonymous", uid=None, role=Role.READER, origin="tcp")


class Identity:
    """Turns uids and tokens into callers.

    server_uid: whose server this is; that one and root are administrators.
    clock: seconds, never backwards. name_of: the name of a uid, or None; may block.
    secure: refuse callers on TCP who do not say who they are.
    """

    #: Asked for the caller behind a user's name and access key; set by the server.
    authenticate: Callable[[str, str], Awaitable[Caller]] | None = None

    def __init__(
        self,
        *,
        server_uid: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        name_of: Callable[[int], str | None] | None = None,
        secure: bool = False,
    ) -> None:
        self.secure = secure
        self._administrators = {0, os.geteuid() if server_uid is None else server_uid}
        self._clock = clock
        self._name_of = name_of or _account_name
        self._key = secrets.token_bytes(32)
        self._callers: dict[tuple[int, str], Caller] = {}

    async def of_uid(self, uid: int, origin: str) -> Caller:
        """The caller behind a uid. Names are asked for once: a directory service may be slow."""
        known = self._callers.get((uid, origin))
        if known is not None:
            return known
        import asyncio

        name = await asyncio.to_thread(self._name_of, uid)
        role = Role.ADMINISTRATOR if uid in self._administrators else Role.USER
        if not name or name == ANONYMOUS.name or name.isdecimal():
            name = str(uid)  # nobody is called as nobody, or by another's number
        caller = Caller(name=name, uid=uid, role=role, origin=origin)
        if len(self._callers) >= _REMEMBERED:
            self._callers.clear()
        self._callers[uid, origin] = caller
        return caller

    def issue(self, caller: Caller) -> Token:
        """A token for gRPC metadata. Raises wire.Unauthenticated for a caller without a uid."""
        if caller.uid is None:
            raise Unauthenticated("a token is bound to a user id, and you have none here")
        claim = _CLAIM.pack(caller.uid, self._clock() + TOKEN_TTL)
        return Token(
            token=base64.urlsafe_b64encode(claim + self._sign(claim)).decode(), ttl=TOKEN_TTL
        )

    async def of_token(self, token: str) -> Caller:
        """The caller that a token was given to. Raises wire.Unauthenticated."""
        try:
            raw = base64.b64decode(token, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        claim, signature = raw[: _CLAIM.size], raw[_CLAIM.size :]
        if len(claim) < _CLAIM.size or not hmac.compare_digest(signature, self._sign(claim)):
            raise _refused("the token is not one of this server's")
        uid, end = _CLAIM.unpack(claim)
        if self._clock() >= end:
            raise _refused("the token has expired")
        return await self.of_uid(uid, "tcp")

    async def of_metadata(self, metadata: Iterable[tuple[str, str | bytes]] | None) -> Caller:
        """The caller of a gRPC call: `authorization: Bearer …`, a user's name and access key, or
        anonymous."""
        user, access = "", ""
        for key, text in metadata or ():
            if key == "authorization":
                scheme, _, token = str(text).partition(" ")
                if scheme.lower() != "bearer":
                    raise _refused(f"{scheme[:20]!r} is no way to identify here")
                return await self.of_token(token.strip())
            if key == _USER:
                user = str(text)
            elif key == _ACCESS:
                access = str(text)
        if (user or access) and self.authenticate is not None:
            return await self.authenticate(user[:100], access[:200])
        if self.secure:
            raise Unauthenticated(
                "this server wants to know who calls",
                would_work="set api-user-id and api-access-key in a file for --config; an "
                "administrator makes them with vipu-admin create user",
            )
        return ANONYMOUS

    def _sign(self, claim: bytes) -> bytes:
        return hmac.digest(self._key, claim, hashlib.sha256().name)


def peer_uid(connection: socket.socket) -> int:
    """The uid at the other end of a Unix socket, by the kernel's word (SO_PEERCRED, Linux)."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    _, uid, _ = struct.unpack("iII", credentials)
    return int(uid)


def _refused(problem: str) -> Unauthenticated:
    return Unauthenticated(
        problem, would_work="get one with IssueToken on the Unix socket, or call without any"
    )


def _account_name(uid: int) -> str | None:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
