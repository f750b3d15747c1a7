"""How a server begins and ends: in order, with what is under way finished, nothing left."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import grpc
import grpc.aio
import pytest

from podwright import wire
from podwright.hosts import is_loopback
from podwright.server import ListenOptions, Server
from podwright.wire import messages
from tests.server.fakes import FakeController, Http, as_controller

RENEW = wire.LeaseRequest(id="l", epoch=1)


async def _until(condition: object, seconds: float = 120) -> None:
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the other side has no event to offer
            await asyncio.sleep(0.005)


async def test_stop_finishes_what_is_under_way(
    controller: FakeController, server: Server, http: Http, channel: grpc.aio.Channel
) -> None:
    controller.hold["renew"] = asyncio.Event()
    assert server.socket_path is not None
    idle = await Http.connect(server.socket_path)
    await idle.post("ListLeases")
    over_http = asyncio.create_task(
        http.raw(
            b"POST /podwright.v1/Renew HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n"
            b'{"id":"l","epoch":1}'
        )
    )
    renew = channel.unary_unary(messages.method_path("Renew"))
    over_grpc = asyncio.ensure_future(renew(messages.encode(RENEW)))
    await _until(lambda: len(controller.callers) == 3)
    stopping = asyncio.create_task(server.stop(120))
    with pytest.raises(asyncio.IncompleteReadError):
        await idle.answer()
    with pytest.raises(OSError, match="No such file"):
        await Http.connect(server.socket_path)
    assert not stopping.done()
    assert not controller.closed
    controller.hold["renew"].set()
    status, headers, _ = await over_http
    assert (status, headers["connection"]) == (200, "close")
    assert messages.decode(wire.LeaseInfo, await over_grpc).id == "l"
    assert await stopping
    assert controller.closed
    assert os.listdir(server.socket_path.parent) == []
    idle.close()


async def test_stop_does_not_wait_for_ever(
    controller: FakeController, server: Server, http: Http
) -> None:
    controller.hold["renew"] = asyncio.Event()
    call = asyncio.create_task(http.post("Renew", RENEW))
    await _until(lambda: controller.callers)
    controller.idle = False
    assert not await server.stop(0.01)
    with pytest.raises((EOFError, OSError)):
        await call
    assert controller.closed


async def test_a_server_that_cannot_begin_leaves_nothing_behind(
    controller: FakeController, folder: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        running = Server(as_controller(controller), ListenOptions(folder / "s", port=port))
        with pytest.raises(wire.Unavailable, match=f"cannot listen on 127.0.0.1:{port}"):
            await running.start()
    assert controller.closed
    assert os.listdir(folder) == []


async def test_two_servers_never_share_a_port(server: Server, folder: Path) -> None:
    second = Server(as_controller(FakeController()), ListenOptions(folder / "s2", port=server.port))
    with pytest.raises(wire.Unavailable):
        await second.start()


async def test_two_servers_never_share_a_socket(server: Server, controller: FakeController) -> None:
    late = FakeController()
    second = Server(as_controller(late), ListenOptions(server.socket_path))
    with pytest.raises(wire.AlreadyExists):
        await second.start()
    assert not late.started
    assert not controller.closed


@pytest.mark.parametrize(
    ("host", "safe"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_nothing_listens_beyond_loopback_unless_told(host: str, safe: bool) -> None:
    assert is_loopback(host) is safe
    if not safe:
        with pytest.raises(wire.InvalidRequest, match="--listen-anywhere"):
            Server(as_controller(FakeController()), ListenOptions(None, host=host))
    Server(as_controller(FakeController()), ListenOptions(None, host=host, anywhere=True))


async def test_both_fronts_of_one_server(controller: FakeController, folder: Path) -> None:
    served = Server(as_controller(controller), ListenOptions(folder / "s"))
    await served.start()
    client = await Http.connect(folder / "s")
    info = await client.call("GetServerInfo", wire.ServerInfoRequest())
    assert info.port == served.port > 0
    async with grpc.aio.insecure_channel(f"127.0.0.1:{info.port}") as channel:
        ask = channel.unary_unary(messages.method_path("GetServerInfo"))
        replies = await asyncio.gather(*(ask(b"") for _ in range(20)))
        assert {messages.decode(wire.ServerInfo, reply).port for reply in replies} == {info.port}
        big = channel.unary_unary(messages.method_path("ListDevices"))
        assert len(messages.decode(wire.DeviceList, await big(b"")).devices) == 8
    client.close()
    await served.stop(1)
    assert os.listdir(folder) == []


async def test_the_port_survives_what_is_no_grpc(controller: FakeController, folder: Path) -> None:
    served = Server(as_controller(controller), ListenOptions(folder / "s"))
    await served.start()
    for data in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(300)):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(data)
        writer.close()
        del reader
    async with grpc.aio.insecure_channel(f"127.0.0.1:{served.port}") as channel:
        ask = channel.unary_unary(messages.method_path("GetServerInfo"))
        assert await ask(b"")
        await served.stop(0.1)
    assert os.listdir(folder) == []


async def test_idle_means_no_call_no_partition_no_lease(
    controller: FakeController, folder: Path
) -> None:
    now = 0.0
    running = Server(
        as_controller(controller), ListenOptions(folder / "s", host=None), clock=lambda: now
    )
    await running.start()
    controller.idle = False
    waiting = asyncio.create_task(running.wait_until_idle(0.02))
    now = 100.0
    await asyncio.sleep(0.1)
    assert not waiting.done()
    controller.hold["renew"] = asyncio.Event()
    client = await Http.connect(folder / "s")
    call = asyncio.create_task(client.post("Renew", RENEW))
    await _until(lambda: controller.callers)
    controller.idle = True
    await asyncio.sleep(0.1)
    assert not waiting.done()
    controller.hold["renew"].set()
    await call
    await asyncio.sleep(0.1)
    assert not waiting.done()  # the call has only just ended, by the clock that counts
    now = 200.0
    await asyncio.wait_for(waiting, 120)
    client.close()
    await running.stop(1)
