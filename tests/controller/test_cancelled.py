"""A caller that goes away in the middle of a call ends neither the call nor the server."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from podwright.errors import NotFound
from podwright.store import Put
from podwright.wire import AgentRequest, ReadyState
from tests.controller.world import ROOT, World

CALLS: dict[str, Callable[[World], Awaitable[Any]]] = {
    "create": lambda world: world.create("new", 4),
    "create at once": lambda world: world.create("new", 4, wait=False),
    "reset": lambda world: world.reset("p1"),
    "remove": lambda world: world.remove("p1"),
    "acquire": lambda world: world.acquire("p1", 4, num_gcds=2),
    "acquire new": lambda world: world.acquire("new", 4, create=True, keep=True),
    "replace": lambda world: world.acquire("p1", 8, update=True, keep=True),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
async def test_a_cancelled_caller_stops_nobody(world: World, name: str, turns: int) -> None:
    await world.create("p1", 4)
    call = asyncio.ensure_future(CALLS[name](world))
    for _ in range(turns):
        await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    while world.controller._state.tasks:
        await asyncio.wait(world.controller._state.tasks)
    assert world.controller.failure is None
    for partition in await world.names():
        assert (await world.get(partition)).ready_state is ReadyState.ACTIVE
    if turns and name.startswith("create"):
        assert "new" in await world.names()
    await world.check()


async def test_leases_of_cancelled_callers_run_out(world: World) -> None:
    call = asyncio.ensure_future(world.acquire("new", 16, create=True))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    await world.time.advance(30)
    with pytest.raises(NotFound):
        await world.get("new")
    await world.create("all", 16, caller=ROOT)


async def test_a_change_that_fails_after_its_caller_is_gone_says_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It logs one line, and leaves no task whose exception nobody has retrieved."""
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, said: unheard.append(said))
    request = AgentRequest(name="p9", host="p9", port=1)
    call = asyncio.ensure_future(world.controller.create_agent(ROOT, request))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    while world.controller._state.tasks:
        await asyncio.wait(world.controller._state.tasks)
    await asyncio.sleep(0)
    gc.collect()
    assert unheard == []
    assert ["after its caller had gone" in line for line in caplog.messages] == [True]


async def test_what_was_killed_begins_nothing_more(world: World) -> None:
    """Regression in the tests themselves: a timer started a task in the last moment of a test, and
    nobody awaited the task.
    """
    await world.create("p1", 4, caller=ROOT)
    world.controller._state.journal.later(Put("meta", "seen", b"{}"))
    await world.kill()
    began: list[object] = []
    loop = asyncio.get_running_loop()

    def begin(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        began.append(work)
        return asyncio.Task(work, loop=loop, **more)

    loop.set_task_factory(begin)
    await asyncio.sleep(0.1)
    loop.set_task_factory(None)
    assert began == []
