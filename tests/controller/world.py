"""A pod, a store and a clock that outlive their controllers, and the invariants of all three.

Killing a controller here is as close to `kill -9` as one process gets: nothing that it does
afterwards reaches the store or the machines.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any

from podwright.agents import Driver, FabricDriver, FabricSite, MachineReport, SimulatedMachine
from podwright.controller import Caller, Controller, Machines, Role
from podwright.errors import Unavailable
from podwright.fabric import Cluster, preset
from podwright.store import Change, History, MemoryStore, Opened, Snapshot
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    CreateRequest,
    LeaseRequest,
    ListRequest,
    OperationState,
    PartitionInfo,
    PartitionName,
    PartitionSpec,
    ReadyState,
    RemoveRequest,
    ResetRequest,
    joined,
    next_page,
)

ROOT = Caller("root", 0, Role.ADMINISTRATOR)
ALICE = Caller("alice", 1001, Role.USER)
BOB = Caller("bob", 1002, Role.USER)
NOBODY = Caller("anonymous", None, Role.READER, "tcp")
ALL = ListRequest()


class Time:
    """A clock that advances only on request, and wakes its sleepers then."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.wall_error = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + self.wall_error

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, future))
        await future

    async def advance(self, seconds: float) -> None:
        """Let time pass in steps of a quarter second, and let everything that wakes run to
        its end.
        """
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.25)
            due = [f for at, f in self._sleepers if at <= self.now]
            self._sleepers = [(at, f) for at, f in self._sleepers if at > self.now]
            for future in due:
                if not future.done():
                    future.set_result(None)
            for _ in range(4):
                await asyncio.sleep(0)


class _Waiting(selectors.DefaultSelector):
    """A selector that advances the clock instead of waiting."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "everybody waits for something that cannot come"
        self.passed += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose timeouts take no time and always end in the same order."""

    def __init__(self) -> None:
        self._waiting = _Waiting()
        super().__init__(self._waiting)

    def time(self) -> float:
        return self._waiting.passed

    def close(self) -> None:
        """End everything under way, as a runner does.

        A task that is left alone would be found, and reported, in the middle of a later test.
        """
        left = () if self.is_closed() else asyncio.all_tasks(self)
        for task in left:
            task.cancel()
        if left:
            self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        super().close()


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on a VirtualLoop, so that the machine's load does not affect it."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        loop = VirtualLoop()
        try:
            loop.run_until_complete(test(*arguments, **named))
        finally:
            loop.close()

    return run


class Trigger:
    """Counts a controller's outward acts, and kills it at one of them."""

    def __init__(self) -> None:
        self.fired = asyncio.Event()
        self.renew(0)

    def renew(self, at: int) -> None:
        """Prepare for the next controller."""
        self.count = 0
        self.at = at
        self.after = False
        self.dead = False
        self.fired.clear()

    async def pass_through(self, work: Callable[[], Awaitable[Any]]) -> Any:
        if self.dead:
            await asyncio.Event().wait()
        self.count += 1
        if self.count != self.at:
            return await work()
        if self.after:
            await work()
        self.dead = True
        self.fired.set()
        return await asyncio.Event().wait()


class KillingStore:
    """A store whose nth commit is the last thing that the controller ever does."""

    def __init__(self, inner: MemoryStore, trigger: Trigger) -> None:
        self._inner = inner
        self._trigger = trigger

    async def open(self) -> Opened:
        return await self._inner.open()

    async def commit(self, changes: Sequence[Change]) -> None:
        group = list(changes)
        await self._trigger.pass_through(lambda: self._inner.commit(group))

    async def read(self) -> Snapshot:
        return await self._inner.read()

    async def peek(self) -> Snapshot:
        return await self._inner.peek()

    async def replace(self, records: Mapping[tuple[str, str], bytes], *, epoch: int) -> None:
        await self._inner.replace(records, epoch=epoch)

    def now(self) -> float:
        return self._inner.now()

    def wall(self) -> float:
        return self._inner.wall()

    def history(self) -> History:
        return self._inner.history()

    async def close(self) -> None:
        await self._inner.close()

    @property
    def commits(self) -> int:
        return self._inner.commits


