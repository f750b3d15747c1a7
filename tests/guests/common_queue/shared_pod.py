"""A pod in virtual time that several guests and people use, with a record of who got what when.

The controller, the books, the room and the calls between them are the real ones. A guest here is a
scheduler as small as one can be: it starts its jobs in their order, and any that fit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from podwright.controller import Caller, Role
from podwright.errors import NoCapacity, NotFound
from podwright.fabric import preset
from podwright.guests.shared import Book, Holding, Room, Waits
from podwright.wire import (
    CreateRequest,
    DeviceInfo,
    EnqueueReply,
    EnqueueRequest,
    JobInfo,
    ListRequest,
    PartitionInfo,
    PartitionSpec,
    RemoveRequest,
    WaitRequest,
)
from tests.controller.world import BOB, ROOT, World

SCHEDULER = Caller("schedulers", 990, Role.SCHEDULER)
ROOM_S = 60.0  #: seconds that a guest's first job waits before it asks for room
TICK_S = 2.0  #: seconds between two looks of a guest


@dataclass
class Job:
    """A job. size: devices. seconds: how long it runs. due: when it is submitted."""

    name: str
    size: int
    seconds: float
    due: float = 0.0
    started: float = -1.0
    ended: float = -1.0

    @property
    def order(self) -> int:
        return self.size.bit_length() - 1


@dataclass(slots=True, kw_only=True)
class Claim(Holding[str]):
    """What a job holds."""

    @property
    def name(self) -> str:
        return self.job

    @property
    def words(self) -> str:
        return f"job {self.job}"


class Claims(Book[str, Claim]):
    """A guest's book."""

    def __init__(self, guest: str) -> None:
        super().__init__("pod64")
        self._guest = guest

    def job_of(self, partition: str) -> str | None:
        return partition if partition.startswith(f"{self._guest}-") else None

    def adopted(self, info: PartitionInfo, start: int, order: int) -> Claim | None:
        return Claim(job=info.name, start=start, order=order, created=True)


class Connection:
    """The real controller as a guest calls it."""

    def __init__(self, world: World, guest: str) -> None:
        self._world, self.guest = world, guest

    async def devices(self, cluster: str, allocation: str) -> list[DeviceInfo]:
        return await self._all("list_devices", "devices")

    async def partitions(self, cluster: str, allocation: str) -> list[PartitionInfo]:
        return await self._all("list_partitions", "partitions")

    async def _all(self, call: str, field_name: str) -> list[Any]:
        out: list[Any] = []
        token = ""
        while True:
            request = ListRequest(page_token=token)
            reply = await getattr(self._world.controller, call)(SCHEDULER, request)
            out += getattr(reply, field_name)
            token = reply.next_page_token
            if not token:
                return out

    async def create(self, spec: PartitionSpec, uid: int, user: str, job: str) -> PartitionInfo:
        request = CreateRequest(spec=spec, owner=user, owner_uid=uid, job=job, guest=self.guest)
        reply: PartitionInfo = await self._world.controller.create_partition(SCHEDULER, request)
        return reply

    async def remove(self, name: str, job: str) -> None:
        request = RemoveRequest(name=name, job=job, force=True)
        with suppress(NotFound):
            await self._world.controller.remove_partition(SCHEDULER, request)

    async def relocate(self, name: str) -> None:
        raise AssertionError

    async def enqueue(self, request: EnqueueRequest) -> EnqueueReply:
        request = EnqueueRequest(guest=self.guest, pools=request.pools, end_times=request.end_times)
        reply: EnqueueReply = await self._world.controller.enqueue(SCHEDULER, request)
        return reply

    async def report(self, jobs: list[JobInfo]) -> None:
        raise AssertionError


class User:
    """Somebody who has jobs on the pod."""

    def __init__(self, pod: SharedPod, name: str, jobs: Iterable[Job]) -> None:
        self.pod, self.name = pod, name
        self.jobs = list(jobs)
        self.refused = 0
        #: It does nothing until then.
        self.stopped_until = 0.0
        self.looks_at = 0.0

    @property
    def waiting(self) -> list[Job]:
        now = self.pod.now
        return [job for job in self.jobs if job.due <= now and job.started < 0]

    async def tick(self) -> None:
        """Look once."""
        raise NotImplementedError

    def revive(self, partitions: Collection[str]) -> None:
        """Begin again after a kill in the middle of anything. partitions: what there is."""
        for job in self.jobs:
            if job.name in partitions and job.started < 0:
                job.started = self.pod.now
            elif job.name not in partitions and job.started >= 0 > job.ended:
                job.ended = self.pod.now

    def had(self) -> float:
        """The device-seconds that its jobs have had so far."""
        now = self.pod.now
        return sum(
            job.size * (min(now, job.started + job.seconds) - job.started)
            for job in self.jobs
            if job.started >= 0
        )

    def ended(self) -> list[Job]:
        """The jobs that are over and still hold devices."""
        now = self.pod.now
        return [j for j in self.jobs if 0 <= j.started <= now - j.seconds and j.ended < 0]


