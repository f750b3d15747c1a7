"""Urgent requests pass all that wait, and no request loses its turn."""

from __future__ import annotations

import asyncio

from podwright.guests.kubernetes.cluster._api_request_queue import (
    LATER,
    NOW,
    SOON,
    RequestQueue,
    ranked,
)


async def test_the_most_urgent_request_goes_first() -> None:
    queue, order = RequestQueue(1), list[str]()

    async def one(name: str, rank: int = LATER) -> None:
        with ranked(rank):
            async with queue.turn():
                order.append(name)

    async with queue.turn():
        works = [asyncio.create_task(one(name)) for name in ("a", "b")]
        works.append(asyncio.create_task(one("c", SOON)))
        works += [asyncio.create_task(one(name, NOW)) for name in ("d", "e")]
        await asyncio.sleep(0)
        assert order == []
    await asyncio.gather(*works)
    assert order == ["d", "e", "c", "a", "b"]


async def test_only_so_many_requests_run_at_once() -> None:
    queue, now, most = RequestQueue(3), 0, 0

    async def one() -> None:
        nonlocal now, most
        async with queue.turn():
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1

    await asyncio.gather(*(one() for _ in range(20)))
    assert (now, most) == (0, 3)


async def test_a_cancelled_request_leaves_no_gap() -> None:
    queue = RequestQueue(1)

    async def one() -> None:
        async with queue.turn():
            pass

    async with queue.turn():
        waits = [asyncio.create_task(one()) for _ in range(3)]
        await asyncio.sleep(0)
        waits[0].cancel()
        await asyncio.sleep(0)
    waits[1].cancel()  # it was its turn, and it did not know
    await asyncio.gather(*waits, return_exceptions=True)
    assert [one.cancelled() for one in waits] == [True, True, False]
    async with asyncio.timeout(300), queue.turn():
        pass
