"""What the controller costs those who use it: an acquire, a large inventory, a long waiting line.

A server as its own process with its store on a real disk, and calls over its Unix socket, as local
commands make them.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import Figures, figure
from podwright.client import Client, UnixTransport
from podwright.wire import AcquireRequest, CreateRequest, PartitionSpec, WaitRequest

ACQUIRES = 200
PAIRS = 200
ROUNDS = 4
WAITERS = 1000
DOMAINS = 1563  #: of 64 devices: 100,032 in all
PARTITIONS = 10_000
CREATORS = 8


def run() -> Figures:
    """All figures of the controller."""
    folder = Path(tempfile.mkdtemp(prefix="podwright-bench-", dir=_disk()))
    try:
        with _server(folder, "--preset", "pod256") as (client, _):
            yield _acquire(client)
            yield from _waiters(client)
        large = folder / "large.toml"
        large.write_text(_large_cluster())
        with _server(folder, "--cluster-file", str(large)) as (client, process):
            yield from _inventory(client, process)
    finally:
        shutil.rmtree(folder)


def _acquire(client: Client) -> dict[str, object]:
    times = []
    for _ in range(ACQUIRES):
        request = AcquireRequest(spec=PartitionSpec(name="", size=16), create=True)
        start = time.perf_counter()
        reply = client.acquire(request)
        times.append(time.perf_counter() - start)
        client.release(reply.lease.id, reply.lease.epoch)
    middle = statistics.median(times)
    return figure("controller.acquire", middle, "s", limit=0.010, devices=256, size=16)


def _waiters(client: Client) -> Figures:
    """Pairs beside a line of waiters for whole link domains, each of which is partly taken."""
    taken = [PartitionSpec(name=f"t{n}", size=4, devices=_machine(n)) for n in range(4)]
    for spec in taken:
        client.create_partition(spec)
    alone, beside = [], []
    for _ in range(ROUNDS):  # by turns, and the best of each: the machine has other things to do
        alone.append(_pairs(client))
        for n in range(WAITERS):
            wanted = CreateRequest(spec=PartitionSpec(name=f"w{n}", size=64))
            client.wait(WaitRequest(create=wanted))
        line = client.list_waiters()
        if len(line) != WAITERS:
            raise RuntimeError(f"{len(line)} wait, not {WAITERS}")
        beside.append(_pairs(client))
        for waiter in line:
            client.leave(waiter.id)
    for spec in taken:
        client.remove_partition(spec.name)
    yield figure("controller.pair_alone", min(alone), "s", waiters=0)
    yield figure("controller.pair_beside", min(beside), "s", waiters=WAITERS)
    cost = min(beside) / min(alone) - 1
    yield figure("controller.waiters_cost", cost, "of a pair", limit=0.10, waiters=WAITERS)


def _machine(domain: int) -> list[tuple[int, int]]:
    return [(domain, offset) for offset in range(4)]


def _pairs(client: Client) -> float:
    times = []
    for n in range(PAIRS):
        start = time.perf_counter()
        client.create_partition(PartitionSpec(name=f"p{n}", size=4))
        client.remove_partition(f"p{n}")
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _inventory(client: Client, process: subprocess.Popen[bytes]) -> Figures:
    path = client.where

    def create(first: int) -> None:
        with Client(UnixTransport(path)) as own:
            for n in range(first, PARTITIONS, CREATORS):
                own.create_partition(PartitionSpec(name=f"p{n:05}", size=8), wait=False)

    creators = [threading.Thread(target=create, args=(n,)) for n in range(CREATORS)]
    for creator in creators:
        creator.start()
    for creator in creators:
        creator.join()
    params = {"devices": DOMAINS * 64, "partitions": PARTITIONS}
    middle = _median(5, lambda: len(client.list_partitions()))
    found = len(client.list_partitions(cluster="large"))
    if found != PARTITIONS:
        raise RuntimeError(f"{found} partitions, not {PARTITIONS}")
    yield figure("controller.list_partitions", middle, "s", limit=1.0, **params)
    yield figure("controller.memory", _memory(process.pid), "MB", limit=500.0, **params)


def _median(times: int, work: Callable[[], object]) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def _memory(pid: int) -> float:
    """The most that a process ever had in memory, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1000
    raise RuntimeError("the kernel does not say")


def _large_cluster() -> str:
    lines = ['name = "large"', 'family = "ipu"', 'topology = "looped"', "simulated = true"]
    for domain in range(DOMAINS):
        machines = ", ".join(f'"m{domain}-{n}"' for n in range(16))
        lines.append(f"[[link_domains]]\nmachines = [{machines}]")
    return "\n".join(lines) + "\n"


def _disk() -> str:
    """A folder that outlives a restart, so not one in memory."""
    return os.environ.get("PODWRIGHT_BENCH_DISK", "/var/tmp")


@contextmanager
def _server(folder: Path, *arguments: str) -> Iterator[tuple[Client, subprocess.Popen[bytes]]]:
    place = folder / "server"
    place.mkdir()
    socket_path = place / "s"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "podwright.cli.vipu_server", *arguments),
            *("--storage", str(place / "store.db"), "--socket", str(socket_path)),
            *("--api-port", "0"),
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 300
        client = Client(UnixTransport(str(socket_path)))
        while not socket_path.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server did not start")
            time.sleep(0.01)
        yield client, process
        client.close()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        shutil.rmtree(place)
