"""The server's identification of a caller, on each way in."""

from __future__ import annotations

import asyncio
import base64
import os
import string
import sys
from typing import Any

import grpc
import grpc.aio
import pytest

from podwright import wire
from podwright.controller import Caller, Role
from podwright.server import TOKEN_TTL, Identity, Server
from podwright.server._caller_identity import MAX_USED_LINKS
from podwright.wire import messages
from tests.server.fakes import FakeController, Http

_LETTERS = string.ascii_letters + string.digits + "-_"
NAMES = {0: "root", 7: "alice", 8: "anonymous", 9: "12"}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def identity(clock: Clock) -> Identity:
    return Identity(server_uid=500, clock=clock, name_of=NAMES.get)


@pytest.mark.parametrize(
    ("uid", "name", "role"),
    [
        (0, "root", Role.ADMINISTRATOR),
        (500, "500", Role.ADMINISTRATOR),
        (7, "alice", Role.USER),
        (8, "8", Role.USER),
        (9, "9", Role.USER),
        (4242, "4242", Role.USER),
    ],
)
async def test_who_a_uid_is(identity: Identity, uid: int, name: str, role: Role) -> None:
    expected = Caller(name=name, uid=uid, role=role, origin="unix")
    assert await identity.caller_of_uid(uid, "unix") == expected


async def test_names_are_asked_for_once_and_few_are_kept(clock: Clock) -> None:
    asked: list[int] = []

    def name_of(uid: int) -> str:
        asked.append(uid)
        return f"u{uid}x"

    identity = Identity(server_uid=0, clock=clock, name_of=name_of)
    for _ in range(3):
        assert (await identity.caller_of_uid(5, "unix")).name == "u5x"
    assert asked == [5]
    for uid in range(100, 4300):
        await identity.caller_of_uid(uid, "unix")
    assert len(identity._callers) <= 4096


def _bearer(token: str) -> list[tuple[str, str | bytes]]:
    return [("x", "y"), ("authorization", f"Bearer {token}")]


async def test_a_token_is_its_callers_until_it_expires(identity: Identity, clock: Clock) -> None:
    alice = await identity.caller_of_uid(7, "unix")
    token = identity.issue(alice)
    assert token.ttl == TOKEN_TTL
    clock.now += TOKEN_TTL - 0.01
    caller = await identity.caller_of_metadata(_bearer(token.token))
    assert caller == Caller(name="alice", uid=7, role=Role.USER, origin="tcp")
    clock.now += 0.01
    with pytest.raises(wire.Unauthenticated, match="has expired"):
        await identity.caller_of_metadata(_bearer(token.token))


async def test_a_caller_without_a_token_is_anonymous_and_gets_none(identity: Identity) -> None:
    for metadata in (None, [], [("user-agent", "x")]):
        caller = await identity.caller_of_metadata(metadata)
        assert caller == Caller(name="anonymous", uid=None, role=Role.READER, origin="tcp")
    with pytest.raises(wire.Unauthenticated):
        identity.issue(caller)


async def test_forged_tokens_are_refused(identity: Identity, clock: Clock) -> None:
    token = identity.issue(await identity.caller_of_uid(7, "unix")).token
    raw = base64.urlsafe_b64decode(token)
    forged = [
        base64.urlsafe_b64encode(bytes([*raw[:n], raw[n] ^ 1, *raw[n + 1 :]])).decode()
        for n in range(len(raw))
    ]
    other = Identity(server_uid=500, clock=clock, name_of=NAMES.get)
    foreign = other.issue(await other.caller_of_uid(7, "unix")).token
    # Bytes have one text: needless padding, the other alphabet and spare bits are refused.
    plain = base64.b64encode(raw).decode()
    spelled = [token + "=", token + "==", plain, plain.rstrip("=") + "==", *_spare(token)]
    for bad in [*forged, foreign, "", "x", "é", token[:-4], token + "AAAA", "=" * 500, *spelled]:
        if bad == token:
            continue
        with pytest.raises(wire.Unauthenticated, match="not one of this server's"):
            await identity.caller_of_metadata(_bearer(bad))
    with pytest.raises(wire.Unauthenticated, match="'Basic' is not a way"):
        await identity.caller_of_metadata([("authorization", "Basic abc")])


def _spare(token: str) -> list[str]:
    """The same bytes with other bits behind their end, where the text has room for such bits."""
    padding = len(token) - len(token.rstrip("="))
    if not padding:
        return []
    last = token[-padding - 1]
    others = [letter for letter in _LETTERS if letter != last]
    decoded = base64.urlsafe_b64decode(token)
    texts = [token[: -padding - 1] + letter + "=" * padding for letter in others]
    return [text for text in texts if base64.urlsafe_b64decode(text) == decoded]


