"""Who calls.

On a Unix socket the kernel says it. On TCP it is a token, an access key, a MUNGE credential or a
certificate, in this order; otherwise the caller is anonymous.

gRPC cannot ask the kernel for its peer, so the Unix socket issues tokens that are bound to the
caller's uid. They are signed with a key that lives and dies with the server process. Each is for
one audience: gRPC calls, or one log-in on the page. The bytes of a token have exactly one spelling.
A token in another spelling is refused, so that a used token cannot come back in another spelling.
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
from typing import TYPE_CHECKING, NamedTuple

from podwright.controller import Caller, Role
from podwright.errors import InvalidRequest, Unauthenticated, Unavailable
from podwright.wire import Token

if TYPE_CHECKING:
    from podwright.hosts import Vouches

#: Seconds for which a token is valid: long enough for one command to begin its calls.
TOKEN_TTL = 60.0
MAX_USED_LINKS = 256  #: the most one-time links of one user that are used within `TOKEN_TTL`
_CLAIM_FORMAT = struct.Struct("!8sqd8s")  # audience, uid, end by the server's clock, own number
#: By the audience of a request: its code in the claim.
_AUDIENCE_CODES = {"": b"calls", "page": b"page"}
_MAX_CACHED_CALLERS = 4096
_USER_METADATA, _ACCESS_METADATA = (
    "podwright-user-id",
    "podwright-access-key",
)  # wire.messages imports protobuf

ANONYMOUS_CALLER = Caller(name="anonymous", uid=None, role=Role.READER, origin="tcp")


class _TokenClaim(NamedTuple):
    """The content of a token. end: of its validity, by the server's clock. number: its own."""

    uid: int
    end: float
    number: bytes


class _TokenError(Exception):
    """A token is not valid; the message says why."""


