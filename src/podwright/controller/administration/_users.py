"""Users with access keys, for callers whom no kernel vouches for.

Keys are kept as scrypt hashes and shown once. Checking one takes a while by design, so a key
that was right is remembered, as a digest under a random key of this process.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec

from podwright.controller.hardware._registry import check_name
from podwright.controller.state._caller import ANONYMOUS, Caller, Role
from podwright.controller.state._records import Record, decode
from podwright.errors import (
    AlreadyExists,
    Denied,
    InvalidRequest,
    NotFound,
    Unauthenticated,
    WrongState,
)
from podwright.store import Delete, Put
from podwright.wire import (
    AcquireRequest,
    CreateRequest,
    ExplainRequest,
    PartitionSpec,
    UserInfo,
    Value,
    WaitRequest,
    certificate_number,
    user_uri,
)

USER: Final = "user"
_OWN_USER_ORIGINS: Final = (
    "key",
    "certificate",
    "proxy",
)  #: origins of callers who showed that they are a user of ours
_NUMBER_PATTERN = re.compile(r"[0-9a-f]{8,40}")
_MOST_REVOKED: Final = 1000
_SCRYPT_COST = {"n": 1 << 14, "r": 8, "p": 1, "maxmem": 64 << 20, "dklen": 32}  # 16 MiB, some 50 ms


class UserRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A user. salt, digest: of the access key. allocations: those that may be used; none: all.

    uid: of the account that is this user; -1: none.
    """

    name: str
    role: str
    salt: bytes
    digest: bytes
    created_at: float
    allocations: tuple[str, ...] = ()
    uid: int = -1
    revoked: tuple[str, ...] = ()


