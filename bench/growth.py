"""How large it may grow: many devices up, many partitions after a restart and a takeover, and
what a listing of all of them costs those who call meanwhile.

Servers as processes of their own with their store on a real disk. The takeover needs a database
that two servers share: PODWRIGHT_BENCH_POSTGRES=postgresql://user@host/database, an empty one.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import Figures, figure
from podwright.client import Client, UnixTransport
from podwright.errors import PodwrightError
from podwright.server._metrics import METRICS_MAX_AGE_S
from podwright.wire import PartitionSpec

DEVICES = 131_072
PARTITIONS, BEHIND = 10_000, 16_384  #: partitions, and the devices that they are on
CREATORS = 8
STARTS = 5
LISTINGS = 3
LISTED = ("list_partitions", "list_devices", "backup")
_CALL = (
    "import sys; from podwright.client import Client, UnixTransport;"
    "Client(UnixTransport(sys.argv[1]))"
)
_FETCH = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=60).read()"
#: Where a server says that its page is.
_PAGE = re.compile(r"on (http://127\.0\.0\.1:\d+/)")


def run() -> Figures:
    """All figures of growth."""
    folder = Path(tempfile.mkdtemp(prefix="podwright-bench-", dir=_disk()))
    try:
        many = _cluster_file(folder, DEVICES)
        ups, used = zip(*(_up_once(folder / f"up{n}", many) for n in range(STARTS)), strict=True)
        cpu = round(statistics.median(used), 2)
        yield figure("growth.up", statistics.median(ups), "s", limit=10.0, devices=DEVICES, cpu=cpu)
        yield from _many_partitions(folder)
        if place := os.environ.get("PODWRIGHT_BENCH_POSTGRES"):
            yield _takeover(folder, place)
    finally:
        shutil.rmtree(folder)


def _up_once(folder: Path, cluster: Path) -> tuple[float, float]:
    """Seconds until it has answered, and of processor time for that."""
    begun = time.perf_counter()
    with _server(folder, "--cluster-file", str(cluster)) as (_, process):
        return time.perf_counter() - begun, _cpu(process.pid)


def _cpu(pid: int) -> float:
    """Processor time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _many_partitions(folder: Path) -> Figures:
    cluster, home = _cluster_file(folder, BEHIND), folder / "many"
    with _server(home, "--cluster-file", str(cluster)) as (client, _):
        _fill(client)
    params = {"devices": BEHIND, "partitions": PARTITIONS}
    restarts, used = [], []
    for _ in range(STARTS):
        begun = time.perf_counter()
        with _server(home) as (client, process):
            restarts.append(time.perf_counter() - begun)
            used.append(_cpu(process.pid))
            _check(client)
    cpu = round(statistics.median(used), 2)
    middle = statistics.median(restarts)
    yield figure("growth.restart", middle, "s", limit=5.0, cpu=cpu, **params)
    with _server(home, "--http-port", "0") as (client, _):
        web = _PAGE.findall((home / "log").read_text())[-1]
        for name, code, where in (
            *((name, f"{_CALL}.{name}()", client.where) for name in LISTED),
            ("scrape", _FETCH, f"{web}metrics"),
            ("http_partitions", _FETCH, f"{web}v1/partitions"),
        ):
            worst = []
            for _ in range(LISTINGS):
                worst.append(_longest(client, code, where))
                time.sleep(METRICS_MAX_AGE_S)  # each scrape is to gather anew
            middle = statistics.median(worst)
            yield figure(f"growth.beside_{name}", middle, "s", limit=0.05, **params)


def _longest(client: Client, code: str, where: str) -> float:
    """The longest that a small call takes while somebody lists, in a process of its own."""
    lister = subprocess.Popen([sys.executable, "-c", code, where])
    longest = 0.0
    try:
        while lister.poll() is None:
            begun = time.perf_counter()
            client.get_server_info()
            longest = max(longest, time.perf_counter() - begun)
    finally:
        if lister.wait() != 0:
            raise RuntimeError("the listing failed")
    return longest


def _takeover(folder: Path, place: str) -> dict[str, object]:
    """From the kill of the active server to the first answer of the one that stood by."""
    cluster = _cluster_file(folder, BEHIND)
    words = ("--storage", place)
    with _server(folder / "one", "--cluster-file", str(cluster), *words) as (client, first):
        while not _is_active(client):  # it begins as one that stands by
            time.sleep(0.01)
        _fill(client)
        with _server(folder / "two", *words) as (standby, _):
            first.kill()
            begun = time.perf_counter()
            while not _serves(standby):
                time.sleep(0.01)
            took = time.perf_counter() - begun
            _check(standby)
    return figure(
        "growth.takeover", took, "s", limit=5.0, devices=BEHIND, partitions=PARTITIONS, lease=2.5
    )


def _answers(client: Client) -> bool:
    try:
        client.get_server_info()
    except PodwrightError:
        return False
    return True


def _is_active(client: Client) -> bool:
    try:
        client.list_clusters()
    except PodwrightError:
        return False
    return True


def _serves(client: Client) -> bool:
    try:
        client.get_partition("p00000")
    except PodwrightError:
        return False
    return True


def _fill(client: Client) -> None:
    def create(first: int) -> None:
        with Client(UnixTransport(client.where)) as own:
            for n in range(first, PARTITIONS, CREATORS):
                own.create_partition(PartitionSpec(name=f"p{n:05}", size=1), wait=False)

    creators = [threading.Thread(target=create, args=(n,)) for n in range(CREATORS)]
    for creator in creators:
        creator.start()
    for creator in creators:
        creator.join()
    _check(client)


def _check(client: Client) -> None:
    if (found := len(client.list_partitions())) != PARTITIONS:
        raise RuntimeError(f"{found} partitions, not {PARTITIONS}")


def _cluster_file(folder: Path, devices: int) -> Path:
    lines = ['name = "large"', 'family = "ipu"', 'topology = "looped"', "simulated = true"]
    for domain in range(devices // 64):
        machines = ", ".join(f'"m{domain}-{n}"' for n in range(16))
        lines.append(f"[[link_domains]]\nmachines = [{machines}]")
    path = folder / f"{devices}.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _disk() -> str:
    """A folder that outlives a restart, so not one in memory."""
    return os.environ.get("PODWRIGHT_BENCH_DISK", "/var/tmp")


@contextmanager
def _server(place: Path, *arguments: str) -> Iterator[tuple[Client, subprocess.Popen[bytes]]]:
    """A server that has answered."""
    place.mkdir(exist_ok=True)
    socket_path = place / "s"
    storage = () if "--storage" in arguments else ("--storage", str(place / "store.db"))
    with (place / "log").open("ab") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "podwright.cli.vipu_server", *arguments, *storage),
                *("--socket", str(socket_path), "--api-port", "0"),
            ],
            stderr=log,
        )
    try:
        deadline = time.monotonic() + 300
        with Client(UnixTransport(str(socket_path))) as client:
            while not _answers(client):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the server did not start")
                time.sleep(0.01)
            yield client, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