class Identity:
    """Turns uids and tokens into callers.

    server_uid: the uid of the server; that one and root are administrators. clock: seconds, never
    backwards. name_of: returns the name of a uid, or None; it may block. secure: refuse callers on
    TCP without credentials. munge: checks MUNGE credentials; None: none is accepted.
    """

    #: Returns the caller behind a user's name and access key. The server sets it.
    authenticate: Callable[[str, str], Awaitable[Caller]] | None = None
    #: Returns the caller behind a certificate's name and URI. The server sets it.
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
        self._few = asyncio.Semaphore(4)  # munged may hang, and must not occupy all threads
        self._administrators = {0, os.geteuid() if server_uid is None else server_uid}
        self._clock = clock
        self._name_of = name_of or _account_name
        self._key = secrets.token_bytes(32)
        self._callers: dict[tuple[int, str], Caller] = {}
        #: By uid: the number of each used link -> the end of its validity.
        self._used: dict[int, dict[bytes, float]] = {}

    async def caller_of_uid(self, uid: int, origin: str) -> Caller:
        """Return the caller behind a uid.

        Names are looked up once, since a directory service may be slow.
        """
        cached_caller = self._callers.get((uid, origin))
        if cached_caller is not None:
            return cached_caller
        account_name = await asyncio.to_thread(self._name_of, uid)
        role = Role.ADMINISTRATOR if uid in self._administrators else Role.USER
        if not account_name or account_name == ANONYMOUS_CALLER.name or account_name.isdecimal():
            account_name = str(uid)  # a name must not be `anonymous` or another's number
        caller = Caller(name=account_name, uid=uid, role=role, origin=origin)
        if len(self._callers) >= _MAX_CACHED_CALLERS:
            self._callers.clear()
        self._callers[uid, origin] = caller
        return caller

    def issue(self, caller: Caller, audience: str = "") -> Token:
        """Return a token for gRPC metadata, or for one log-in on the page (audience `page`).

        Raises wire.Unauthenticated for a caller without a uid, and wire.InvalidRequest for an
        unknown audience.
        """
        if caller.uid is None:
            raise Unauthenticated("a token is bound to a user id, and you have none here")
        if audience not in _AUDIENCE_CODES:
            raise InvalidRequest(
                f"no token is for the audience {audience[:40]!r}",
                would_work="page, or none for gRPC calls",
            )
        expiry, token_id = self._clock() + TOKEN_TTL, secrets.token_bytes(8)
        claim_bytes = _CLAIM_FORMAT.pack(_AUDIENCE_CODES[audience], caller.uid, expiry, token_id)
        return Token(
            token=_encode_token(claim_bytes + self._sign_claim(claim_bytes)), ttl=TOKEN_TTL
        )

    async def caller_of_token(self, token: str) -> Caller:
        """Return the caller to whom a token for gRPC calls was issued.

        Raises wire.Unauthenticated.
        """
        try:
            claim = self._check_token(token, "")
        except _TokenError as error:
            raise Unauthenticated(
                f"the token {error}",
                would_work="get one with IssueToken on the Unix socket, or call without any",
            ) from None
        return await self.caller_of_uid(claim.uid, "tcp")

    async def caller_of_link(self, token: str) -> Caller:
        """Return the caller to whom a link to the page was issued, and use up the link.

        A used link is remembered until it expires. Each user has room for `MAX_USED_LINKS` of them,
        so that no user can push a used link out of the memory or use up the room of others.

        Raises wire.Unauthenticated, and wire.Unavailable for a user who has used too many.
        """
        try:
            claim = self._check_token(token, "page")
            used_links = self._unexpired_links(claim.uid)
            if claim.number in used_links:
                raise _TokenError("has been used")
        except _TokenError as error:
            raise Unauthenticated(
                f"the link {error}", would_work="podwright web makes another"
            ) from None
        if len(used_links) >= MAX_USED_LINKS:
            raise Unavailable(
                f"{MAX_USED_LINKS} links of this user were used within {TOKEN_TTL:.0f} s",
                would_work="podwright web, a minute from now",
            )
        used_links[claim.number] = claim.end
        return await self.caller_of_uid(claim.uid, "tcp")

    def _unexpired_links(self, uid: int) -> dict[bytes, float]:
        """Return the links that this user has used, after dropping those that have expired."""
        now = self._clock()
        for user_uid, link_expiries in list(self._used.items()):
            unexpired_links = {
                link_id: expiry for link_id, expiry in link_expiries.items() if expiry > now
            }
            if unexpired_links:
                self._used[user_uid] = unexpired_links
            else:
                del self._used[user_uid]
        return self._used.setdefault(uid, {})

    def _check_token(self, token: str, audience: str) -> _TokenClaim:
        """Return the claim of a token of this server for this audience. Raises _TokenError."""
        try:
            token_bytes = base64.b64decode(token, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            token_bytes = b""
        claim_bytes, signature = (
            token_bytes[: _CLAIM_FORMAT.size],
            token_bytes[_CLAIM_FORMAT.size :],
        )
        if (
            len(claim_bytes) < _CLAIM_FORMAT.size
            or _encode_token(token_bytes) != token
            or not hmac.compare_digest(signature, self._sign_claim(claim_bytes))
        ):
            raise _TokenError("is not one of this server's")
        audience_code, uid, expiry, token_id = _CLAIM_FORMAT.unpack(claim_bytes)
        if audience_code.rstrip(b"\0") != _AUDIENCE_CODES[audience]:
            raise _TokenError("is not one of this server's for this purpose")
        if self._clock() >= expiry:
            raise _TokenError("has expired")
        return _TokenClaim(uid, expiry, token_id)

    async def caller_of_metadata(
        self,
        metadata: Iterable[tuple[str, str | bytes]] | None,
        munge_payload: bytes = b"",
        certificate_identity: tuple[str, str] = ("", ""),
    ) -> Caller:
        """Return the caller of a gRPC call.

        The caller is identified by `authorization: Bearer …` or `MUNGE …`, by a user's name and
        access key, or by the connection's certificate (name and URI); otherwise it is anonymous.
        munge_payload: the payload that a MUNGE credential for this call must carry
        (wire.munge_payload). Raises wire.Unauthenticated.
        """
        user_name, access_key = "", ""
        for metadata_key, metadata_value in metadata or ():
            if metadata_key == "authorization":
                auth_scheme, _, token = str(metadata_value).partition(" ")
                if auth_scheme.lower() == "munge":
                    return await self._caller_of_munge(token.strip(), munge_payload)
                if auth_scheme.lower() != "bearer":
                    raise Unauthenticated(
                        f"{auth_scheme[:20]!r} is not a way to identify to this server",
                        would_work="Bearer and a token, or call without any",
                    )
                return await self.caller_of_token(token.strip())
            if metadata_key == _USER_METADATA:
                user_name = str(metadata_value)
            elif metadata_key == _ACCESS_METADATA:
                access_key = str(metadata_value)
        if (user_name or access_key) and self.authenticate is not None:
            return await self.authenticate(user_name[:100], access_key[:200])
        if certificate_identity[0] and self.authenticate_certificate is not None:
            return await self.authenticate_certificate(*certificate_identity)
        if self.secure:
            munge_hint = "; or --munge, where munged runs" if self._munge else ""
            raise Unauthenticated(
                "this server wants to know who calls",
                would_work="set api-user-id and api-access-key in a file for --config, or show a "
                "certificate of your own with --tls-certs; an administrator makes them with "
                f"vipu-admin create user, create certificate{munge_hint}",
                munge=self._munge is not None,
            )
        return ANONYMOUS_CALLER

    async def _caller_of_munge(self, credential: str, payload: bytes) -> Caller:
        from podwright.hosts import MungeError

        if self._munge is None:
            raise Unauthenticated(
                "this server believes no MUNGE credential", would_work="vipu-server --munge"
            )
        try:
            async with self._few:
                decoded_credential = await asyncio.to_thread(self._munge.decode, credential)
        except MungeError as error:
            if error.absent:
                raise Unavailable(f"MUNGE does not answer the server: {error}") from None
            raise Unauthenticated(
                f"MUNGE does not believe the credential: {error}",
                would_work="use one key and one clock on both hosts, and one credential a call",
            ) from None
        if decoded_credential.payload != payload:
            raise Unauthenticated("the MUNGE credential was made for another call")
        return await self.caller_of_uid(decoded_credential.uid, "munge")

    def _sign_claim(self, claim_bytes: bytes) -> bytes:
        return hmac.digest(self._key, claim_bytes, hashlib.sha256().name)


def find_munge(munge_socket: str) -> Vouches:
    """Return MUNGE on this machine, after checking that it answers.

    munge_socket: of its daemon; empty: the usual place. Raises wire.Unavailable.
    """
    from podwright.hosts import Munge, MungeError

    try:
        munge = Munge(munge_socket)
        munge.encode(b"")
    except MungeError as error:
        raise Unavailable(
            f"MUNGE does not answer here: {error}",
            operation="--munge",
            would_work="start munged, say where it listens with --munge-socket, or leave it out",
        ) from None
    return munge


def _encode_token(token_bytes: bytes) -> str:
    """Return the one spelling of a token's bytes."""
    return base64.urlsafe_b64encode(token_bytes).decode()


def _account_name(uid: int) -> str | None:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
