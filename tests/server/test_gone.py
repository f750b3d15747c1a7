"""Callers that go away in the middle of an answer leave no error in the log, on the product's
loop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from podwright.server import ListenOptions, Server
from tests.server.fakes import FakeController, as_controller

_NOW = struct.pack("ii", 1, 0)  # SO_LINGER: end with a reset


def served(test: Callable[[], Awaitable[None]], caplog: pytest.LogCaptureFixture) -> None:
    """Run it as vipu-server does. Nothing may be logged."""
    with (
        caplog.at_level(logging.WARNING),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.get_loop().set_exception_handler(lambda _, what: pytest.fail(str(what)))
        runner.run(asyncio.wait_for(_awaited(test), 60))
    assert caplog.text == ""


async def _awaited(test: Callable[[], Awaitable[None]]) -> None:
    await test()


async def until(true: Callable[[], object]) -> None:
    while not true():  # noqa: ASYNC110 - the other side has no event to offer
        await asyncio.sleep(0.005)


def vanish(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NOW)
    connection.close()


def test_an_answer_over_http_whose_caller_has_gone_does_no_harm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The answer is ready after its caller has gone."""

    async def test() -> None:
        controller = FakeController()
        controller.hold["list_partitions"] = asyncio.Event()
        server = Server(
            as_controller(controller), ListenOptions(None, host=None, web=("127.0.0.1", 0))
        )
        await server.start()
        visitors = server._web.door.visitors
        connection = socket.create_connection(("127.0.0.1", server.web_port))
        connection.sendall(b"GET /v1/partitions HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: controller.callers)
        vanish(connection)
        await until(lambda: not visitors)
        controller.hold["list_partitions"].set()
        await until(lambda: not server.calls.under_way)
        await server.stop(1)

    served(test, caplog)


def test_an_answer_on_the_socket_whose_caller_has_gone_does_no_harm(
    caplog: pytest.LogCaptureFixture, folder: Path
) -> None:
    """A caller that goes away with an unread answer resets the connection."""
    call = b"POST /podwright.v1/%s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"

    async def test() -> None:
        controller = FakeController()
        controller.hold["list_partitions"] = asyncio.Event()
        server = Server(as_controller(controller), ListenOptions(folder / "s", host=None))
        await server.start()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(folder / "s"))
        connection.sendall(call % b"ListLeases" + call % b"ListPartitions")
        await until(lambda: len(controller.callers) == 2)
        connection.close()
        await until(lambda: not server._http.door.visitors)
        controller.hold["list_partitions"].set()
        await until(lambda: not server.calls.under_way)
        await server.stop(1)

    served(test, caplog)
