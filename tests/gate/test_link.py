"""A gate that was taken over can neither learn anything from its server nor end it."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from podwright import wire
from podwright.gate import (
    Cancel,
    Done,
    GateCounted,
    GateRefused,
    Question,
    ShownCredentials,
    from_server,
    to_server,
)
from podwright.server import Identity, ListenOptions, Server
from podwright.server._grpc_front import GrpcFront
from tests.server.fakes import FakeController, Http, as_controller

COUNT = 200_000 if os.environ.get("PODWRIGHT_SOAK") else 2_000


class Taken:
    """A server, and a gate's end of the link to it."""

    def __init__(self, secure: bool) -> None:
        self.controller = FakeController()
        identity = Identity(secure=secure)
        self.server = Server(as_controller(self.controller), ListenOptions(None), identity=identity)
        self.front = GrpcFront(self.server.calls)

    async def begin(self) -> None:
        ours, self.theirs = socket.socketpair()
        self.link = await from_server(ours)
        self.hearing = asyncio.create_task(self.front._hear(self.link))

    async def end(self) -> None:
        await asyncio.wait_for(self.hearing, 120)
        for task in list(self.front._tasks.values()):
            task.cancel()
        await asyncio.gather(*self.front._tasks.values(), return_exceptions=True)


def framed(word: Any) -> bytes:
    data = msgspec.msgpack.encode(word)
    return len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize("secure", [False, True])
async def test_a_gate_is_believed_no_claim_about_the_caller(secure: bool) -> None:
    """An invented token, a guessed key and an unknown method are refused like anybody's."""
    taken = Taken(secure)
    await taken.begin()
    gate = await to_server(taken.theirs)
    good = msgspec.msgpack.encode(wire.ListRequest())
    claims = [
        ("ListLeases", good, ShownCredentials(metadata=[("authorization", "Bearer AAAA")])),
        ("ListLeases", good, ShownCredentials(metadata=[("authorization", "MUNGE x")], proof=b"y")),
        ("IssueToken", msgspec.msgpack.encode(wire.TokenRequest()), ShownCredentials()),
        ("Nothing", good, ShownCredentials()),
        ("__init__", good, ShownCredentials()),
        ("ListLeases", b"\xc1", ShownCredentials()),
        ("Renew", msgspec.msgpack.encode({"id": 7}), ShownCredentials()),
    ]
    for number, (method, request, shown) in enumerate(claims):
        gate.send(Question(number, method, request, shown))
        answer = await asyncio.wait_for(gate.hear(), 120)
        assert isinstance(answer, GateRefused), (method, answer)
        assert answer.error["code"] != "INTERNAL"
    gate.send(Question(99, "ListLeases", good, ShownCredentials()))
    answer = await asyncio.wait_for(gate.hear(), 120)
    assert isinstance(answer, GateRefused if secure else Done)
    gate.close()
    await taken.end()


async def test_the_unix_socket_has_its_turn_between_calls_of_the_gate() -> None:
    """However many calls are before it, a local call waits only for a few of them."""
    taken = Taken(False)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        taken.server = Server(as_controller(taken.controller), ListenOptions(Path(folder, "s")))
        taken.front = GrpcFront(taken.server.calls)
        await taken.server.start()
        http = await Http.connect(Path(folder, "s"))
        await http.post("ListLeases")
        await taken.begin()
        gate = await to_server(taken.theirs)
        request = msgspec.msgpack.encode(wire.ListRequest())
        for number in range(5000):
            gate.send(Question(number, "ListDevices", request, ShownCredentials()))
        while len(taken.controller.callers) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await asyncio.wait_for(http.post("ListLeases"), 120)
        assert len(taken.controller.callers) < 2500
        http.close()
        gate.close()
        await taken.end()
        await taken.server.stop(1)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(3))
async def test_hostile_messages_end_the_link_or_get_an_answer(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Mutated and invented messages end the link, or each gets its answer."""
    rng = random.Random(seed)
    good = [
        framed(
            Question(
                1, "ListLeases", msgspec.msgpack.encode(wire.ListRequest()), ShownCredentials()
            )
        ),
        framed(
            Question(
                2,
                "Renew",
                msgspec.msgpack.encode(wire.LeaseRequest(id="l", epoch=1)),
                ShownCredentials(),
            )
        ),
        framed(
            Question(3, "", b"", ShownCredentials(certificate=("alice", "podwright:user:alice")))
        ),
        framed(Cancel(1)),
        framed(GateCounted(3, refused=2)),
    ]
    taken = Taken(False)
    sent = 0
    while sent < COUNT:
        await taken.begin()
        parts = []
        for _ in range(rng.randrange(1, 40)):
            data = bytearray(rng.choice(good))
            for _ in range(rng.choice([0, 0, 1, 3])):
                data[rng.randrange(4, len(data))] = rng.randrange(256)
            parts.append(bytes(data))
        if rng.random() < 0.2:
            parts.append(rng.randbytes(rng.randrange(60)))
        sent += len(parts)
        loop = asyncio.get_running_loop()
        taken.theirs.setblocking(False)
        await loop.sock_sendall(taken.theirs, b"".join(parts))
        taken.theirs.shutdown(socket.SHUT_WR)
        await taken.end()
        taken.theirs.close()
    assert "Traceback" not in caplog.text
    assert not taken.front._tasks
