"""Random lives of a controller: operations, faults, kills, restarts and jumping clocks.

A model keeps what was acknowledged. It never has to guess what the controller did with the
rest: a partition whose step was interrupted is `unsure` until it is seen again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from podwright.agents import Fault
from podwright.controller import Caller
from podwright.errors import Fenced, PodwrightError
from podwright.wire import (
    AcquireReply,
    CreateRequest,
    PartitionSpec,
    ReadyState,
    WaiterName,
    WaitRequest,
)
from tests.controller.world import ALICE, ALL, BOB, ROOT, VirtualLoop, World, claim

SOAK = bool(os.environ.get("PODWRIGHT_SOAK"))
#: Operations, faults, kills and jumps of clocks that a soak goes through at least.
ENOUGH = 100_000

NAMES = st.sampled_from(["a", "b", "c", "d"])
WAITERS = ["w1", "w2", "w3"]
SIZES = st.sampled_from([1, 2, 4, 4, 8, 16])
CALLERS = st.sampled_from([ROOT, ALICE, BOB])
MACHINES = st.sampled_from(["ag1", "ag2", "ag3", "ag4"])
KINDS = st.sampled_from(["configure", "reset", "release"])


class Life(RuleBasedStateMachine):
    """One pod, and the controllers that come and go over it."""

    steps = restarts = 0  #: of all lives

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.world = World(driver_timeout=5.0)
        self.present: set[str] = set()
        self.unsure: set[str] = set()
        self.waiters: dict[str, str] = {}
        self.held: dict[str, AcquireReply] = {}
        self.owner: dict[str, Caller] = {}
        self.loop.run_until_complete(self.world.start())

    def teardown(self) -> None:
        for machine in self.world.machines.values():
            machine.heal()
        self.loop.run_until_complete(self._end())
        self.loop.close()

    async def _end(self) -> None:
        """Faults end and leases run out; then everything must be available again."""
        world = self.world
        await world.restart()
        await world.time.advance(120)
        await world.check()
        assert (await world.controller.list_leases(ROOT, ALL)).leases == []
        for name in await world.names():
            if (await world.get(name)).ready_state is ReadyState.ERROR:
                await world.reset(name)
            await world.remove(name)
        await world.create("everything", 16)
        await world.remove("everything")
        await world.check()
        await world.stop()

    def _do(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Run one operation. A new controller follows after a kill."""

        async def body() -> bool:
            world = self.world
            ended = await world.until_killed(work)
            if not ended:
                Life.restarts += 1
                await world.start()
            return ended

        return self.loop.run_until_complete(body())

    def _nth_held(self, at: int) -> str:
        return sorted(self.held)[at % len(self.held)]

    # -- operations --------------------------------------------------------------------------

    @rule(name=NAMES, size=SIZES, caller=CALLERS, reconfigurable=st.booleans())
    def create(self, name: str, size: int, caller: Caller, reconfigurable: bool) -> None:
        async def work() -> None:
            try:
                await self.world.create(name, size, caller=caller, reconfigurable=reconfigurable)
            except PodwrightError:
                self.unsure.discard(name)
                return
            self.unsure.discard(name)
            self.present.add(name)

        if name not in self.present and name not in self.unsure:
            self.unsure.add(name)
            self._do(work)

    @rule(
        name=NAMES,
        size=SIZES,
        caller=CALLERS,
        create=st.booleans(),
        update=st.booleans(),
        keep=st.booleans(),
        reset=st.sampled_from([None, None, True, False]),
        ttl=st.sampled_from([2.0, 10.0, 100.0]),
        num_gcds=st.sampled_from([0, 0, 1, 2]),
    )
    def acquire(self, name: str, size: int, **options: Any) -> None:
        async def work() -> None:
            world = self.world
            try:
                reply = await world.acquire(name, size, **options)
            except PodwrightError:
                if was_there and name in await world.names():
                    self.present.add(name)
                return
            if options["reset"] is not False or reply.created:
                assert world.used(reply) == []
            world.use(reply)
            self.held[reply.lease.id] = reply
            if was_there and not reply.created:
                self.present.add(name)
            if reply.created and options["keep"]:
                self.unsure.discard(name)
                self.present.add(name)

        was_there = name in self.present
        self.present.discard(name)
        self.unsure.add(name)
        self._do(work)

    @precondition(lambda self: self.held)
    @rule(at=st.integers(0, 30))
    def release(self, at: int) -> None:
        reply = self.held.pop(self._nth_held(at))
        name = reply.partition.name
        if name not in self.present:
            self.unsure.add(name)

        async def work() -> None:
            try:
                await self.world.release(reply)
            except Fenced:
                return

        self._do(work)

    @precondition(lambda self: self.held)
    @rule(at=st.integers(0, 30))
    def take_within(self, at: int) -> None:
        reply = self.held[self._nth_held(at)]

        async def work() -> None:
            try:
                child = await self.world.acquire("", 1, parent=reply.lease.id, num_gcds=1)
            except PodwrightError:
                return
            self.world.use(child)

        self._do(work)

    @precondition(lambda self: self.held)
    @rule(at=st.integers(0, 30))
    def renew(self, at: int) -> None:
        key = self._nth_held(at)

        async def work() -> None:
            try:
                await self.world.controller.renew(ROOT, claim(self.held[key]))
            except Fenced:
                del self.held[key]

        self._do(work)

    @rule(name=NAMES, force=st.booleans())
    def remove(self, name: str, force: bool) -> None:
        async def work() -> None:
            try:
                await self.world.remove(name, force=force)
            except PodwrightError:
                if was_there:
                    assert name in await self.world.names()
                    self.present.add(name)
                return
            assert name not in await self.world.names()

        was_there = name in self.present
        self.present.discard(name)
        self.unsure.add(name)
        self._do(work)

    @rule(name=NAMES, force=st.booleans(), caller=CALLERS)
    def reset(self, name: str, force: bool, caller: Caller) -> None:
        async def work() -> None:
            try:
                await self.world.reset(name, force=force, caller=caller)
            except PodwrightError:
                return

        self._do(work)

    @rule(
        name=st.sampled_from(WAITERS),
        size=SIZES,
        duration=st.sampled_from([0.0, 3.0, 30.0]),
        priority=st.sampled_from([-1, 0, 0, 1]),
    )
    def join(self, name: str, size: int, duration: float, priority: int) -> None:
        async def work() -> None:
            wanted = CreateRequest(spec=PartitionSpec(name=name, size=size), duration=duration)
            request = WaitRequest(create=wanted, priority=priority)
            try:
                reply = await self.world.controller.wait(ROOT, request)
            except PodwrightError:
                return
            self.waiters[name] = reply.waiter.id

        self._do(work)

    @precondition(lambda self: self.waiters)
    @rule(at=st.integers(0, 5), leave=st.booleans())
    def ask_or_leave(self, at: int, leave: bool) -> None:
        name = sorted(self.waiters)[at % len(self.waiters)]
        waiter = self.waiters[name]

        async def work() -> None:
            controller = self.world.controller
            try:
                if leave:
                    await controller.leave(ROOT, WaiterName(id=waiter))
                else:
                    await controller.wait(ROOT, WaitRequest(id=waiter))
            except PodwrightError:
                self.waiters.pop(name, None)

        self._do(work)

    # -- the world ---------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.3, 1.0, 5.0, 30.0]))
    def wait(self, seconds: float) -> None:
        async def work() -> None:
            await self.world.time.advance(seconds)

        self._do(work)

    @rule(error=st.sampled_from([-1e6, 0.0, 1e6]))
    def wall_clock_jumps(self, error: float) -> None:
        self.world.time.wall_error = error

    @rule(name=MACHINES, kind=KINDS, count=st.integers(1, 3), fault=st.sampled_from(Fault))
    def machine_fails(self, name: str, kind: str, count: int, fault: Fault) -> None:
        self.world.machines[name].fail_next(kind, count, fault)

    @rule(name=MACHINES, down=st.booleans())
    def machine_down(self, name: str, down: bool) -> None:
        self.world.machines[name].set_down(down)

    @rule()
    def machines_heal(self) -> None:
        for machine in self.world.machines.values():
            machine.heal()

    @rule(at=st.integers(1, 6), after=st.booleans())
    def die_soon(self, at: int, after: bool) -> None:
        self.world.trigger.at = self.world.trigger.count + at
        self.world.trigger.after = after

    @rule(name=st.none() | MACHINES, killed_at=st.integers(0, 4))
    def restart(self, name: str | None, killed_at: int) -> None:
        async def body() -> None:
            await self.world.kill()
            if name is not None:
                self.world.machines[name].power_cycle()
            if killed_at:
                self.world.kill_start_at = killed_at
                if await self.world.until_killed(self.world.start):
                    return
            await self.world.start()

        self.loop.run_until_complete(body())

    @rule()
    def stop_and_start(self) -> None:
        async def body() -> None:
            await self.world.until_killed(self.world.stop)
            await self.world.start()

        self.loop.run_until_complete(body())

    async def _at_rest(self) -> bool:
        """Let everything under way end. Returns False when that killed the controller."""
        await asyncio.sleep(0)
        while self.world.controller._state.tasks:
            await asyncio.wait(self.world.controller._state.tasks, timeout=0.05)
            if self.world.trigger.dead:
                return False
        return not self.world.trigger.dead

    # -- what always holds -------------------------------------------------------------------

    @invariant()
    def all_is_well(self) -> None:
        async def body() -> None:
            world = self.world
            Life.steps += 1
            while not await self._at_rest():
                Life.restarts += 1
                await world.kill()
                await world.start()
            await world.check()
            names = set(await world.names())
            assert self.present <= names, (self.present, names)
            assert names <= self.present | self.unsure | set(WAITERS), (
                names,
                self.present,
                self.unsure,
            )
            self.unsure &= names

        self.loop.run_until_complete(body())


@pytest.mark.more
@pytest.mark.timeout(0 if SOAK else 600)
def test_random_lives_of_a_pod_keep_every_invariant() -> None:
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=3000 if SOAK else 40,
            stateful_step_count=50 if SOAK else 30,
        ),
    )
    print(f"\n{Life.steps} steps, {Life.restarts} restarts after a kill on the way")
    assert Life.steps >= (ENOUGH if SOAK else 1)
