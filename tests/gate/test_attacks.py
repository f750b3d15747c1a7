"""Attacks on the gRPC port that once delayed other callers: now they harm only the attacker."""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest
from bench import _floods as attacks

from podwright.server import Server
from podwright.wire import messages
from tests.gate.test_gate import apart, gates, info
from tests.server.fakes import Http

__all__ = ["apart"]
PATH = messages.method_path("ListDevices")
#: Bytes of an attack; one that is let go on so long has succeeded.
MOST = 48 << 20


async def ask_all_doors(server: Server, until: asyncio.Task[object]) -> int:
    """Make good calls at both ports during the attack. Returns their number."""
    count = 0
    assert server.socket_path is not None
    while not until.done() or not count:
        http = await Http.connect(server.socket_path)
        assert (await http.post("ListLeases"))[0] == 200
        http.close()
        await answered(server)
        count += 1
    return count


async def answered(server: Server) -> None:
    """Make a call from the attacker's own address, and repeat it if it is refused.

    The call may be refused while the attacker's requests fill all places.
    """
    async with asyncio.timeout(120):
        while True:
            try:
                assert (await info(server)).port == server.port
                return
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("name", attacks.FLOODS)
async def test_a_client_that_floods_is_cut_off_or_held_up_and_others_are_served(
    apart: Server, name: str
) -> None:
    await info(apart)
    flood = attacks.FLOODS[name](PATH)
    # gRPC answers each ping before it reads the next, which holds the sender up. A flood that
    # nothing held up would be sent as a whole in eight seconds, at the rate of `attacks.send`.
    seconds = 10 if name == "pings" else 300
    attack = asyncio.create_task(attacks.send(apart.port, flood, MOST, seconds))
    assert await ask_all_doors(apart, attack)
    sent, cut = await attack
    assert cut or (name == "pings" and sent < MOST)
    assert gates()


async def test_unfinished_messages_are_bounded_in_all(apart: Server) -> None:
    """Sixty connections with a hundred messages each that never end: 6 GB are wanted."""
    await info(apart)
    (gate,) = gates()
    attack = asyncio.gather(
        *(
            attacks.send(apart.port, attacks.unfinished(PATH), 24 << 20, seconds=20, rate=2e7)
            for _ in range(60)
        )
    )
    weights = []

    async def weigh() -> None:
        while not attack.done():
            weights.append(gate.memory_info().rss)
            await asyncio.sleep(0.05)

    weighing = asyncio.create_task(weigh())
    assert await ask_all_doors(apart, asyncio.create_task(weighing_done(weighing)))
    await attack
    assert max(weights) < 640 << 20
    assert [found.pid for found in gates()] == [gate.pid]


async def weighing_done(task: asyncio.Task[None]) -> None:
    await task
