"""An operator dies right after one of its changes. Whichever change it is, the next operator goes
on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.guests.kubernetes.conftest import World
from tests.guests.kubernetes.test_operator import job

CHANGES = {
    "kube": ("create_pod", "delete_pod", "set_finalizers", "set_status"),
    "controller": ("create", "remove", "reset"),
}


class OneDeath:
    """The operator of a world dies after its change number `at`, and another one follows."""

    def __init__(self, world: World, at: int) -> None:
        self.world, self.at = world, at
        self.changes = 0
        self.died = asyncio.Event()
        for place, names in CHANGES.items():
            for name in names:
                self._mortal(getattr(world, place), name)

    def _mortal(self, owner: Any, name: str) -> None:
        call = getattr(owner, name)

        async def changed(*words: Any, **more: Any) -> Any:
            answer = await call(*words, **more)
            self.changes += 1
            if self.changes == self.at:
                self.died.set()
                await asyncio.get_running_loop().create_future()  # nothing comes after it
            return answer

        setattr(owner, name, changed)

    async def until(self, what: str, true: Callable[[], Any]) -> None:
        """Wait until something holds, and start the next operator when it is time."""

        def checked() -> Any:
            if self.died.is_set():
                return True
            return true()

        await self.world.until(checked, what)
        if self.died.is_set():
            self.died.clear()
            await self.world.kill()
            self.world.start()
            await self.world.until(true, what)


async def life(world: World, death: OneDeath) -> None:
    """A job of two instances, from its creation to its end. Its first attempt fails."""
    world.kube.create(job(instances=2, restartPolicy={"type": "OnFailure"}))
    workers = ["job-worker-0", "job-worker-1"]

    def attempt(number: int) -> bool:
        pods = [one for key, one in world.kube.objects.items() if key[0] == "Pod"]
        labels = [one["metadata"]["labels"] for one in pods]
        return [one["podwright.graphcore.ai/attempt"] for one in labels] == [str(number)] * 2

    for number in (0, 1):
        await death.until(f"attempt {number}", partial(attempt, number))
        for name in workers:
            world.kube.run(name)
        await death.until("runs", lambda: world.status()["launcherStatus"] == "Running")
        assert len(world.controller.made) == 2
        for name in workers:
            world.kube.end(name, 1 - number)
    await death.until("ended", lambda: world.status()["launcherStatus"] == "Completed")
    assert world.status()["restartCount"] == 1
    await death.until("given back", lambda: not world.controller.made)
    world.kube.delete()
    await death.until("away", lambda: not world.kube.objects)


@pytest.mark.parametrize("at", range(1, 31))
async def test_a_job_ends_whichever_change_of_its_life_was_the_last(world: World, at: int) -> None:
    await life(world, OneDeath(world, at))
    made = [one for one in world.controller.did if one.startswith("create")]
    assert len(made) == 2  # each partition once, and none is left


async def test_a_life_has_no_more_changes_than_are_tried_above(world: World) -> None:
    death = OneDeath(world, 0)
    await life(world, death)
    assert death.changes <= 30


async def test_an_operator_that_ends_looks_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another operator acts by then, and this one's knowledge is old."""
    looks, hangs = asyncio.Event(), asyncio.Event()

    async def job_of(*_: str) -> None:
        looks.set()
        await hangs.wait()

    monkeypatch.setattr(world.kube, "job", job_of)
    operator = world.operator
    assert operator
    world.kube.create(job())
    async with asyncio.timeout(300):
        await looks.wait()
    operator.jobs.poke(next(iter(operator.jobs._keys.values())))  # news meanwhile
    await world.kill()
    assert operator.jobs.quiet
