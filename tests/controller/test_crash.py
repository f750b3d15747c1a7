"""The controller is killed (`kill -9`) at every commit and every call to a machine, and restarted.

A script of acknowledged operations runs until the controller dies before or after its nth outward
act. The next controller must keep everything that was acknowledged, and must have finished or
undone everything else. It must leave no partition stuck, give no device to two holders, and hand
out no device without a reset.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from podwright.controller.state._records import PARTITION, PartitionRecord, decode
from podwright.errors import Fenced
from podwright.fabric import preset
from podwright.wire import AcquireReply, OperationState, ReadyState
from tests.controller.world import ALL, ROOT, World, claim, virtually


class Script:
    """A sequence of operations, and those that were acknowledged so far."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.present: set[str] = set()
        self.unsure: set[str] = set()
        self.held: list[AcquireReply] = []

    async def run(self) -> None:
        world = self.world
        await self._adding("p1", lambda: world.create("p1", 4))
        await self._adding("r1", lambda: world.create("r1", 8, reconfigurable=True))
        first = await self._hold("p1", 4)
        await self._let_go(first)
        second = await self._hold("p1", 4)
        pair = await self._hold("r1", 2)
        four = await self._hold("r1", 4)
        await self._let_go(pair)
        await self._let_go(four)
        again = await self._hold("r1", 2)
        child = await self._hold("r1", 1, parent=again.lease.id)
        assert child.lease.parent == again.lease.id
        self.held.remove(child)
        await self._let_go(again)
        self.unsure.add("x1")
        made = await self._hold("x1", 2, create=True)
        self.unsure.discard("x1")
        self.present.add("x1")
        await self._removing("x1", lambda: self._let_go(made))
        await self._let_go(second)
        self.unsure.add("p1")
        self.present.discard("p1")
        updated = await self._hold("p1", 2, update=True, keep=True, num_gcds=2)
        self.unsure.discard("p1")
        self.present.add("p1")
        await self._let_go(updated)
        await world.reset("p1")
        await self._removing("p1", lambda: world.remove("p1"))
        await self._removing("r1", lambda: world.remove("r1"))
        await self._adding("p2", lambda: world.create("p2", 16, num_gcds=2))
        await self._removing("p2", lambda: world.remove("p2"))

    async def _adding(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        self.unsure.add(name)
        await work()
        self.unsure.discard(name)
        self.present.add(name)

    async def _removing(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        self.present.discard(name)
        self.unsure.add(name)
        await work()
        self.unsure.discard(name)

    async def _hold(
        self,
        name: str,
        size: int,
        *,
        create: bool = False,
        update: bool = False,
        keep: bool = False,
        parent: str = "",
        num_gcds: int = 1,
    ) -> AcquireReply:
        reply = await self.world.acquire(
            name,
            size,
            create=create,
            update=update,
            keep=keep,
            parent=parent,
            num_gcds=num_gcds,
        )
        if not parent:  # a child goes on with what its own parent left
            assert self.world.used(reply) == []
        self.world.use(reply)
        self.held.append(reply)
        return reply

    async def _let_go(self, reply: AcquireReply) -> None:
        self.held.remove(reply)
        await self.world.release(reply)


async def _count_acts() -> int:
    world = World()
    await world.start()
    before = world.trigger.count
    await Script(world).run()
    acts = world.trigger.count - before
    await world.stop()
    return acts


async def test_the_script_that_is_killed_below_runs_through_undisturbed() -> None:
    world = World()
    await world.start()
    script = Script(world)
    await script.run()
    assert await world.names() == []
    assert script.held == []
    await world.check()
    await world.stop()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("lost", [False, True], ids=["machines-keep", "machines-forget"])
@virtually
async def test_killed_at_every_commit_and_every_call(after: bool, lost: bool) -> None:
    acts = await _count_acts()
    assert acts > 40
    for k in range(1, acts + 1):
        world = World()
        await world.start()
        world.trigger.at = world.trigger.count + k
        world.trigger.after = after
        script = Script(world)
        ended = await world.until_killed(script.run)
        assert not ended, k
        if lost:
            for machine in world.machines.values():
                machine.power_cycle()
        await world.start()
        await _stands(world, script)
        # And once more, without anything under way: nothing may change.
        before = await world.names()
        await world.restart()
        assert await world.names() == before
        await world.check()
        await _ends_well(world, script)
        await world.stop()


@virtually
async def test_a_server_that_is_killed_while_it_recovers_recovers_at_the_next_start() -> None:
    acts = await _count_acts()
    for k in range(1, acts + 1, 3):
        for j in range(1, 6):
            world = World()
            await world.start()
            world.trigger.at = world.trigger.count + k
            script = Script(world)
            assert not await world.until_killed(script.run)
            world.kill_start_at = j
            await world.until_killed(world.start)
            await world.restart()
            await _stands(world, script)
            await world.stop()


async def _stands(world: World, script: Script) -> None:
    await world.check()
    names = set(await world.names())
    assert script.present <= names <= script.present | script.unsure
    for name in names:
        info = await world.get(name)
        assert (info.ready_state, info.operation_state) == (
            ReadyState.ACTIVE,
            OperationState.IDLE,
        ), info
    for reply in script.held:
        renewed = await world.controller.renew(ROOT, claim(reply))
        assert renewed.expires_in == pytest.approx(reply.lease.ttl)


async def _ends_well(world: World, script: Script) -> None:
    """Leases run out, transient partitions are removed with them, and the whole pod becomes
    available.
    """
    await world.time.advance(12)
    assert (await world.controller.list_leases(ROOT, ALL)).leases == []
    for reply in script.held:
        with pytest.raises(Fenced):
            await world.controller.renew(ROOT, claim(reply))
    for name in await world.names():
        reply = await world.acquire(name, 0, num_gcds=(await world.get(name)).num_gcds)
        assert world.used(reply) == []
        await world.release(reply)
        if name in await world.names():
            await world.remove(name)
    await world.create("all", preset("pod16").size)
    await world.remove("all")


async def test_a_late_call_of_the_dead_server_is_refused() -> None:
    world = World()
    await world.start()
    await world.create("p1", 4)
    # The outcome of the creation is written a moment later. On a busy machine that moment may come
    # below, and would count as one of the two acts.
    await world.controller._state.journal.flush()
    world.trigger.at = world.trigger.count + 2  # the call to the machine, after the commit
    assert not await world.until_killed(lambda: world.reset("p1"))
    announced = decode(
        PartitionRecord, (await world.store.reopened().open()).records[PARTITION, "p1"]
    )
    assert announced.operation is OperationState.RESETTING
    await world.start()
    assert (await world.get("p1")).epoch > announced.epoch
    reply = await world.acquire("p1", 4, reset=False)
    world.use(reply)
    with pytest.raises(Fenced):
        await world.machines["ag1"].reset(announced.epoch, [0, 1, 2, 3])
    assert world.used(reply) == ["p1"] * 4
    await world.stop()
