"""Hooks over TCP: only requests of Slurm's own user are accepted, unaltered and once."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from podwright.errors import Unavailable
from podwright.guests.slurm.hooks._active_standby_roles import Peers, StandbyRole, ask_role
from podwright.guests.slurm.hooks._hook_request_proofs import (
    CLOCK_SKEW_LIMIT_S,
    KeyProofs,
    MungeProofs,
    read_key,
    sign,
)
from podwright.guests.slurm.hooks._hook_server import REMOTE_LIMITS, HookFront
from podwright.hosts import FakeMunge, MungeError
from podwright.http import Reply
from tests.conftest import SOAK
from tests.whole.hostile import Hand

SLURM = 64030
BODY = b'{"job":"7"}'


class Door:
    """The service's TCP port. asked: the bodies that reached the service."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.munge = FakeMunge(SLURM)
        self.port = 0

    async def begin_job(self, asked: Any) -> str:
        self.asked.append(asked.job)
        return f"job {asked.job}\n"

    end_job = failed = prove_step = begin_job

    async def send(self, body: bytes, proof: str | None, path: str = "JobBegins") -> str:
        """Return the answer's status and body to what a hook would send."""
        head = f"POST /slurm.v1/{path} HTTP/1.0\r\nContent-Length: {len(body)}\r\n"
        if proof is not None:
            head += f"Authorization: {proof}\r\n"
        return await self.raw(head.encode() + b"\r\n" + body)

    async def raw(self, data: bytes, *, end: bool = False) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        if end:
            writer.write_eof()
        answer = ""
        with contextlib.suppress(ConnectionError):  # closed with bytes unread: it had enough
            answer = (await reader.read()).decode()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        return answer.partition(" ")[2]


def standby_of(door: Door) -> HookFront:
    """The front of a service that says that it stands by, whose calls the door remembers."""
    front = HookFront()
    front.proving = front.working = door  # type: ignore[assignment]
    front.peers = Peers(("a:1", "b:1"), 0, time.monotonic, partial(ask_role, identity=None))  # type: ignore[arg-type]
    return front


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    made = Door()
    front = standby_of(made)
    listener = socket.create_server(("127.0.0.1", 0))
    made.port = listener.getsockname()[1]
    proofs = MungeProofs(made.munge, {0, SLURM})
    await front.start_remote(listener, proofs, f"127.0.0.1:{made.port}")
    yield made
    await front.finish(1)


async def test_a_credential_serves_its_own_request_once(door: Door) -> None:
    proof = f"MUNGE {door.munge.encode(BODY)}"
    assert (await door.send(BODY, proof)).startswith("200")
    again = await door.send(BODY, proof)
    assert again.startswith("401")
    assert "it was shown before" in again
    assert door.asked == [7]


async def test_what_is_answered_is_signed_with_the_request_that_it_answers(door: Door) -> None:
    good, bad = door.munge.encode(BODY), door.munge.encode(b"another body")
    for status, credential in (("200", good), ("401", bad)):
        answer = await door.send(BODY, f"MUNGE {credential}")
        head, _, body = answer.partition("\r\n\r\n")
        assert head.startswith(status)
        (line,) = [word for word in head.splitlines() if word.startswith("authentication-info")]
        ours = door.munge.decode(line.partition("MUNGE ")[2])
        assert ours.uid == SLURM
        assert ours.payload.decode() == f"{status}\n{credential}\n{body}"


async def test_who_cannot_prove_himself_is_refused(door: Door) -> None:
    other = f"MUNGE {door.munge.encode(b'another body')}"
    door.munge.uid = 1000
    user = f"MUNGE {door.munge.encode(BODY)}"
    for proof, why in {
        None: "needs a MUNGE credential",
        "Bearer x": "needs a MUNGE credential",
        "MUNGE": "invalid credential",
        "MUNGE \x80": "invalid credential",
        other: "that of another request",
        user: "user 1000 is not Slurm's",
    }.items():
        answer = await door.send(BODY, proof)
        assert answer.startswith("401")
        assert why in answer
    assert not door.asked


async def test_strangers_do_not_see_what_jobs_hold(door: Door) -> None:
    assert (await door.raw(b"GET /slurm.v1/State HTTP/1.0\r\n\r\n")).startswith("404")


async def test_silent_strangers_keep_nobody_out(door: Door) -> None:
    silent = []
    for _ in range(REMOTE_LIMITS.connections):
        silent.append(await asyncio.open_connection("127.0.0.1", door.port))
    await asyncio.sleep(2 * REMOTE_LIMITS.patience)
    proof = f"MUNGE {door.munge.encode(BODY)}"
    assert (await door.send(BODY, proof)).startswith("200")
    for _, writer in silent:
        writer.close()


