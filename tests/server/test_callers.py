"""Callers on TCP without an access key: certificates of the site's authority, and MUNGE."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import grpc
import grpc.aio
import pytest

from podwright.client import Client, Credentials, GrpcTransport
from podwright.controller import Caller, Controller, Role
from podwright.errors import InvalidRequest, PodwrightError, Unauthenticated, Unavailable
from podwright.fabric import preset
from podwright.hosts import FakeMunge
from podwright.server import Identity, ListenOptions, Server
from podwright.store import MemoryStore
from podwright.wire import (
    ListRequest,
    Named,
    RevokeRequest,
    UserRequest,
    messages,
    munge_payload,
    user_of,
    user_uri,
)
from tests.certificates import CLIENT, EXPIRED, SERVER, folder_of

ROOT = Caller("root", 0, Role.ADMINISTRATOR)
T = TypeVar("T")


class Place:
    """A secure server with TLS and MUNGE, and how to ask it."""

    def __init__(self) -> None:
        self.munge = FakeMunge(1001)
        self.controller = Controller(MemoryStore(), [preset("pod4")], {}, version="test")
        names = {0: "root", 1001: "alice", 1003: "ruthless"}
        identity = Identity(server_uid=500, name_of=names.get, secure=True, munge=self.munge)
        self.server = Server(self.controller, ListenOptions(None, certs=SERVER), identity=identity)

    async def user(self, name: str, role: str = "user", uid: int = -1) -> str:
        made = await self.controller.create_user(ROOT, UserRequest(name=name, role=role, uid=uid))
        reply: str = made.access_key
        return reply

    async def ask(self, folder: Path, what: Callable[[Client], T], **more: str) -> T:
        shown = Credentials(certs=str(folder), **more)

        def go() -> T:
            transport = GrpcTransport("127.0.0.1", self.server.port, credentials=shown)
            with Client(transport, timeout=120) as client:
                return what(client)

        return await asyncio.to_thread(go)

    async def who(self, folder: Path, **more: str) -> tuple[str, str]:
        info = await self.ask(folder, lambda client: client.get_server_info(), **more)
        return info.caller, info.role


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    made = Place()
    await made.server.start()
    yield made
    await made.server.stop(0)


async def test_a_certificate_stands_for_the_user_whom_it_names(place: Place) -> None:
    await place.user("alice")
    await place.user("ruth", "reader")
    assert await place.who(folder_of("alice")) == ("alice", "user")
    assert await place.who(folder_of("ruth")) == ("ruth", "reader")
    with pytest.raises(Unauthenticated, match="for user 'nobody', whom this server does not have"):
        await place.who(folder_of("nobody"))
    # That of all clients is nobody's; the next test shows that MUNGE would do.
    with pytest.raises(Unauthenticated, match="wants to know who calls"):
        await place.who(CLIENT, munge="no")


async def test_an_expired_certificate_opens_no_connection(place: Place) -> None:
    await place.user("alice")
    with pytest.raises(Unavailable):
        await place.who(EXPIRED)


async def test_a_user_who_is_removed_is_refused_on_a_connection_that_stands(place: Place) -> None:
    await place.user("alice")

    def go(client: Client) -> str:
        assert client.get_server_info().caller == "alice"
        asyncio.run_coroutine_threadsafe(
            place.controller.remove_user(ROOT, Named(name="alice")), loop
        ).result(120)
        with pytest.raises(Unauthenticated) as refused:
            client.list_partitions()
        return refused.value.message

    loop = asyncio.get_running_loop()
    assert "whom this server does not have" in await place.ask(folder_of("alice"), go)


async def test_a_key_goes_before_a_certificate(place: Place) -> None:
    await place.user("alice")
    key = await place.user("bob")
    assert await place.who(folder_of("alice"), user="bob", key=key) == ("bob", "user")


async def test_a_certificate_is_worth_nothing_for_the_next_of_that_name(place: Place) -> None:
    await place.user("alice")
    (first,) = (await place.controller.list_users(ROOT, ListRequest())).users
    uri = user_uri("alice", first.created_at)
    assert (await place.controller.authenticate_certificate("alice", uri)).name == "alice"
    await place.controller.remove_user(ROOT, Named(name="alice"))
    await place.user("alice")
    with pytest.raises(Unauthenticated, match="for an earlier user alice"):
        await place.controller.authenticate_certificate("alice", uri)


async def test_one_certificate_is_revoked_and_the_others_are_not(place: Place) -> None:
    await place.user("alice")
    (alice,) = (await place.controller.list_users(ROOT, ListRequest())).users
    lost, kept = (user_uri("alice", alice.created_at, number) for number in ("0" * 16, "1" * 16))
    for uri in (lost, kept):
        assert (await place.controller.authenticate_certificate("alice", uri)).name == "alice"
    for _ in range(2):
        request = RevokeRequest(name="alice", number="0" * 16)
        shown = await place.controller.revoke_certificate(ROOT, request)
        assert shown.revoked == ["0" * 16]
    with pytest.raises(Unauthenticated, match="was revoked"):
        await place.controller.authenticate_certificate("alice", lost)
    assert (await place.controller.authenticate_certificate("alice", kept)).name == "alice"
    for wrong in (
        RevokeRequest(name="alice", number="x"),
        RevokeRequest(name="al", number="0" * 8),
    ):
        with pytest.raises(PodwrightError):
            await place.controller.revoke_certificate(ROOT, wrong)


async def test_a_common_name_makes_nobody_an_administrator(place: Place) -> None:
    """Regression: a certificate with CN=root of the site's authority was an administrator."""
    await place.controller.create_user(ROOT, UserRequest(name="root", role="administrator"))
    await place.user("alice")
    users = place.controller._services.users
    with pytest.raises(Unauthenticated, match="makes nobody an administrator"):
        users.caller_of_certificate("root", "")
    assert users.caller_of_certificate("root", "podwright:user:root").role is Role.ADMINISTRATOR
    assert users.caller_of_certificate("alice", "").role is Role.USER
    users.common_names = frozenset({"root"})
    assert users.caller_of_certificate("root", "").role is Role.ADMINISTRATOR


