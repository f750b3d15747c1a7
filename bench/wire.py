"""Durable create-and-remove pairs over the wire, beside what disk and wire can do at most.

A server as its own process, its store on a real disk; the clients share this process. A pair is
CreatePartition, answered once its intent is durable, and RemovePartition, answered once done.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import msgspec

from bench import Figures, figure
from podwright import wire
from podwright.client import Client, UnixTransport
from podwright.wire import virm

SECONDS = 4.0
WARM_UP = 0.5
PRESET = "pod256"
#: Front and clients -> pairs a second at least; with the last, 99 pairs of 100 within P99 seconds.
LIMITS = {("grpc", 1): 100.0, ("grpc", 32): 350.0, ("unix", 1): 150.0, ("unix", 32): 1000.0}
P99 = 0.050

Pair = Callable[[str], Awaitable[None]]
_pb = virm.pb


def run() -> Figures:
    """All figures of the wire, one server for each so that they do not disturb one another."""
    folder = Path(tempfile.mkdtemp(prefix="podwright-bench-", dir=_disk()))
    try:
        yield figure("wire.raw_commits", _raw_commits(folder), "commits/s", settings="WAL, FULL")
        with _server(folder) as socket_path:
            client = Client(UnixTransport(str(socket_path)))
            for front, opened in (("grpc", _grpc_clients), ("unix", _unix_clients)):
                for count in (1, 32):
                    rate, p99, commits = asyncio.run(_pairs(client, socket_path, count, opened))
                    params: dict[str, Any] = {"front": front, "clients": count, "preset": PRESET}
                    limit = LIMITS[front, count]
                    yield figure("wire.pairs", rate, "pairs/s", limit=limit, **params)
                    yield figure("wire.pairs_p99", p99, "s", limit=P99, **params)
                    yield figure("wire.commits", commits, "commits/pair", **params)
                    empty = asyncio.run(_empty(client, socket_path, count, opened))
                    yield figure("wire.empty_calls", empty, "calls/s", **params)
    finally:
        shutil.rmtree(folder)


def _disk() -> str:
    """A folder that outlives a restart, so not one in memory."""
    return os.environ.get("PODWRIGHT_BENCH_DISK", "/var/tmp")


def _raw_commits(folder: Path) -> float:
    """One row a transaction, with the durability that the store promises."""
    db = sqlite3.connect(folder / "raw.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE t (k TEXT PRIMARY KEY, body BLOB) WITHOUT ROWID")
    body, count = b"x" * 500, 0
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < SECONDS / 2:
        db.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (str(count % 100), body))
        count += 1
    db.close()
    return count / passed


@contextmanager
def _server(folder: Path) -> Iterator[Path]:
    socket_path = folder / "s"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "podwright.cli.vipu_server", "--preset", PRESET),
            *("--storage", str(folder / "store.db"), "--socket", str(socket_path)),
            *("--api-port", "0"),
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while not socket_path.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server did not start")
            time.sleep(0.01)
        yield socket_path
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


class _Opened:
    """One client of either front: `pair` and `empty`, and how to let go."""

    def __init__(self, pair: Pair, empty: Pair, close: Callable[[], Awaitable[Any]]) -> None:
        self.pair, self.empty, self.close = pair, empty, close


Opener = Callable[[Path, int], Awaitable[_Opened]]


async def _grpc_clients(socket_path: Path, port: int) -> _Opened:
    options = (("grpc.use_local_subchannel_pool", 1),)  # a connection of its own
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options)

    def call(name: str) -> Any:
        method = virm.VIRM_METHODS[name]
        return channel.unary_unary(
            method.path, method.request.SerializeToString, method.reply.FromString
        )

    create, remove, version = call("CreatePartition"), call("RemovePartition"), call("GetVersion")

    async def pair(name: str) -> None:
        await create(_pb.CreatePartitionRequest(requirements={"id": name, "size": 1}))
        await remove(_pb.RemovePartitionRequest(partition_id=name))

    async def empty(_: str) -> None:
        await version(_pb.VersionRequest())

    return _Opened(pair, empty, channel.close)


async def _unix_clients(socket_path: Path, port: int) -> _Opened:
    reader, writer = await asyncio.open_unix_connection(str(socket_path))

    async def call(method: str, request: wire.Value) -> None:
        body = msgspec.json.encode(request)
        head = f"POST /podwright.v1/{method} HTTP/1.1\r\nHost: b\r\nContent-Length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        content = await reader.readexactly(length)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(content.decode())

    async def pair(name: str) -> None:
        spec = wire.PartitionSpec(name=name, size=1)
        await call("CreatePartition", wire.CreateRequest(spec=spec, wait=False))
        await call("RemovePartition", wire.RemoveRequest(name=name))

    async def empty(_: str) -> None:
        await call("GetServerInfo", wire.ServerInfoRequest())

    async def close() -> None:
        writer.close()

    return _Opened(pair, empty, close)


async def _pairs(
    client: Client, socket_path: Path, count: int, opener: Opener
) -> tuple[float, float, float]:
    """Pairs a second, the seconds within which 99 of 100 are done, and commits for each."""
    info = client.get_server_info()
    clients = [await opener(socket_path, info.port) for _ in range(count)]
    await _measure([c.pair for c in clients], WARM_UP)
    before = client.get_server_info().counters["commits"]
    times, passed = await _measure([c.pair for c in clients], SECONDS)
    done = len(times)
    commits = client.get_server_info().counters["commits"] - before
    for opened in clients:
        await opened.close()
    return done / passed, sorted(times)[done * 99 // 100], commits / done


async def _empty(client: Client, socket_path: Path, count: int, opener: Opener) -> float:
    info = client.get_server_info()
    clients = [await opener(socket_path, info.port) for _ in range(count)]
    await _measure([c.empty for c in clients], WARM_UP)
    times, passed = await _measure([c.empty for c in clients], SECONDS / 2)
    for opened in clients:
        await opened.close()
    return len(times) / passed


async def _measure(works: list[Pair], seconds: float) -> tuple[list[float], float]:
    """How long each piece of work took, done by all of them side by side, and all together."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def repeat(number: int, work: Pair) -> None:
        for turn in itertools.count():
            begun = time.perf_counter()
            if begun > end:
                return
            await work(f"b{number}-{turn}")
            times.append(time.perf_counter() - begun)

    start = time.perf_counter()
    await asyncio.gather(*(repeat(number, work) for number, work in enumerate(works)))
    return times, time.perf_counter() - start