@pytest.mark.more
async def test_hostile_messages_change_nothing_for_slurm(door: Door) -> None:
    hand = Hand(7)
    good = f"POST /slurm.v1/JobBegins HTTP/1.0\r\nContent-Length: {len(BODY)}\r\n"
    for _ in range(50_000 if SOAK else 300):
        proof = f"Authorization: MUNGE {hand.random.choice(['', 'x', 'MUNGE:0:', 'y' * 3000])}"
        await door.raw(hand.mutated(f"{good}{proof}\r\n\r\n".encode() + BODY), end=True)
        await door.raw(hand.garbage(), end=True)
    assert not door.asked
    proof = f"MUNGE {door.munge.encode(BODY)}"
    assert (await door.send(BODY, proof)).startswith("200")


def test_the_fake_is_as_strict_as_munge() -> None:
    fake = FakeMunge(5)
    made = fake.encode(b"x")
    assert fake.decode(made) == (5, 5, b"x")
    for bad in (made, "MUNGE:none:"):
        with pytest.raises(MungeError):
            fake.decode(bad)


async def test_whoever_asks_learns_which_service_is_active_and_nothing_else(door: Door) -> None:
    assert (await door.raw(b"GET /slurm.v1/Role HTTP/1.0\r\n\r\n")).startswith("200")
    assert (await door.raw(b"GET /slurm.v1/State HTTP/1.0\r\n\r\n")).startswith("404")
    assert door.asked == []


KEY = b"0123456789abcdef"


async def test_only_slurms_own_user_is_believed_who_is_active(door: Door) -> None:
    """An ordinary user who listens on a dead service's port prevents no takeover."""
    proofs = MungeProofs(door.munge, {0, SLURM})
    at = f"127.0.0.1:{door.port}"
    assert await ask_role(at, proofs) is StandbyRole.STANDBY
    with pytest.raises(ConnectionError, match=f"the word of {at}"):
        await ask_role(f"localhost:{door.port}", proofs)  # the answer of another, handed on
    door.munge.uid = 1000
    with pytest.raises(ConnectionError, match="it is not Slurm's user who says so"):
        await ask_role(at, proofs)


@pytest.mark.parametrize("answers", [KEY, b"another key of ours"])
async def test_without_munge_a_key_says_who_is_active(answers: bytes) -> None:
    front = standby_of(Door())
    listener = socket.create_server(("127.0.0.1", 0))
    at = f"127.0.0.1:{listener.getsockname()[1]}"
    await front.start_remote(listener, KeyProofs(answers), at)
    try:
        if answers == KEY:
            assert await ask_role(at, KeyProofs(KEY)) is StandbyRole.STANDBY
        else:
            with pytest.raises(ConnectionError, match="not Slurm's user"):
                await ask_role(at, KeyProofs(KEY))
    finally:
        await front.finish(1)


async def test_without_munge_a_key_signs_the_whole_request_once() -> None:
    now = [1000.0]
    proofs = KeyProofs(KEY, lambda: now[0])

    def shown(key: bytes = KEY, at: str = "1000", nonce: str = "a", body: bytes = BODY) -> str:
        return f"Podwright {at} {nonce} {sign(key, at, nonce, '/slurm.v1/JobBegins', body)}"

    async def problem(said: str, path: str = "JobBegins") -> str:
        return await proofs.problem(said, f"/slurm.v1/{path}", BODY)

    assert await problem(shown()) == ""
    assert "shown before" in await problem(shown())
    for said in ("", "MUNGE x", "Podwright 1 2", f"Podwright x a {'0' * 64}"):
        assert "needs a signature" in await problem(said)
    for said in (shown(b"another key here"), shown(nonce="b", body=b"{}"), shown(nonce="b")[:-1]):
        assert "another key or request" in await problem(said)
    assert "another key or request" in await problem(shown(nonce="b"), "JobEnded")
    now[0] += CLOCK_SKEW_LIMIT_S + 1
    assert "another time" in await problem(shown(nonce="c"))
    now[0] += 1
    assert await problem(shown(at="1302", nonce="a")) == "", "it was forgotten with its time"
    assert await problem(shown(at="1303", nonce="d")) == ""


async def test_an_answer_is_signed_with_the_request_that_it_answers() -> None:
    reply = Reply(200, b"yes\n", "text/plain", ((b"connection", b"close"),))
    good = (await KeyProofs(KEY).signed(reply, "Podwright 1000 a 0f")).headers[-1]
    mac = hmac.new(KEY, b"200\n1000 a 0f\nyes\n", "sha256").hexdigest()
    assert good == (b"authentication-info", f"Podwright {mac}".encode())
    for other, shown in ((reply._replace(status=400), "1000 a 0f"), (reply, "1000 b 0f")):
        assert (await KeyProofs(KEY).signed(other, f"Podwright {shown}")).headers[-1] != good


def test_a_key_is_nobodys_but_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "hook.key"
    with pytest.raises(Unavailable, match="No such file"):
        read_key(path)
    path.write_text("short\n")
    path.chmod(0o600)
    with pytest.raises(Unavailable, match="too short"):
        read_key(path)
    path.write_bytes(KEY + b"\nmore")
    assert read_key(path) == KEY
    path.chmod(0o640)
    with pytest.raises(Unavailable, match="can be read by others"):
        read_key(path)
