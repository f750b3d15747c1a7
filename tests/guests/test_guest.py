"""A guest that is not Slurm: its jobs have a namespace and a name, and it has no restarts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from podwright.errors import Unavailable
from podwright.guests.shared import (
    HELD,
    Book,
    Freed,
    Guest,
    Holding,
    Locks,
    Room,
    Waits,
    attempts,
    failed,
    sweep,
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


class Cluster:
    """The guest. running: its jobs; silent: its scheduler does not answer."""

    def __init__(self, server: FakePod) -> None:
        self.server = server
        self.running: set[Key] = set()
        self.silent = False

    async def jobs(self) -> Mapping[Key, bool]:
        if self.silent:
            raise Unavailable("no answer")
        return dict.fromkeys(self.running, True)

    def in_progress(self) -> Collection[Key]:
        return ()

    def is_over(
        self, holding: Claim, jobs: Mapping[Key, bool], in_progress: Collection[Key]
    ) -> bool:
        return holding.created and holding.job not in jobs

    async def give_back(self, book: Claims, holding: Claim) -> None:
        await self.server.remove(holding.name, holding.words)
        book.release(holding.job)


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
    pod.places = []
    return pod


@pytest.fixture
async def book(server: FakePod) -> Claims:
    made = Claims("pod8")
    await made.refresh(server)
    return made


async def test_a_guests_jobs_hold_blocks_and_a_new_life_finds_them(
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


async def test_the_sweep_ends_what_jobs_hold_that_are_over(server: FakePod, book: Claims) -> None:
    guest: Guest[Key, bool, Claim] = Cluster(server)
    assert isinstance(guest, Cluster)
    await _start(book, server, A, 2)
    await _start(book, server, B, 2)
    guest.running = {B}
    guest.silent = True
    with pytest.raises(Unavailable):
        await sweep(guest, {"pod8": book}, Locks[Key]())
    assert set(book.holdings) == {A, B}  # nothing is touched while nobody says who lives
    guest.silent = False
    jobs, ended = await sweep(guest, {"pod8": book}, Locks[Key]())
    assert (set(jobs), ended, set(book.holdings)) == ({B}, 1, {B})
    assert list(server.made) == ["k.lab.b"]


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


def test_attempts_stand_in_words() -> None:
    first = failed(0, 3, "no devices", "kubectl resume c")
    assert first == ("try 1 of 3 failed: no devices", False)
    assert attempts(first.words) == 1
    last = failed(2, 3, "no devices", "kubectl resume c")
    assert last.hold
    assert last.words.endswith(f"{HELD}, kubectl resume c")
    assert failed(0, 3, "never", "delete it", final=True).words == f"never {HELD}, delete it"
    assert attempts("waits for devices") == 0


async def test_who_waits_looks_again_when_something_is_freed() -> None:
    freed = Freed()
    await freed.wait(0.01)
    import asyncio

    waiting = asyncio.create_task(freed.wait(600))
    await asyncio.sleep(0)
    while not waiting.done():
        await freed.notify()
        await asyncio.sleep(0)
