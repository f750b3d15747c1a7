"""A server keeps nothing of calls that are over: refused, malformed or carried out, on any door."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import grpc.aio
import msgspec

from podwright.agents import SimulatedMachine
from podwright.controller import Caller, Controller, Machines, Role
from podwright.controller.administration._audit import MAX_EVENTS
from podwright.fabric import preset
from podwright.server import ListenOptions, Server
from podwright.store import Delete, MemoryStore
from podwright.wire import (
    CreateRequest,
    ListRequest,
    PartitionName,
    PartitionSpec,
    RemoveRequest,
    WaiterName,
    messages,
)
from tests.whole.hostile import Hand

CLUSTER = preset("pod16")
ROOT = Caller("root", 0, Role.ADMINISTRATOR)
ALL = ListRequest()
ROUNDS = 4
CALLS = 100  #: of each kind in a round
#: One object left behind by each call of a single door would be twice as many.
LIMIT = ROUNDS * CALLS // 2
_HEAD = b"POST /podwright.v1/GetPartition HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"


@asynccontextmanager
async def _running(folder: Path) -> AsyncIterator[Server]:
    machines = {
        machine.name: SimulatedMachine(machine, CLUSTER.family)
        for domain in CLUSTER.domains
        for machine in domain.machines
    }
    running = Server(
        Controller(
            MemoryStore(), [CLUSTER], machines, version="test", machines=Machines(starting=0.1)
        ),
        ListenOptions(folder / "s", web=("127.0.0.1", 0)),
    )
    await running.start()
    try:
        yield running
    finally:
        await running.stop(1)


async def _stream(place: Path | int, parts: list[bytes]) -> None:
    if isinstance(place, Path):
        reader, writer = await asyncio.open_unix_connection(place)
    else:
        reader, writer = await asyncio.open_connection("127.0.0.1", place)
    with suppress(OSError):
        writer.write(b"".join(parts))
        await writer.drain()
        writer.write_eof()
        while await reader.read(1 << 16):
            pass
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def _round(server: Server, seed: int) -> None:
    """Return the same messages for the same seed: hostile ones, refused ones, and good ones."""
    assert server.socket_path is not None
    hand = Hand(seed)
    unknown = [PartitionName(name=f"unknown{number}") for number in range(CALLS)]
    asked = [msgspec.json.encode(request) for request in unknown]
    for _ in range(CALLS // 4):
        await _stream(server.socket_path, [hand.post() for _ in range(4)])
        await _stream(server.web_port, [hand.get()])
    await _stream(server.socket_path, [_HEAD % (len(body), body) for body in asked])
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        calls = [(*hand.grpc(), hand.metadata()) for _ in range(CALLS)]
        calls += [(messages.method_path("GetPartition"), messages.encode(r), ()) for r in unknown]
        for path, body, shown in calls:
            with suppress(grpc.aio.AioRpcError):
                await channel.unary_unary(path)(body, metadata=shown, timeout=60)
    for number in range(CALLS):
        spec = PartitionSpec(name=f"r{number}", size=4)
        await server.controller.create_partition(ROOT, CreateRequest(spec=spec))
        await server.controller.remove_partition(ROOT, RemoveRequest(name=spec.name))
    for waiter in (await server.controller.list_waiters(ROOT, ALL)).waiters:
        await server.controller.leave(ROOT, WaiterName(id=waiter.id))
    for info in (await server.controller.list_partitions(ROOT, ALL)).partitions:
        await server.controller.remove_partition(ROOT, RemoveRequest(name=info.name, force=True))


def _weigh() -> tuple[int, int]:
    """Count the collector's objects, and all pieces of memory."""
    for _ in range(3):
        gc.collect()
    return len(gc.get_objects()), sys.getallocatedblocks()


async def _growth(folder: Path) -> list[int]:
    """Return the growth from two rounds of calls to four, as `_weigh` counts."""
    async with _running(folder) as server:
        audit = server.controller._services.audit
        for _ in range(MAX_EVENTS):  # the history is kept, up to here: of each change two entries
            intent = audit.new_intent(ROOT, "CreatePartition", "p", ROOT.name)
            # As the commit of a change asks for it. The intent is stored, too: otherwise the store
            # would grow by one with each change of the rounds, until it has as many as events.
            for change in intent.added([Delete("nothing", "p")]):
                server.controller._state.journal.later(change)
            audit.record_event(
                ROOT, "CreatePartition", "p", detail="kept as an event", intent=intent
            )
        for _ in range(2):  # caches fill
            await _round(server, seed=3)
        # The history is pruned now and then, and holds a few more entries until then.
        audit._prune()
        await asyncio.sleep(0.1)
        before = _weigh()
        for _ in range(ROUNDS):
            await _round(server, seed=3)
        audit._prune()
        # What is still on its way out when a call has been answered has time to go.
        for _ in range(600):
            await asyncio.sleep(0.1)
            grown = [now - then for now, then in zip(_weigh(), before, strict=True)]
            if max(grown) < LIMIT:
                break
        return grown


def _measure(folder: Path) -> list[int]:
    return asyncio.run(_growth(folder))


def test_calls_leave_nothing_behind(folder: Path) -> None:
    """The server has a process of its own, where nothing else makes objects.

    A worker of pytest that has run thousands of tests has millions of objects, among them those of
    threads and servers of other tests, and one collection of its garbage takes a second.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        grown = pool.submit(_measure, folder).result()
    assert max(grown) < LIMIT, grown
