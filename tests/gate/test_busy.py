"""More clients than the gate has places: they wait, and are then refused with a time to return.

The limits are small here. `tests/whole/test_clients_at_once.py` has two thousand real clients.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest

from podwright import wire
from podwright.errors import ServerBusy, error_from_json
from podwright.gate import Setup, _connection_queue
from podwright.server import ListenOptions, Server
from podwright.wire import messages
from podwright.wire.messages import ERROR_KEY, PUSHBACK_KEY
from tests.gate.test_end import INFO, LEASE, RENEW, channel
from tests.gate.test_gate import until
from tests.server.fakes import FakeController, as_controller

PLACES, WAITING = 2, 1


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """A server whose gate has two places for one caller, and room for one that waits."""
    small = partial(Setup, connections=4, each=PLACES, waiting=WAITING)
    monkeypatch.setattr("podwright.server._grpc_front.Setup", small)
    monkeypatch.setattr("podwright.gate._grpc_server._REPORT_PERIOD_S", 0.02)
    server = Server(as_controller(FakeController()), ListenOptions(None))
    await server.start()
    yield server
    await server.stop(0)


def front_figures(served: Server) -> dict[str, int]:
    """Return the gate's last counts of its connections."""
    front: Any = served._grpc
    counted = front._counted
    return {"open": counted.open, "waiting": counted.waiting, **counted.counts_by_reason()}


class Busy:
    """Clients that take all places, each with a call that is not answered yet."""

    def __init__(self, served: Server) -> None:
        controller: Any = served.controller
        self._answer = controller.hold["renew"] = asyncio.Event()
        self.channels = [channel(served) for _ in range(PLACES)]
        self.calls = [
            asyncio.ensure_future(each.unary_unary(RENEW)(LEASE, timeout=120))
            for each in self.channels
        ]
        self._controller = controller

    async def until_under_way(self) -> None:
        await until(lambda: len(self._controller.callers) >= PLACES)

    async def leave(self) -> None:
        self._answer.set()
        await asyncio.gather(*self.calls)
        for each in self.channels:
            await each.close()


async def test_a_client_that_finds_no_place_waits_for_one(served: Server) -> None:
    busy = Busy(served)
    await busy.until_under_way()
    async with channel(served) as another:
        call = asyncio.ensure_future(another.unary_unary(INFO)(b"", timeout=120))
        await until(lambda: front_figures(served)["waiting"] == 1)
        assert not call.done()
        await busy.leave()
        assert messages.decode(wire.ServerInfo, await call).port == served.port
    figures = front_figures(served)
    assert (figures["refused"], figures["busy"], figures["evicted"]) == (0, 0, 0)


async def test_a_client_that_finds_no_room_to_wait_is_told_when_to_try_again(
    served: Server,
) -> None:
    busy = Busy(served)
    await busy.until_under_way()
    async with channel(served) as second, channel(served) as third:
        waits = asyncio.ensure_future(second.unary_unary(INFO)(b"", timeout=120))
        await until(lambda: front_figures(served)["waiting"] == 1)
        with pytest.raises(grpc.aio.AioRpcError, match=r"busy, try again in 10 s") as caught:
            await third.unary_unary(INFO)(b"", timeout=120)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        trailing: Any = dict(caught.value.trailing_metadata())
        assert trailing[PUSHBACK_KEY] == "10000"
        refusal = error_from_json(json.loads(trailing[ERROR_KEY]))
        assert isinstance(refusal, ServerBusy)
        assert refusal.retry_after_s == 10
        await busy.leave()
        await waits
        await answered(third)


async def test_a_client_that_waits_too_long_is_told_when_to_try_again(
    served: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Busy(served)
    await busy.until_under_way()
    monkeypatch.setattr(_connection_queue, "PATIENCE_S", 0.0)
    async with channel(served) as another:
        with pytest.raises(grpc.aio.AioRpcError, match="busy, try again in 1 s"):
            await another.unary_unary(INFO)(b"", timeout=120)
    await until(lambda: front_figures(served)["busy"] == 1)
    await busy.leave()


async def test_the_connections_of_refused_clients_are_bounded_and_end(
    served: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crowd beyond all limits leaves no connection, no descriptor and no taken place."""
    monkeypatch.setattr(_connection_queue, "PATIENCE_S", 0.0)
    busy = Busy(served)
    await busy.until_under_way()
    crowd = [channel(served) for _ in range(40)]
    answers = await asyncio.gather(
        *(each.unary_unary(INFO)(b"", timeout=120) for each in crowd[1:]), return_exceptions=True
    )
    codes = {answer.code().name for answer in answers if isinstance(answer, grpc.aio.AioRpcError)}
    assert codes == {"UNAVAILABLE"}
    await until(lambda: front_figures(served)["waiting"] <= 1)
    for each in crowd:
        await each.close()
    await until(lambda: front_figures(served)["waiting"] == 0)
    await busy.leave()
    await until(lambda: front_figures(served)["open"] == 0)


async def answered(client: grpc.aio.Channel) -> None:
    """Check that a refused client finds a place in the end, over the same channel."""
    async with asyncio.timeout(120):
        while True:
            with suppress(grpc.aio.AioRpcError):
                await client.unary_unary(INFO)(b"", timeout=120)
                return
            await asyncio.sleep(0.05)