@pytest.mark.parametrize(
    ("uris", "common", "name"),
    [
        (["podwright:user:alice:17.5"], "Alice Jones", "alice"),
        (["podwright:user:alice"], "bob", "alice"),
        (["alice.example.org"], "alice", "alice"),
        ([], "alice", "alice"),
        (["localhost"], "Podwright client", ""),
        (["localhost", "podwright:server"], "alice", ""),
        (["podwright:agent:ag1"], "ag1", ""),
        ([], "", ""),
    ],
)
def test_whose_a_certificate_is(uris: list[str], common: str, name: str) -> None:
    assert user_of(uris, common)[0] == name


@pytest.fixture
def munge(place: Place, monkeypatch: pytest.MonkeyPatch) -> FakeMunge:
    """Clients find the same MUNGE as the server does."""
    monkeypatch.setattr("podwright.client._grpc_transport._munge", lambda where: place.munge)
    return place.munge


async def test_munge_says_who_calls(place: Place, munge: FakeMunge) -> None:
    await place.user("ruth", "reader", uid=1003)
    assert await place.who(CLIENT, munge="yes") == ("alice", "user")
    munge.uid = 1003  # an administrator gave this account a role
    assert await place.who(CLIENT, munge="yes") == ("ruth", "reader")
    munge.uid = 0
    assert await place.who(CLIENT, munge="yes") == ("root", "administrator")


async def test_munge_is_shown_when_the_server_asks(place: Place, munge: FakeMunge) -> None:
    assert await place.who(CLIENT) == ("alice", "user")
    assert await place.ask(CLIENT, lambda client: len(client.list_partitions())) == 0
    with pytest.raises(Unauthenticated, match="or --munge, where munged runs"):
        await place.who(CLIENT, munge="no")


async def test_a_munge_credential_serves_one_call_once(place: Place) -> None:
    parts = [(CLIENT / f"{name}.pem").read_bytes() for name in ("ca", "key", "cert")]
    path = messages.method_path("ListPartitions")
    body = messages.encode(ListRequest())
    good = place.munge.encode(munge_payload(path, body))
    other = place.munge.encode(munge_payload(messages.method_path("ListLeases"), body))
    changed = place.munge.encode(munge_payload(path, b"x"))
    address = f"127.0.0.1:{place.server.port}"
    async with grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(*parts)) as channel:

        async def call(credential: str) -> str:
            try:
                await channel.unary_unary(path)(
                    body, metadata=(("authorization", f"MUNGE {credential}"),), timeout=120
                )
            except grpc.aio.AioRpcError as error:
                return f"{error.code().name}: {error.details()}"
            return "served"

        assert await call(good) == "served"
        again = await call(good)
        assert again.startswith("UNAUTHENTICATED: MUNGE does not believe the credential")
        assert "it was shown before" in again
        for wrong in (other, changed):
            assert "made for another call" in await call(wrong)
        assert "invalid credential" in await call("MUNGE:forged:")


async def test_without_munge_no_credential_is_believed() -> None:
    identity = Identity(server_uid=os.geteuid())
    with pytest.raises(Unauthenticated, match="believes no MUNGE credential"):
        await identity.caller_of_metadata([("authorization", "MUNGE MUNGE:x:")])


def test_keys_need_their_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot read .*ca\.pem"):
        GrpcTransport("127.0.0.1", 1, credentials=Credentials(certs=str(tmp_path)))