class Users:
    """All users. common_names: those that make an administrator of whoever has a certificate of
    the site's authority with that common name, and no URI of ours."""

    def __init__(self, common_names: frozenset[str] = frozenset()) -> None:
        self.common_names = common_names
        self._users: dict[str, UserRecord] = {}
        self._by_uid: dict[int, UserRecord] = {}
        self._right_digests: dict[str, bytes] = {}
        self._secret = secrets.token_bytes(32)
        self._few = asyncio.Semaphore(2)  # a flood of wrong keys must not take all threads

    def load(self, records: Mapping[tuple[str, str], bytes]) -> None:
        """Load users from the store."""
        for (kind, _), record_bytes in records.items():
            if kind == USER:
                self.add(decode(UserRecord, record_bytes))

    def list(self) -> list[UserInfo]:
        """All users, by name."""
        return [_user_info(record) for _, record in sorted(self._users.items())]

    def draft(
        self, name: str, role: str, allocations: tuple[str, ...], now: float, uid: int = -1
    ) -> tuple[UserRecord, str]:
        """A new user and the access key. Raises InvalidRequest or AlreadyExists."""
        action = f"create user {name[:80]}"
        check_name("a user", name)
        if name == ANONYMOUS or name.isdecimal():
            raise InvalidRequest(f"{name} stands for somebody else", operation=action)
        if role not in (known_role.value for known_role in Role):
            raise InvalidRequest(
                f"there is no role {role[:40]!r}",
                operation=action,
                would_work=f"choose one of {', '.join(known_role.value for known_role in Role)}",
            )
        if name in self._users:
            raise AlreadyExists(
                f"there is a user {name} already",
                operation=action,
                would_work="choose another name; a user who lost the key is removed and made anew",
            )
        if uid != -1:
            self._check_uid(uid, action)
        keyless_user = UserRecord(
            name=name,
            role=role,
            salt=b"",
            digest=b"",
            created_at=now,
            allocations=allocations,
            uid=uid,
        )
        return with_new_key(keyless_user)

    def _check_uid(self, uid: int, action: str) -> None:
        if not 0 < uid < 2**31:
            raise InvalidRequest(
                "root is an administrator here" if uid == 0 else f"{uid} is not a user id",
                operation=action,
                would_work="give the number of an account other than root's",
            )
        if (user := self._by_uid.get(uid)) is not None:
            raise AlreadyExists(
                f"user id {uid} is user {user.name} here",
                operation=action,
                would_work=f"choose another one, or remove user {user.name} first",
            )

    def add(self, record: UserRecord) -> UserInfo:
        """Add a user whose record is durable."""
        old_record = self._users.get(record.name)
        if old_record is not None and old_record.digest != record.digest:
            self._right_digests.pop(record.name, None)
        self._users[record.name] = record
        if record.uid != -1:
            self._by_uid[record.uid] = record
        return _user_info(record)

    def named(self, name: str) -> UserRecord | None:
        """The user of a name, or None."""
        return self._users.get(name)

    def known(self, caller: Caller) -> Caller:
        """Who somebody is here for whom the kernel or MUNGE vouches, with the role given to him.

        Root and the account that runs the server are administrators whatever is written down.
        """
        if caller.uid is None or caller.role is Role.ADMINISTRATOR:
            return caller
        record = self._by_uid.get(caller.uid)
        if record is None or caller.origin in _OWN_USER_ORIGINS:
            return caller
        return Caller(record.name, caller.uid, Role(record.role), caller.origin)

    def granted(self, name: str, allocation: str, action: str) -> UserRecord:
        """A user with one allocation more. One who may use all is restricted by no grant.

        Raises NotFound.
        """
        self.check_known(name, action)
        record = self._users[name]
        if not record.allocations or allocation in record.allocations:
            return record
        return msgspec.structs.replace(record, allocations=(*record.allocations, allocation))

    def check_known(self, name: str, action: str) -> None:
        """Raises NotFound."""
        if name not in self._users:
            text = ", ".join(sorted(self._users)[:8]) or "none"
            raise NotFound(
                f"there is no user {name}", operation=action, would_work=f"there are: {text}"
            )

    def check_scheduler(self, name: str, action: str) -> None:
        """Raises NotFound, and InvalidRequest for a user of another role."""
        self.check_known(name, action)
        if (role := self._users[name].role) != Role.SCHEDULER.value:
            raise InvalidRequest(
                f"user {name} has the role {role}",
                operation=action,
                would_work="name a user made with --role scheduler",
            )

    def with_revoked(self, name: str, revoked_number: str) -> UserRecord:
        """A user of whom one certificate is worth nothing. Raises NotFound, InvalidRequest."""
        action = f"revoke certificate {revoked_number[:80]} of {name[:80]}"
        self.check_known(name, action)
        record = self._users[name]
        if not _NUMBER_PATTERN.fullmatch(revoked_number):
            raise InvalidRequest(
                f"{revoked_number[:80]!r} is not the number of a certificate",
                operation=action,
                would_work="look at its last word: "
                "openssl x509 -noout -ext subjectAltName -in cert.pem",
            )
        if revoked_number in record.revoked:
            return record
        if len(record.revoked) >= _MOST_REVOKED:
            raise WrongState(
                f"{_MOST_REVOKED} certificates of {name}'s are revoked already",
                operation=action,
                would_work="remove the user and make it anew, which revokes all",
            )
        return msgspec.structs.replace(record, revoked=(*record.revoked, revoked_number))

    def drop(self, name: str) -> None:
        """Forget a user."""
        record = self._users.pop(name, None)
        if record is not None:
            self._by_uid.pop(record.uid, None)
        self._right_digests.pop(name, None)

    def kept_to_grants(self, caller: Caller, request: Value) -> Value:
        """See `UserCalls.admitted`. The caller is as `known` has him."""
        record = self.of(caller)
        if record is None or not record.allocations or caller.role is Role.ADMINISTRATOR:
            return request
        if isinstance(request, CreateRequest | AcquireRequest):
            spec = _kept_to_allocations(request.spec, record)
            return msgspec.structs.replace(request, spec=spec)
        if isinstance(request, ExplainRequest) and not request.for_job:
            if request.spec is not None:
                return msgspec.structs.replace(
                    request, spec=_kept_to_allocations(request.spec, record)
                )
            if request.acquire is not None:
                acquire = self.kept_to_grants(caller, request.acquire)
                return msgspec.structs.replace(request, acquire=acquire)
        if isinstance(request, WaitRequest):
            inner_request = request.create or request.acquire
            if inner_request is not None:
                field_name = "create" if request.create else "acquire"
                limited_request = self.kept_to_grants(caller, inner_request)
                return msgspec.structs.replace(request, **{field_name: limited_request})
        return request

    def allocations_of(self, caller: Caller) -> tuple[str, ...]:
        """The allocations that a caller may use; empty: all."""
        record = self.of(caller)
        return record.allocations if record is not None else ()

    def of(self, caller: Caller) -> UserRecord | None:
        """The user that an administrator has created for this caller; None if there is none."""
        if caller.origin in _OWN_USER_ORIGINS:
            return self._users.get(caller.name)
        return self._by_uid.get(-1 if caller.uid is None else caller.uid)

    async def authenticate(self, name: str, key: str) -> Caller:
        """The caller behind a name and an access key. Raises Unauthenticated, which does not say
        which of both is wrong."""
        record = self._users.get(name)
        key_digest = hmac.digest(self._secret, key.encode(), "sha256")
        if record is None or not hmac.compare_digest(
            key_digest, self._right_digests.get(name, b"")
        ):
            async with self._few:
                salt = record.salt if record else b"\0" * 16
                scrypt_digest = await asyncio.to_thread(_key_digest, key[:200], salt)
            record = self._users.get(name)
            if record is None or not hmac.compare_digest(scrypt_digest, record.digest):
                raise Unauthenticated(
                    "no user of this server has this name and this access key",
                    would_work="ask an administrator: vipu-admin create user",
                )
            self._right_digests[name] = key_digest
        return _caller_of_user(record, "key")

    def caller_of_certificate(self, name: str, certificate_uri: str) -> Caller:
        """The caller behind a certificate. certificate_uri: which user exactly; without a time, any
        of that name. Raises Unauthenticated.
        """
        record = self._users.get(name)
        if record is None:
            raise Unauthenticated(
                f"the certificate is for user {name[:80]!r}, whom this server does not have",
                would_work="ask an administrator: vipu-admin create user, create certificate",
            )
        uri_number = certificate_number(certificate_uri)
        if uri_number in record.revoked:
            raise Unauthenticated(
                f"this certificate of user {name} was revoked",
                would_work="ask an administrator for another: vipu-admin create certificate",
            )
        if (
            not certificate_uri
            and record.role == Role.ADMINISTRATOR.value
            and name not in self.common_names
        ):
            raise Unauthenticated(
                f"a common name makes nobody an administrator, and {name} is one",
                would_work=f"vipu-admin create certificate {name}, which says so by a URI; or "
                f"vipu-server --tls-administrators {name}",
            )
        if certificate_uri.count(":") > 2 and certificate_uri != user_uri(
            record.name, record.created_at, uri_number
        ):
            raise Unauthenticated(
                f"the certificate is for an earlier user {name}",
                would_work="ask an administrator for another: vipu-admin create certificate",
            )
        return _caller_of_user(record, "certificate")

    def named_by_proxy(self, name: str) -> Caller:
        """The user whom the site's proxy says. Raises Unauthenticated for none of this server's."""
        record = self._users.get(name)
        if record is None:
            raise Unauthenticated(
                f"the site's proxy says {name[:80]!r}, whom this server does not have",
                would_work="ask an administrator: vipu-admin create user",
            )
        return _caller_of_user(record, "proxy")