async def test_a_link_logs_in_once_in_whatever_form_it_comes_back(
    identity: Identity, clock: Clock
) -> None:
    alice = await identity.caller_of_uid(7, "unix")
    links = [identity.issue(alice, "page").token for _ in range(50)]
    assert len(set(links)) == 50  # also those of one instant
    for link in links:
        assert await identity.caller_of_link(link) == Caller("alice", 7, Role.USER, "tcp")
        plain = link.translate(str.maketrans("-_", "+/"))
        for again in {link, link + "=", link + "==", link.rstrip("="), plain, *_spare(link)}:
            with pytest.raises(wire.Unauthenticated):
                await identity.caller_of_link(again)
    late = identity.issue(alice, "page").token
    clock.now += TOKEN_TTL
    with pytest.raises(wire.Unauthenticated, match="has expired"):
        await identity.caller_of_link(late)


async def test_a_used_link_is_remembered_for_as_long_as_it_lives(
    identity: Identity, clock: Clock
) -> None:
    """However many others are used, a used link stays used; who uses too many is refused."""
    alice, root = await identity.caller_of_uid(7, "unix"), await identity.caller_of_uid(0, "unix")
    first = identity.issue(alice, "page").token
    await identity.caller_of_link(first)
    for _ in range(MAX_USED_LINKS - 1):
        await identity.caller_of_link(identity.issue(alice, "page").token)
    with pytest.raises(wire.Unavailable, match="links"):
        await identity.caller_of_link(identity.issue(alice, "page").token)
    assert (await identity.caller_of_link(identity.issue(root, "page").token)).name == "root"
    with pytest.raises(wire.Unauthenticated, match="has been used"):
        await identity.caller_of_link(first)
    clock.now += TOKEN_TTL
    assert (await identity.caller_of_link(identity.issue(alice, "page").token)).name == "alice"
    assert len(identity._used) == 1


async def test_a_token_is_for_one_door_alone(identity: Identity) -> None:
    alice = await identity.caller_of_uid(7, "unix")
    with pytest.raises(wire.Unauthenticated, match="not one of this server's"):
        await identity.caller_of_metadata(_bearer(identity.issue(alice, "page").token))
    with pytest.raises(wire.Unauthenticated, match="not one of this server's"):
        await identity.caller_of_link(identity.issue(alice).token)
    with pytest.raises(wire.InvalidRequest, match="audience"):
        identity.issue(alice, "elsewhere")


async def test_the_kernel_vouches_on_the_unix_socket(
    http: Http, controller: FakeController
) -> None:
    await http.post("ListLeases")
    ((_, caller),) = controller.callers
    assert caller.uid == os.geteuid()
    assert caller.role is Role.ADMINISTRATOR
    assert caller.origin == "unix"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
async def test_another_account_is_a_user(server: Server, controller: FakeController) -> None:
    script = (
        "import os, socket, sys; os.setgid(4243); os.setuid(4242);"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        "s.sendall(b'POST /podwright.v1/GetServerInfo HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n');"
        "s.shutdown(socket.SHUT_WR); print(s.makefile('rb').read())"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(server.socket_path), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert b'"caller":"4242","role":"user"' in out
    del controller


async def test_a_token_carries_the_uid_over_tcp(
    http: Http, channel: grpc.aio.Channel, controller: FakeController
) -> None:
    token = (await http.call("IssueToken", wire.TokenRequest())).token

    async def who(metadata: Any) -> wire.ServerInfo:
        call = channel.unary_unary(messages.method_path("GetServerInfo"))
        return messages.decode(wire.ServerInfo, await call(b"", metadata=metadata))

    known = await who([("authorization", f"Bearer {token}")])
    assert known.role == "administrator"
    assert (await who(None)).caller == "anonymous"
    for path in (messages.method_path("ListLeases"), "/virmgrpc.UserService/ListPartitions"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(path)(b"", metadata=[("authorization", "Bearer no")])
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    link = (await http.call("IssueToken", wire.TokenRequest(audience="page"))).token
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await who([("authorization", f"Bearer {link}")])
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    # A token begets no token: it must end when its holder's access to the socket does.
    issue = channel.unary_unary(messages.method_path("IssueToken"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await issue(b"", metadata=[("authorization", f"Bearer {token}")])
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    del controller
