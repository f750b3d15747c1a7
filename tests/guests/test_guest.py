"""A guest that is not Slurm: its jobs have a namespace and a name, and it has no restarts."""

from __future__ import annotations

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
from podwright.testing import FakePod
from podwright.wire import (
    PartitionInfo,
    PartitionSpec,
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


async def _start(book: Claims, server: FakePod, job: Key, order: int) -> bool:
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
def server() -> FakePod:
    pod = FakePod(8, "pod8")
    pod.sharing = True
    return pod


@pytest.fixture
async def book(server: FakePod) -> Claims:
    made = Claims("pod8")
    await made.refresh(server)
    return made


async def test_a_guests_jobs_hold_blocks_and_its_next_process_finds_them(
    server: FakePod, book: Claims
) -> None:
    assert await _start(book, server, A, 2)
    assert await _start(book, server, B, 2)
    assert not await _start(book, server, C, 0)
    later = Claims("pod8")
    await later.refresh(server)
    assert {job: one.bits for job, one in later.holdings.items()} == {A: 0x0F, B: 0xF0}
    later.release(A)
    assert later.find(2) == 0


async def test_a_place_is_closed_until_all_of_it_is_free(server: FakePod, book: Claims) -> None:
    now, told = [0.0], []
    room: Room[Key] = Room({"pod8": book}, 60, lambda: now[0], lambda: told.append(now[0]))
    await _start(book, server, A, 1)
    await _start(book, server, B, 1)
    waits = [Waits(5, C, {"pod8": [3]})]
    for now[0] in (0, 60):
        room.update(waits, {A: "10:00", B: "11:00", C: ""})
        await room.exchange({"pod8": server})
        assert server.requests[-1].pools[0].due == (now[0] == 60)
        assert not book.closed, "the server keeps nothing yet"
    server.keep("job " + str(C), 0, 8)
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