def with_new_key(record: UserRecord) -> tuple[UserRecord, str]:
    """A user with an access key that was just drawn, and that key. It takes some 50 ms."""
    access_key, salt = secrets.token_urlsafe(24), secrets.token_bytes(16)
    return msgspec.structs.replace(
        record, salt=salt, digest=_key_digest(access_key, salt)
    ), access_key


def first_user(name: str, now: float) -> tuple[Put, str]:
    """An administrator for a new store, and the access key. Raises InvalidRequest."""
    record, key = Users().draft(name, Role.ADMINISTRATOR.value, (), now)
    return put_user(record), key


def _kept_to_allocations(spec: PartitionSpec, record: UserRecord) -> PartitionSpec:
    allocations_text = ", ".join(record.allocations)
    if spec.allocation in record.allocations:
        return spec
    if spec.allocation:
        raise Denied(
            f"allocation {spec.allocation} is not granted to {record.name}",
            operation=f"create partition {spec.name[:80]}",
            would_work=f"use {allocations_text}",
            allocation=spec.allocation,
        )
    if len(record.allocations) > 1:
        raise InvalidRequest(
            f"several allocations are granted to {record.name}",
            operation=f"create partition {spec.name[:80]}",
            would_work=f"say which one with --allocation: {allocations_text}",
        )
    return msgspec.structs.replace(spec, allocation=record.allocations[0])


def put_user(record: UserRecord) -> Put:
    """The change that writes a user."""
    return Put(USER, record.name, msgspec.json.encode(record))


def drop_user(name: str) -> Delete:
    """The change that forgets a user."""
    return Delete(USER, name)


def _key_digest(access_key: str, salt: bytes) -> bytes:
    return hashlib.scrypt(access_key.encode(), salt=salt, **_SCRYPT_COST)


def _caller_of_user(record: UserRecord, origin: str) -> Caller:
    user_id = None if record.uid == -1 else record.uid
    return Caller(name=record.name, uid=user_id, role=Role(record.role), origin=origin)


def _user_info(record: UserRecord) -> UserInfo:
    return UserInfo(
        name=record.name,
        role=record.role,
        allocations=list(record.allocations),
        created_at=record.created_at,
        uid=record.uid,
        revoked=list(record.revoked),
    )
