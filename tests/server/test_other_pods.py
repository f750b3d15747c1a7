"""Other pods on the page: their addresses, and whether their servers are healthy."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from podwright.errors import InvalidRequest
from podwright.server._other_pods import MAX_PODS, HealthCheck, OtherPods, parse_other_pods
from tests.server.test_web import make

ANSWERS = {
    "/ok": b'200 OK\r\n\r\n{"status":"ok"}',
    "/standby": b'200 OK\r\n\r\n{"status":"standby","active":"x"}',
    "/failed": b'503 No\r\n\r\n{"status":"ok"}',
    "/html": b"200 OK\r\n\r\n<html>",
    "/list": b"200 OK\r\n\r\n[1]",
    "/script": b'200 OK\r\n\r\n{"status":"<script>"}',
    "/large": b'200 OK\r\n\r\n{"status":"ok","x":"' + b"x" * 100_000 + b'"}',
    "/endless": b"200 OK\r\n" + b"x: y\r\n" * 100_000,
    "/moved": b'302 Found\r\nlocation: /ok/healthz\r\n\r\n{"status":"ok"}',
    "/cut": b"200 OK",
}


class Peer:
    """A server that gives these answers, and records the requests."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.release = asyncio.Event()
        self.address = ""
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(head)
            path = head.split()[1].removesuffix("/healthz")
            if path == "/hang":
                await self.release.wait()
            elif path == "/drip":
                while not self.release.is_set():
                    writer.write(b"H")
                    await writer.drain()
                    await asyncio.sleep(0.01)
            else:
                writer.write(b"HTTP/1.1 " + ANSWERS[path])
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    found = Peer()
    server = await asyncio.start_server(found.answer, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    found.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield found
    found.release.set()
    server.close()


async def test_the_health_that_a_server_states(peer: Peer) -> None:
    check = HealthCheck(60.0)
    states = {path: await check.health(f"{peer.address}{path}/") for path in ANSWERS}
    assert states.pop("/ok") == "ok"
    # `localhost` may be ::1 first, where nothing listens.
    assert await check.health(f"http://localhost:{peer.port}/ok") == "ok"
    peer.requests.pop()
    assert states.pop("/standby") == "standby"
    assert set(states.values()) == {"unhealthy"}, states
    assert len(peer.requests) == len(ANSWERS), "a redirect is not followed"
    sent = peer.requests[0].lower()
    assert sent == f"get /ok/healthz http/1.0\r\nhost: {peer.address[7:]}\r\n\r\n", "nothing more"


async def test_a_server_that_is_away_or_never_ends_its_answer(peer: Peer) -> None:
    check = HealthCheck(0.2)
    for path in ("/hang", "/drip"):
        assert await check.health(f"{peer.address}{path}") == "unreachable"
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert await check.health(f"http://127.0.0.1:{port}") == "unreachable"
    # What answers has no TLS.
    assert await check.health(peer.address.replace("http", "https")) == "unreachable"


async def test_a_podwright_server_is_healthy() -> None:
    server = make()
    await server.start()
    address = f"http://127.0.0.1:{server.web_port}/"
    assert await HealthCheck(60.0).health(address) == "ok"
    await server.stop(0)


async def test_a_server_that_hangs_delays_no_other() -> None:
    hangs, first, rounds = asyncio.Event(), asyncio.Event(), 0

    async def check(url: str) -> str:
        if url == "https://b" and rounds == 0:
            await hangs.wait()
        first.set()
        return "ok"

    async def sleep(_seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            raise asyncio.CancelledError

    pods = OtherPods({"a": "https://a", "b": "https://b"}, check_health=check, sleep=sleep)
    assert pods.topic()["a"] == {"url": "https://a", "state": "not known"}
    task = asyncio.create_task(pods.run())
    await first.wait()
    await asyncio.sleep(0)  # what was checked is recorded
    assert pods.topic()["a"] == {"url": "https://a", "state": "ok"}
    assert pods.topic()["b"] == {"url": "https://b", "state": "not known"}
    hangs.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pods.topic()["b"] == {"url": "https://b", "state": "ok"}
    await OtherPods({}).run()  # there is nothing to check, and it ends at once


def test_names_and_urls_of_other_pods() -> None:
    right = {"east": "http://127.0.0.1:1/", "west": "https://w", "c": "http://[::1]:8091"}
    assert parse_other_pods([f"{name}={url}" for name, url in right.items()]) == right
    many = [f"p{number}=https://h" for number in range(MAX_PODS + 1)]
    for wrong in (
        ["east"], ["=https://h"], ["a b=https://h"], ["a=ftp://h"], ["a=https://"],
        ["a=javascript:x"], ["a=https://u:p@h"], ["a=https://h?key=1"], ["a=https://h#x"],
        ["a=https://h:x"], ["a=https://h:0"], ["a=http://[::1"], ["a=https://h/\r\nx: y"],
        ["a=https://h/ x"], ["a=http://head2:8091"], ["a=http://127.0.0.1.example.org"],
        ["a=https://h", "a=https://i"], many,
    ):  # fmt: skip
        with pytest.raises(InvalidRequest) as refused:
            parse_other_pods(wrong)
        assert "u:p" not in refused.value.message, "no secret is repeated"
