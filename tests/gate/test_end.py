"""At the gate's end, every call without an answer gets UNAVAILABLE, and never CANCELLED.

gRPC's own end (1.85) cancels the calls that are under way, and those that arrive meanwhile. Their
callers would read that they had given up themselves.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import grpc
import grpc.aio
import pytest

from podwright import wire
from podwright.server import ListenOptions, Server
from podwright.wire import messages
from tests.server.fakes import FakeController, as_controller

INFO, RENEW = messages.method_path("GetServerInfo"), messages.method_path("Renew")
LEASE = messages.encode(wire.LeaseRequest(id="l", epoch=1))
CALLERS = 32
_OWN = (("grpc.use_local_subchannel_pool", 1),)


async def serve() -> tuple[Server, Any]:
    controller: Any = FakeController()
    served = Server(as_controller(controller), ListenOptions(None))
    await served.start()
    return served, controller


def channel(served: Server) -> grpc.aio.Channel:
    """A connection of its own."""
    return grpc.aio.insecure_channel(f"127.0.0.1:{served.port}", options=_OWN)


@pytest.mark.parametrize("grace", [0, 30])
async def test_calls_while_the_server_ends_are_answered_or_unavailable(grace: float) -> None:
    served, _ = await serve()
    heard: Counter[str] = Counter()
    over = asyncio.Event()

    async def caller() -> None:
        async with channel(served) as there:
            while not over.is_set():
                try:
                    await there.unary_unary(INFO)(b"", timeout=120)
                    heard["OK"] += 1
                except grpc.aio.AioRpcError as error:
                    heard[error.code().name] += 1
                    await asyncio.sleep(0.01)

    callers = [asyncio.create_task(caller()) for _ in range(CALLERS)]
    async with asyncio.timeout(120):
        while heard["OK"] < 2 * CALLERS:  # noqa: ASYNC110 - the callers have no event to offer
            await asyncio.sleep(0.01)
    await served.stop(grace)
    over.set()
    await asyncio.gather(*callers)
    assert {*heard} == {"OK", "UNAVAILABLE"}, heard


async def test_a_call_that_waits_when_the_server_ends_is_answered_within_the_grace() -> None:
    served, controller = await serve()
    held = controller.hold["renew"] = asyncio.Event()
    async with channel(served) as there:
        call = asyncio.ensure_future(there.unary_unary(RENEW)(LEASE, timeout=120))
        async with asyncio.timeout(120):
            while not controller.callers:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        ending = asyncio.create_task(served.stop(60))
        await asyncio.sleep(0)
        held.set()
        await call
        await ending
    assert "renew" in controller.finished


async def test_a_call_that_waits_for_longer_is_told_that_the_server_has_ended() -> None:
    served, controller = await serve()
    controller.hold["renew"] = asyncio.Event()
    async with channel(served) as there:
        call = asyncio.ensure_future(there.unary_unary(RENEW)(LEASE, timeout=120))
        async with asyncio.timeout(120):
            while not controller.callers:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await served.stop(0)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "Try again" in str(caught.value.details())
    assert served.calls.under_way == 0


async def test_a_call_on_its_way_when_the_server_ends_is_unavailable() -> None:
    """Only headers have arrived. The caller neither sent too much nor gave up."""
    served, _ = await serve()
    never = asyncio.Event()

    async def half() -> Any:
        await never.wait()
        yield b""

    async with channel(served) as there:
        await there.unary_unary(INFO)(b"", timeout=120)
        call = there.stream_unary(INFO)(half(), timeout=120)
        await asyncio.sleep(0.1)  # whether it has come or not, the answer is the same
        await served.stop(30)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
