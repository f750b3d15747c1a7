"""A guest that is not Slurm: its jobs have a namespace and a name, and it has no restarts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from podwright.guests.shared import (
    Book,
    Freed,
    Holding,
    Room,
    Waits,
)
from podwright.wire import (
    DeviceInfo,
    DeviceRef,
    EnqueueReply,
    EnqueueRequest,
    GatewayRouting,
    JobInfo,
    KeptPlace,
    PartitionInfo,
    PartitionSpec,
    Routing,
    SyncType,
)


class Key(NamedTuple):
    """The key of a job of this guest."""

    namespace: str
    name: str


@dataclass(slots=True, kw_only=True)
class Claim(Holding[Key]):
    """The devices of one job."""

    @property
    def name(self) -> str:
        return f"k.{self.job.namespace}.{self.job.name}"

    @property
    def words(self) -> str:
        return f"{self.job.namespace}/{self.job.name}"


class Claims(Book[Key, Claim]):
    """The claims of all jobs."""

    def job_of(self, partition: str) -> Key | None:
        kind, _, rest = partition.partition(".")
        return Key(*rest.split(".")) if kind == "k" else None

    def adopted(self, info: PartitionInfo, start: int, order: int) -> Claim | None:
        key = self.job_of(info.name)
        if key is None or info.job != f"{key.namespace}/{key.name}":
            return None
        return Claim(job=key, start=start, order=order, created=True)


class Eight:
    """A server with eight devices."""

    guest = ""

    def __init__(self) -> None:
        self.made: dict[str, tuple[str, list[tuple[int, int]]]] = {}
        self.named: list[EnqueueRequest] = []
        self.places: list[KeptPlace] = []

    def keep(self, job: str, devices: Iterable[int]) -> None:
        """Keep a place for a job; none of it is offered."""
        kept = [(0, device) for device in devices]
        self.places = [KeptPlace(cluster="pod8", allocation="", job=job, devices=kept)]

    async def enqueue(self, request: EnqueueRequest) -> EnqueueReply:
        self.named.append(request)
        return EnqueueReply(sharing=True, places=self.places)

    async def devices(self, cluster: str, allocation: str) -> list[DeviceInfo]:
        of = {at: name for name, (_, devices) in self.made.items() for _, at in devices}
        return [
            DeviceInfo(
                cluster=cluster,
                device=DeviceRef(domain=0, offset=at),
                state="IN_USE" if at in of else "FREE",
                partition=of.get(at, ""),
            )
            for at in range(8)
        ]

    async def partitions(self, cluster: str, allocation: str) -> list[PartitionInfo]:
        return [
            PartitionInfo(
                name=name,
                cluster=cluster,
                allocation=allocation,
                size=len(devices),
                num_gcds=1,
                num_replicas=1,
                num_ilds=1,
                routing=Routing.DNC,
                gw_routing=GatewayRouting.DEFAULT,
                sync_type=SyncType.DEFAULT,
                job=job,
            )
            for name, (job, devices) in self.made.items()
        ]

    async def create(self, spec: PartitionSpec, uid: int, user: str, job: str) -> PartitionInfo:
        self.made[spec.name] = (job, spec.devices)
        return (await self.partitions("", ""))[-1]

    async def remove(self, name: str, job: str) -> None:
        if self.made.get(name, ("",))[0] == job:
            del self.made[name]

    async def relocate(self, name: str) -> None:
        raise AssertionError

    async def report(self, jobs: list[JobInfo]) -> None:
        raise AssertionError


async def _start(book: Claims, server: Eight, job: Key, order: int) -> bool:
    start = book.find(order)
    if start is None:
        return False
    claim = book.add(Claim(job=job, start=start, order=order))
    spec = PartitionSpec(name=claim.name, devices=book.line.devices(start, order))
    await server.create(spec, 5, "alice", claim.words)
    claim.created, claim.changed = True, book.tick()
    return True


A, B, C = (Key("lab", name) for name in "abc")


@pytest.fixture
def server() -> Eight:
    return Eight()


@pytest.fixture
async def book(server: Eight) -> Claims:
    made = Claims("pod8")
    await made.refresh(server)
    return made


async def test_a_guests_jobs_hold_blocks_and_its_next_process_finds_them(
    server: Eight, book: Claims
) -> None:
    assert await _start(book, server, A, 2)
    assert await _start(book, server, B, 2)
    assert not await _start(book, server, C, 0)
    later = Claims("pod8")
    await later.refresh(server)
    assert {job: one.bits for job, one in later.holdings.items()} == {A: 0x0F, B: 0xF0}
    later.release(A)
    assert later.find(2) == 0


async def test_a_place_is_closed_until_all_of_it_is_free(server: Eight, book: Claims) -> None:
    now, told = [0.0], []
    room: Room[Key] = Room({"pod8": book}, 60, lambda: now[0], lambda: told.append(now[0]))
    await _start(book, server, A, 1)
    await _start(book, server, B, 1)
    waits = [Waits(5, C, {"pod8": [3]})]
    for now[0] in (0, 60):
        room.update(waits, {A: "10:00", B: "11:00", C: ""})
        await room.exchange({"pod8": server})
        assert server.named[-1].pools[0].due == (now[0] == 60)
        assert not book.closed, "the server keeps nothing yet"
    server.keep("job " + str(C), range(8))
    await room.exchange({"pod8": server})
    assert (book.closed, book.closed_for, told) == (0xFF, C, [60])
    assert book.find(0) is None
    book.release(A)
    book.release(B)
    assert book.find(3) == 0


async def test_waiting_jobs_look_again_when_devices_are_given_back() -> None:
    freed = Freed()
    await freed.wait(0.01)
    import asyncio

    waiting = asyncio.create_task(freed.wait(600))
    await asyncio.sleep(0)
    while not waiting.done():
        await freed.notify()
        await asyncio.sleep(0)