class Guest(User):
    """A scheduler with jobs in their order."""

    def __init__(self, pod: SharedPod, name: str, jobs: Iterable[Job]) -> None:
        super().__init__(pod, name, jobs)
        self.server = Connection(pod.world, name)
        self.revive(())

    def revive(self, partitions: Collection[str]) -> None:
        super().revive(partitions)
        self.book = Claims(self.name)
        clock = self.pod.world.time.monotonic
        self.room: Room[str] = Room({"pod64": self.book}, ROOM_S, clock, lambda: None)

    async def tick(self) -> None:
        for job in self.ended():
            await self.server.remove(job.name, f"job {job.name}")
            job.ended = self.pod.now
            self.book.release(job.name)
        await self.book.refresh(self.server)
        await self.room.exchange({"pod64": self.server})
        waiting = self.waiting
        count = len(waiting)
        waits = [
            Waits(count - place, job.name, {"pod64": [job.order]})
            for place, job in enumerate(waiting)
        ]
        end_times = dict.fromkeys([job.name for job in self.jobs if job.ended < 0], "")
        self.room.update(waits, end_times)
        for job in waiting:
            if self.book.find(job.order) is not None:
                await self._start(job)

    async def _start(self, job: Job) -> None:
        start = self.book.find(job.order)
        assert start is not None
        holding = self.book.add(Claim(job=job.name, start=start, order=job.order))
        devices = self.book.line.devices(start, job.order)
        spec = PartitionSpec(name=job.name, cluster="pod64", devices=devices)
        try:
            await self.server.create(spec, 1001, "alice", f"job {job.name}")
        except NoCapacity:
            self.refused += 1
            self.book.release(job.name)
            return
        holding.created = True
        job.started = self.pod.now


class People(User):
    """People who type `vipu create --wait`, each for himself."""

    def __init__(self, pod: SharedPod, name: str, jobs: Iterable[Job]) -> None:
        super().__init__(pod, name, jobs)
        self._ids: dict[str, str] = {}

    async def tick(self) -> None:
        controller = self.pod.world.controller
        for job in self.ended():
            with suppress(NotFound):  # a kill came in the middle, and the next server went on
                await controller.remove_partition(BOB, RemoveRequest(name=job.name))
            job.ended = self.pod.now
        for job in self.waiting:
            if job.name in self._ids:
                request = WaitRequest(id=self._ids[job.name], timeout=0.0)
            else:
                spec = PartitionSpec(name=job.name, size=job.size, cluster="pod64")
                request = WaitRequest(create=CreateRequest(spec=spec), timeout=0.0)
            try:
                reply = await controller.wait(BOB, request)
            except NotFound:  # a kill came before the server had written the waiter down
                self._ids.pop(job.name, None)
                continue
            self._ids[job.name] = reply.waiter.id
            if reply.partition is not None:
                job.started = self.pod.now


@dataclass
class Kept:
    """A place that was kept for a job of `user`. since: when. beside: the jobs that ran there."""

    since: float
    beside: list[Job]
    user: User

    @property
    def until(self) -> float:
        """When the last of them had to end. The user's own jobs count that were started before the
        user learned of the place."""
        known = self.since + 2 * TICK_S
        own = [job for job in self.user.jobs if self.since <= job.started <= known]
        return max([self.since, *(job.started + job.seconds for job in [*self.beside, *own])])


class SharedPod:
    """A POD64 with its users, in virtual time."""

    def __init__(self) -> None:
        self.world = World([preset("pod64")])
        self.users: list[User] = []
        self._random = Random(1)
        #: By job: the first place that was kept for it.
        self.kept: dict[str, Kept] = {}
        self.used = 0.0  #: device-seconds
        self.cut_off: list[asyncio.Task[None]] = []  #: the looks that the last kill ended

    @property
    def now(self) -> float:
        return self.world.time.now - 1_000_000.0

    async def run(self, seconds: float) -> None:
        """Let time pass. Everybody looks every TICK_S seconds on average, at random moments: looks
        in a fixed order would always let the same user be first."""
        end = self.now + seconds
        looks: dict[str, asyncio.Task[None]] = {}
        while self.now < end:
            await self.world.time.advance(1.0)
            for user in self._random.sample(self.users, len(self.users)):
                before = looks.get(user.name)
                if self.now < user.stopped_until:
                    continue
                if self.now >= user.looks_at and (before is None or before.done()):
                    user.looks_at = self.now + self._random.uniform(0.5, 1.5) * TICK_S
                    if before is not None:
                        before.result()
                    looks[user.name] = asyncio.ensure_future(user.tick())
            for _ in range(5000):
                if all(task.done() for task in looks.values()):
                    break
                await asyncio.sleep(0)
            self._look()
        for task in looks.values():
            await task

    async def kill(self, steps: int) -> None:
        """Kill the server and all users at once, in the middle of a look, and start them again.

        steps: of the event loop, from the beginning of the look.
        """
        self.cut_off = [asyncio.ensure_future(user.tick()) for user in self.users]
        for _ in range(steps):
            await asyncio.sleep(0)
        controller = await self.world.restart()
        reply = await controller.list_partitions(ROOT, ListRequest())
        for user in self.users:
            user.revive({info.name for info in reply.partitions})

    def _look(self) -> None:
        jobs = {job.name: job for user in self.users for job in user.jobs}
        users = {user.name: user for user in self.users}
        state = self.world.controller._state
        for reservation in state.reservations.values():
            name = reservation.waiter.removeprefix("job ").partition(" of ")[0]
            if name in jobs and name not in self.kept and reservation.planned_at:
                beside = [jobs[other] for other in reservation.goal.partitions]
                user = users.get(name.rpartition("-")[0])
                if user is not None:  # and no waiter of the server's own queue
                    self.kept[name] = Kept(self.now, beside, user)
        self.used += sum(record.size for record in state.partitions.records())
