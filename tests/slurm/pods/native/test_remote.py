"""Hooks over TCP: only what Slurm's own user asked for, as it was asked, and once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from podwright.hosts import FakeMunge, MungeError
from podwright.slurm.pods.service._hook_server import REMOTE, Front, Proofs
from podwright.slurm.pods.service._standby import Role, ask_role
from tests.whole.hostile import Hand

SLURM = 64030
BODY = b'{"job":"7"}'


class Door:
    """The service's TCP door. asked: the bodies that reached the service."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.munge = FakeMunge(SLURM)
        self.port = 0

    async def begins(self, asked: Any) -> str:
        self.asked.append(asked.job)
        return f"job {asked.job}\n"

    ended = failed = proves = begins

    def state(self) -> dict[str, Any]:
        return {}

    def role(self) -> str:
        return "standby"

    async def send(self, body: bytes, proof: str | None, path: str = "JobBegins") -> str:
        """The answer's status and body to what a hook would send."""
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


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    made = Door()
    front = Front(made, Proofs(made.munge, {0, SLURM}))
    listener = socket.create_server(("127.0.0.1", 0))
    made.port = listener.getsockname()[1]
    await front.start_remote(listener)
    yield made
    await front.finish(1)


async def test_a_credential_serves_its_own_request_once(door: Door) -> None:
    proof = f"MUNGE {door.munge.encode(BODY)}"
    assert (await door.send(BODY, proof)).startswith("200")
    again = await door.send(BODY, proof)
    assert again.startswith("401")
    assert "it was shown before" in again
    assert door.asked == ["7"]


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
    for _ in range(REMOTE.connections):
        silent.append(await asyncio.open_connection("127.0.0.1", door.port))
    await asyncio.sleep(2 * REMOTE.patience)
    proof = f"MUNGE {door.munge.encode(BODY)}"
    assert (await door.send(BODY, proof)).startswith("200")
    for _, writer in silent:
        writer.close()


async def test_hostile_messages_change_nothing_for_slurm(door: Door) -> None:
    hand = Hand(7)
    good = f"POST /slurm.v1/JobBegins HTTP/1.0\r\nContent-Length: {len(BODY)}\r\n"
    for _ in range(300):
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
    assert await ask_role(f"127.0.0.1:{door.port}") is Role.STANDBY
    assert (await door.raw(b"GET /slurm.v1/State HTTP/1.0\r\n\r\n")).startswith("404")
    assert door.asked == []
