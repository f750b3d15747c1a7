"""Who calls: the kernel's word on a Unix socket; on TCP a token, an access key, a MUNGE
credential or a certificate, in this order; or nobody.

gRPC cannot ask the kernel for its peer, so the Unix socket hands out tokens that are bound to
the caller's uid. They are signed with a key that lives and dies with the server process.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import secrets
import struct
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from podwright.controller import Caller, Role
from podwright.errors import Unauthenticated, Unavailable
from podwright.wire import Token

if TYPE_CHECKING:
    from podwright.hosts import Vouches

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
    secure: refuse callers on TCP who do not say who they are. munge: believes credentials; None:
    none is believed.
    """

    #: Asked for the caller behind a user's name and access key; set by the server.
    authenticate: Callable[[str, str], Awaitable[Caller]] | None = None
    #: Asked for the caller behind a certificate of a name and a URI; set by the server.
    authenticate_certificate: Callable[[str, str], Awaitable[Caller]] | None = None

    def __init__(
        self,
        *,
        server_uid: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        name_of: Callable[[int], str | None] | None = None,
        secure: bool = False,
        munge: Vouches | None = None,
    ) -> None:
        self.secure = secure
        self._munge = munge
        self._few = asyncio.Semaphore(4)  # munged may hang, and must not take all threads along
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

    async def of_metadata(
        self,
        metadata: Iterable[tuple[str, str | bytes]] | None,
        proof: bytes = b"",
        certificate: tuple[str, str] = ("", ""),
    ) -> Caller:
        """The caller of a gRPC call: `authorization: Bearer …` or `MUNGE …`, a user's name and
        access key, the user that the connection's certificate names (name and URI), or anonymous.

        proof: what a MUNGE credential must carry, of the call that it was made for
        (wire.munge_payload). Raises wire.Unauthenticated.
        """
        user, access = "", ""
        for key, text in metadata or ():
            if key == "authorization":
                scheme, _, token = str(text).partition(" ")
                if scheme.lower() == "munge":
                    return await self._of_munge(token.strip(), proof)
                if scheme.lower() != "bearer":
                    raise _refused(f"{scheme[:20]!r} is no way to identify here")
                return await self.of_token(token.strip())
            if key == _USER:
                user = str(text)
            elif key == _ACCESS:
                access = str(text)
        if (user or access) and self.authenticate is not None:
            return await self.authenticate(user[:100], access[:200])
        if certificate[0] and self.authenticate_certificate is not None:
            return await self.authenticate_certificate(*certificate)
        if self.secure:
            munge = "; or --munge, where munged runs" if self._munge else ""
            raise Unauthenticated(
                "this server wants to know who calls",
                would_work="set api-user-id and api-access-key in a file for --config, or show a "
                "certificate of your own with --tls-certs; an administrator makes them with "
                f"vipu-admin create user, create certificate{munge}",
                munge=self._munge is not None,
            )
        return ANONYMOUS

    async def _of_munge(self, credential: str, payload: bytes) -> Caller:
        from podwright.hosts import MungeError

        if self._munge is None:
            raise Unauthenticated(
                "this server believes no MUNGE credential", would_work="vipu-server --munge"
            )
        try:
            async with self._few:
                proven = await asyncio.to_thread(self._munge.decode, credential)
        except MungeError as error:
            if error.absent:
                raise Unavailable(f"MUNGE does not answer the server: {error}") from None
            raise Unauthenticated(
                f"MUNGE does not believe the credential: {error}",
                would_work="one key and one clock on both hosts, and a credential for each call",
            ) from None
        if proven.payload != payload:
            raise Unauthenticated("the MUNGE credential was made for another call")
        return await self.of_uid(proven.uid, "munge")

    def _sign(self, claim: bytes) -> bytes:
        return hmac.digest(self._key, claim, hashlib.sha256().name)


def find_munge(socket: str) -> Vouches:
    """MUNGE on this machine, which answers. socket: of its daemon; empty: the usual place.

    Raises wire.Unavailable.
    """
    from podwright.hosts import Munge, MungeError

    try:
        munge = Munge(socket)
        munge.encode(b"")
    except MungeError as error:
        raise Unavailable(
            f"MUNGE does not answer here: {error}",
            asked="--munge",
            would_work="start munged, say where it listens with --munge-socket, or leave it out",
        ) from None
    return munge


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
