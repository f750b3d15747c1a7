"""Calls on one key run one after the other, in the order of their arrival; others at once."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from podwright.agents.fabric._turns import EVERYTHING, FabricTurns


@pytest.mark.parametrize("seed", range(20))
async def test_no_two_calls_on_one_key_run_at_once(seed: int) -> None:
    random = Random(seed)
    turns = FabricTurns()
    running: list[frozenset[int]] = []
    order: dict[int, list[int]] = {}

    async def call(number: int, keys: frozenset[int], more: frozenset[int]) -> None:
        turn = await turns.begin(keys)
        assert all(keys.isdisjoint(other) for other in running)
        for key in keys:
            order.setdefault(key, []).append(number)
        running.append(keys)
        await asyncio.sleep(0)
        running.remove(keys)
        if more:
            await turns.widen(turn, more)
            keys |= more
            assert all(keys.isdisjoint(other) for other in running)
        running.append(keys)
        for _ in range(random.randrange(4)):
            await asyncio.sleep(0)
        running.remove(keys)
        turns.end(turn)

    calls = [
        call(
            number,
            frozenset(random.sample(range(6), random.randint(1, 2))),
            frozenset(random.sample(range(6, 9), random.randint(0, 2))),
        )
        for number in range(60)
    ]
    await asyncio.wait_for(asyncio.gather(*calls), 60)
    assert all(numbers == sorted(numbers) for numbers in order.values())


async def test_a_call_that_runs_alone_waits_for_all_and_all_wait_for_it() -> None:
    turns = FabricTurns()
    first = await turns.begin(frozenset([1]))
    alone = asyncio.ensure_future(turns.begin(EVERYTHING))
    later = asyncio.ensure_future(turns.begin(frozenset([2])))
    await asyncio.sleep(0)
    assert not alone.done()
    turns.end(first)
    turn = await alone
    assert not later.done()
    turns.end(turn)
    turns.end(await later)


async def test_a_caller_that_gives_up_leaves_the_line() -> None:
    turns = FabricTurns()
    first = await turns.begin(frozenset([1]))
    waiting = asyncio.ensure_future(turns.begin(frozenset([1])))
    later = asyncio.ensure_future(turns.begin(frozenset([1])))
    await asyncio.sleep(0)
    waiting.cancel()
    turns.end(first)
    turns.end(await later)