class KillingDriver:
    """A driver whose nth call is the last thing that the controller ever does."""

    def __init__(self, inner: SimulatedMachine, trigger: Trigger) -> None:
        self._inner = inner
        self._trigger = trigger

    async def describe(self) -> MachineReport:
        return await self._inner.describe()

    async def configure(self, partition: str, epoch: int, devices: Sequence[int]) -> None:
        await self._trigger.pass_through(lambda: self._inner.configure(partition, epoch, devices))

    async def reset(self, epoch: int, devices: Sequence[int]) -> None:
        await self._trigger.pass_through(lambda: self._inner.reset(epoch, devices))

    async def fence(self, epoch: int, devices: Sequence[int], run: str) -> None:
        await self._trigger.pass_through(lambda: self._inner.fence(epoch, devices, run))

    async def release(self, epoch: int, devices: Sequence[int]) -> None:
        await self._trigger.pass_through(lambda: self._inner.release(epoch, devices))


class World:
    """Everything around a controller."""

    def __init__(
        self,
        clusters: Sequence[Cluster] = (),
        *,
        allocations: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
        make_fabric: Callable[[FabricSite], FabricDriver] | None = None,
        driver_timeout: float = 30.0,
    ) -> None:
        self.time = Time()
        self.clusters = list(clusters) or [preset("pod16")]
        self.allocations = allocations
        self.driver_timeout = driver_timeout
        self.make_fabric = make_fabric
        self.machines = {
            m.name: SimulatedMachine(m, c.family, max_kept_calls=1000, sleep=self.time.sleep)
            for c in self.clusters
            for d in c.domains
            for m in d.machines
        }
        self.store = MemoryStore(wall=self.time.wall, monotonic=self.time.monotonic)
        self.trigger = Trigger()
        self.controller: Controller
        self.running = False
        #: The outward act of the next start at which it dies; 0 for none.
        self.kill_start_at = 0

    async def start(self) -> Controller:
        """Start a controller over the present state."""
        self.trigger.renew(self.kill_start_at)
        self.kill_start_at = 0
        self.store = self.store.reopened()
        drivers: dict[str, Driver] = {
            name: KillingDriver(machine, self.trigger) for name, machine in self.machines.items()
        }
        self.controller = Controller(
            KillingStore(self.store, self.trigger),
            self.clusters,
            drivers,
            version="test",
            allocations=self.allocations,
            driver_timeout=self.driver_timeout,
            sleep=self.time.sleep,
            machines=Machines(starting=0.5, fabric=self.make_fabric),
        )
        await self.controller.start()
        self.running = True
        return self.controller

    async def stop(self) -> None:
        """End the controller in an orderly way."""
        if self.running:
            self.running = False
            await self.controller.close()

    async def kill(self) -> None:
        """Kill the controller as `kill -9` does: nothing under way continues."""
        self.running = False
        self.trigger.dead = True
        self.controller._state.journal.failure = Unavailable("killed")  # its timer begins nothing
        current = asyncio.current_task()
        tasks = [t for t in asyncio.all_tasks() if t is not current]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(BaseException):
                await task

    async def restart(self) -> Controller:
        """Kill the controller, then start a new one."""
        await self.kill()
        return await self.start()

    async def until_killed(self, work: Callable[[], Awaitable[Any]]) -> bool:
        """Run something until it ends or the trigger kills the controller. Returns True if it
        ended.

        Both may happen at once: an act that the controller does alone a moment later counts as
        well.
        """
        task = asyncio.ensure_future(work())
        dying = asyncio.ensure_future(self.trigger.fired.wait())
        await asyncio.wait({task, dying}, return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if task.done():
            task.result()
        if not self.trigger.dead:
            return True
        await self.kill()
        return False

    # -- calls -------------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        size: int = 4,
        *,
        caller: Caller = ROOT,
        wait: bool = True,
        **spec: Any,
    ) -> PartitionInfo:
        request = CreateRequest(spec=PartitionSpec(name=name, size=size, **spec), wait=wait)
        reply: PartitionInfo = await self.controller.create_partition(caller, request)
        return reply

    async def get(self, name: str) -> PartitionInfo:
        reply: PartitionInfo = await self.controller.get_partition(ROOT, PartitionName(name=name))
        return reply

    async def remove(self, name: str, *, caller: Caller = ROOT, force: bool = False) -> None:
        await self.controller.remove_partition(caller, RemoveRequest(name=name, force=force))

    async def reset(
        self, name: str, *, caller: Caller = ROOT, force: bool = False
    ) -> PartitionInfo:
        reply: PartitionInfo = await self.controller.reset_partition(
            caller, ResetRequest(name=name, force=force)
        )
        return reply

    async def acquire(
        self,
        name: str = "",
        size: int = 4,
        *,
        caller: Caller = ROOT,
        create: bool = False,
        update: bool = False,
        keep: bool = False,
        reset: bool | None = None,
        holder: str = "",
        ttl: float = 10.0,
        parent: str = "",
        **spec: Any,
    ) -> AcquireReply:
        request = AcquireRequest(
            spec=PartitionSpec(name=name, size=size, **spec),
            create=create,
            update=update,
            keep=keep,
            reset=reset,
            holder=holder,
            ttl=ttl,
            parent=parent,
        )
        reply: AcquireReply = await self.controller.acquire(caller, request)
        return reply

    async def release(self, reply: AcquireReply, *, caller: Caller = ROOT) -> None:
        await self.controller.release(caller, claim(reply))

    async def names(self) -> list[str]:
        found = await self.controller.list_partitions(ROOT, ALL)
        return [p.name for p in found.partitions]

    # -- what devices are like ---------------------------------------------------------------

    def use(self, reply: AcquireReply) -> None:
        """Let the holder of a lease run a program on everything that it covers."""
        for machine, index in self.covered(reply):
            self.machines[machine].use(reply.lease.epoch, [index])

    def covered(self, reply: AcquireReply) -> list[tuple[str, int]]:
        """Return the devices that a lease covers."""
        flat = [ref for gcd in reply.partition.gcds for ref in gcd]
        chosen = [flat[i] for i in reply.lease.devices] if reply.lease.devices else flat
        return [(ref.machine, ref.index) for ref in chosen]

    def used(self, reply: AcquireReply) -> list[str]:
        """Return whose traces there are on the devices of a lease."""
        return [u for m, i in self.covered(reply) if (u := self.machines[m].devices[i].used_by)]

    async def every(self, method: str) -> Any:
        """Return all pages of a list as one."""
        request: ListRequest | None = ALL
        pages = []
        while request is not None:
            pages.append(await getattr(self.controller, method)(ROOT, request))
            request = next_page(request, pages[-1])
        return joined(pages)

    async def check(self) -> None:
        """Check the invariants that hold whenever no step is under way."""
        assert [v for m in self.machines.values() for v in m.violations] == []
        found = (await self.every("list_partitions")).partitions
        holder: dict[tuple[str, int], PartitionInfo] = {}
        for partition in found:
            assert partition.operation_state in (
                OperationState.IDLE,
                OperationState.FAILED,
                OperationState.FENCING,
            )
            assert (partition.ready_state is ReadyState.ERROR) == bool(partition.errors)
            assert sum(len(gcd) for gcd in partition.gcds) == partition.size
            for ref in (ref for gcd in partition.gcds for ref in gcd):
                assert (ref.machine, ref.index) not in holder
                holder[ref.machine, ref.index] = partition
            _check_leases(partition)
        states = {
            (d.device.machine, d.device.index): d
            for d in (await self.every("list_devices")).devices
        }
        for machine in self.machines.values():
            for index, device in enumerate(machine.devices):
                place = (machine.machine.name, index)
                owner = holder.get(place)
                assert states[place].partition == (owner.name if owner else "")
                if owner is not None and owner.ready_state is ReadyState.ACTIVE:
                    assert device.partition == owner.name
                elif owner is not None:
                    assert device.partition in ("", owner.name)
                elif device.partition:
                    assert states[place].state in ("RESETTING", "DOWN"), place
        free = sum(c.free for c in (await self.controller.list_clusters(ROOT, ALL)).clusters)
        assert free == sum(1 for d in states.values() if d.state == "FREE")


def _check_leases(partition: PartitionInfo) -> None:
    by_id = {lease.id: lease for lease in partition.leases}
    taken: set[int] = set()
    for lease in partition.leases:
        devices = set(lease.devices) or set(range(partition.size))
        if lease.parent and lease.state == "HELD":
            parent = by_id[lease.parent]
            assert devices <= (set(parent.devices) or set(range(partition.size)))
        elif not lease.parent:
            assert not devices & taken
            taken |= devices


def claim(reply: AcquireReply) -> LeaseRequest:
    """Return the lease as its holder shows it."""
    return LeaseRequest(id=reply.lease.id, epoch=reply.lease.epoch)
