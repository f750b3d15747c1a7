"""The grant of a waiter is kept once its client has acknowledged it, and given back otherwise.

The server is killed in between, so the outcome depends on the store and not on memory. Time is
virtual.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from podwright.controller import Caller
from podwright.controller.state._records import WAITER
from podwright.errors import AlreadyExists, NotFound
from podwright.wire import (
    AcquireRequest,
    CreateRequest,
    LeaseRequest,
    PartitionName,
    RemoveRequest,
    WaiterName,
    WaitReply,
    WaitRequest,
)
from tests.controller.test_done_once import ID, MarkedPod
from tests.controller.test_full_disk import nothing, spec
from tests.controller.world import ALICE, ALL, BOB, ROOT


class Client:
    """Alice, who waits for a partition or a lease, and acknowledges it, or whose build is older."""

    def __init__(self, pod: MarkedPod, *, lease: bool, acknowledges: bool = True) -> None:
        self.pod, self.lease, self.acknowledges = pod, lease, acknowledges

    async def join(self) -> WaitReply:
        """Return the first answer. A repetition is the same call."""
        wanted = spec("p2", 16)
        request = WaitRequest(
            create=None if self.lease else CreateRequest(spec=wanted),
            acquire=AcquireRequest(spec=wanted, create=True, ttl=600.0) if self.lease else None,
            request_id=ID,
            acknowledges=self.acknowledges,
        )
        reply: WaitReply = await self.pod.ask("Wait", request, ALICE)
        self.id = reply.waiter.id
        await self.pod.quiet()
        return reply

    async def query(self) -> WaitReply:
        reply: WaitReply = await self.pod.ask("Wait", WaitRequest(id=self.id), ALICE)
        await self.pod.quiet()
        return reply

    async def given(self) -> bool:
        """Return whether the wanted partition exists, and the lease if there should be one."""
        leases = self.pod.controller._state.leases
        return bool(await _names(self.pod)) and bool(leases) is self.lease


async def _names(pod: MarkedPod) -> list[str]:
    return [
        partition.name for partition in (await pod.controller.list_partitions(ROOT, ALL)).partitions
    ]


async def _passes(pod: MarkedPod, seconds: float) -> None:
    await pod.time.advance(seconds)
    await pod.quiet()


@pytest.mark.parametrize("lease", [False, True])
def test_what_nobody_heard_of_is_given_back_after_a_restart(lease: bool) -> None:
    async def life() -> None:
        pod = await MarkedPod.made(nothing)
        client = Client(pod, lease=lease)
        await client.join()
        await pod.restarted()
        await _passes(pod, 44)
        assert await client.given()
        await _passes(pod, 3)
        assert await _names(pod) == []
        assert pod.controller._state.leases == {}
        assert not any(kind == WAITER for kind, _ in pod.written())
        with pytest.raises(NotFound, match="Join again"):
            await client.query()

    asyncio.run(life())


@pytest.mark.parametrize("lease", [False, True])
@pytest.mark.parametrize("how", ["second call", "the partition", "the lease"])
def test_what_is_acknowledged_stays_through_restarts(lease: bool, how: str) -> None:
    async def life() -> None:
        pod = await MarkedPod.made(nothing)
        client = Client(pod, lease=lease)
        await client.join()
        await pod.restarted()
        reply = await client.query()
        assert reply.partition is not None
        if how == "second call":
            assert (await client.query()).partition == reply.partition
        elif how == "the partition" or not lease:
            await pod.ask("GetPartition", PartitionName(name="p2"), ALICE)
        else:
            assert reply.lease is not None
            claim = LeaseRequest(id=reply.lease.id, epoch=reply.lease.epoch)
            await pod.ask("Renew", claim, ALICE)
        await pod.restarted()
        await _passes(pod, 120)
        assert await client.given()
        assert not any(kind == WAITER for kind, _ in pod.written()), "its record has gone"
        await pod.restarted()
        await _passes(pod, 120)
        assert await client.given()

    asyncio.run(life())


@pytest.mark.parametrize("caller", [BOB, ROOT])
def test_only_its_own_client_acknowledges(caller: Caller) -> None:
    async def life() -> None:
        pod = await MarkedPod.made(nothing)
        client = Client(pod, lease=False)
        await client.join()
        await pod.ask("GetPartition", PartitionName(name="p2"), caller)
        await _passes(pod, 50)
        assert await _names(pod) == []

    asyncio.run(life())


@pytest.mark.parametrize("lease", [False, True])
def test_an_older_client_acknowledges_by_the_answer(lease: bool) -> None:
    async def life() -> None:
        pod = await MarkedPod.made(nothing)
        client = Client(pod, lease=lease, acknowledges=False)
        await client.join()
        assert (await client.query()).partition is not None
        await pod.restarted()
        assert (await client.query()).partition is not None, "the answer got lost"
        await _passes(pod, 120)
        assert await client.given()

    asyncio.run(life())


@pytest.mark.parametrize("lease", [False, True])
def test_a_waiter_that_an_older_build_wrote_down_is_served(lease: bool) -> None:
    async def life() -> None:
        pod = await MarkedPod.made(nothing)
        client = Client(pod, lease=lease, acknowledges=False)
        await client.join()
        old = {"since": pod.time.now - 1, "names_given": False, "partition": "", "lease": ""}
        for at, body in list(pod.store._disk.records.items()):
            if at[0] == WAITER:
                fields = {**msgspec.json.decode(body), **old}
                pod.store._disk.records[at] = msgspec.json.encode(fields)
        await pod.restarted()
        if not lease:  # a lease's is put into the line again, as it always was
            assert (await client.query()).partition is not None
            await _passes(pod, 120)
            assert await client.given()

    asyncio.run(life())


def test_a_place_in_the_line_is_taken_once_and_kept_through_restarts() -> None:
    async def life() -> None:
        pod = await MarkedPod.made(nothing)
        await pod.create("p1", 16)
        client = Client(pod, lease=True)
        first = await client.join()
        assert (await client.join()).waiter.id == first.waiter.id
        await pod.restarted()
        assert (await client.join()).waiter.id == first.waiter.id
        assert len((await pod.controller.list_waiters(ROOT, ALL)).waiters) == 1
        await pod.ask("RemovePartition", RemoveRequest(name="p1"))
        await pod.quiet()
        assert (await client.join()).lease is not None
        assert len(pod.controller._state.leases) == 1

    asyncio.run(life())


def test_who_has_left_does_not_join_again_by_a_late_call() -> None:
    async def life() -> None:
        pod = await MarkedPod.made(nothing)
        await pod.create("p1", 16)
        client = Client(pod, lease=False)
        await client.join()
        await pod.ask("Leave", WaiterName(id=client.id, request_id="other"), ALICE)
        await pod.restarted()
        with pytest.raises(NotFound):
            await client.join()
        await pod.ask("Leave", WaiterName(id=client.id, request_id="other"), ALICE)
        with pytest.raises(NotFound):
            await pod.ask("Leave", WaiterName(id=client.id), ALICE)
        assert (await pod.controller.list_waiters(ROOT, ALL)).waiters == []

    asyncio.run(life())


def test_a_refusal_in_the_line_is_the_same_when_the_call_is_repeated() -> None:
    async def life() -> None:
        pod = await MarkedPod.made(nothing)
        await pod.create("p2", 4)
        client = Client(pod, lease=False)
        with pytest.raises(AlreadyExists):
            await client.join()
        await pod.ask("RemovePartition", RemoveRequest(name="p2"))
        with pytest.raises(AlreadyExists):
            await client.join()
        await pod.restarted()
        await client.join()  # a refusal is not remembered by the next server
        assert (await client.query()).partition is not None

    asyncio.run(life())


def test_a_partition_that_was_removed_before_its_waiter_heard_of_it_is_not_made_anew() -> None:
    async def life() -> None:
        pod = await MarkedPod.made(nothing)
        client = Client(pod, lease=False)
        await client.join()
        await pod.ask("RemovePartition", RemoveRequest(name="p2"))
        await pod.restarted()
        with pytest.raises(NotFound, match="removed since"):
            await client.query()
        assert await _names(pod) == []

    asyncio.run(life())
