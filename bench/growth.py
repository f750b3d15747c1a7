"""How the costs of a pod of 131,072 devices grow with its partitions: 1,000, 10,000 and 100,000.

`pair` is a partition created and removed, beside one of an empty pod without page, history and
metrics. `page_change_bytes` is what that sends to an open page. `history_minute` has 100 changes.

Each figure is processor time, of all threads of the server or of a command, so that other load on
the machine changes it little. `ratio` divides it by the figure for 10,000 partitions: 1 is
constant, and 10 at 100,000 partitions is linear. The server is a process of its own, with its page,
history and metrics, and its store is on a real disk. `growth:N` measures N partitions alone.

The takeover needs a database that two servers share:
PODWRIGHT_BENCH_POSTGRES=postgresql://user@host/database, an empty one.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from bench import Figures, figure
from podwright.client import Client, UnixTransport
from podwright.errors import PodwrightError
from podwright.server._metrics import METRICS_MAX_AGE_S
from podwright.wire import ListRequest, PartitionSpec

DEVICES = 131_072
COUNTS = (10_000, 1_000, 100_000)  #: partitions; the others are compared with the first
CREATORS = 8
PAIRS_S = 6.0  #: seconds of pairs
PAIR_ROUNDS = 6  #: in turns with an empty pod; a full minute falls into them
SCRAPE_S = 5.0  #: seconds between two scrapes while pairs are made
#: Of 100,000 partitions: what each figure may be at most, in its unit.
LIMITS = {
    "pair": 1.25,
    "history_minute": 0.020,
    "metrics": 0.050,
    "page_first": 0.5,
    "page_change_bytes": 5_000,
    "list_first_page": 0.010,
    "list_partitions": 2.0,
    "list_devices": 2.0,
    "get": 0.020,
    "explain": 0.020,
    "restart": 4.0,
    "memory": 400e6,
}
#: Where a server says that its page is.
_PAGE = re.compile(r"on (http://127\.0\.0\.1:\d+/)")


class Served(NamedTuple):
    """A server under measurement. web: the address of its page. home: its folder."""

    client: Client
    pid: int
    web: str
    home: Path

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far, of all threads."""
        total = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with suppress(OSError):  # a thread that has ended meanwhile
                total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def cost(self, work: Callable[[], object]) -> float:
        """Seconds of processor time that the server spends while work is done."""
        before = self.cpu
        work()
        return self.cpu - before


def run(which: str = "") -> Figures:
    """All figures of growth. which: of this number of partitions alone."""
    folder = Path(tempfile.mkdtemp(prefix="podwright-bench-", dir=_disk()))
    try:
        reference: dict[str, float] = {}
        cluster = _cluster_file(folder, DEVICES)
        for count in (int(which),) if which else COUNTS:
            home = folder / f"{count}"
            with _server(home, "--cluster-file", str(cluster)) as served:
                fill(served.client, count)
            for name, value, unit in measured(home, folder / "empty", cluster):
                about: dict[str, float] = {"partitions": count, "devices": DEVICES}
                if count == COUNTS[0]:
                    reference[name] = value
                if reference.get(name):
                    about["ratio"] = round(value / reference[name], 2)
                limit = LIMITS.get(name) if count == max(COUNTS) else None
                yield figure(f"growth.{name}", value, unit, limit=limit, **about)
            shutil.rmtree(home)
        if place := os.environ.get("PODWRIGHT_BENCH_POSTGRES"):
            yield _takeover(folder, place)
    finally:
        shutil.rmtree(folder)


def measured(home: Path, bare: Path, cluster: Path) -> Iterator[tuple[str, float, str]]:
    """The figures of a server that is filled: names, values and units. bare: a folder for one with
    an empty pod of the same cluster, without page."""
    with _server(home, "--http-port", "0") as served:
        yield "restart", served.cpu, "s"
        yield "memory_at_start", _memory(served.pid), "bytes"
        _sleep_until_second(55)  # the first full minute is recorded as a whole, and that once
        yield "history_whole", served.cost(lambda: time.sleep(10.0)), "s"
        page = ListRequest(page_size=250)
        pages = [served.cost(lambda: served.client.call("ListPartitions", page)) for _ in range(5)]
        yield "list_first_page", statistics.median(pages), "s"
        yield "list_partitions", served.cost(served.client.list_partitions), "s"
        yield "list_devices", served.cost(served.client.list_devices), "s"
        name = "p000500"
        for verb, words in {
            "get": ("get", "partition", name),
            "explain": ("explain", name),
            "list_partitions_command": ("list", "partitions"),
            "list_devices_command": ("list", "devices"),
        }.items():
            before, client = served.cpu, _command_cost(served, *words)
            yield verb, served.cpu - before, "s"
            yield f"{verb}_whole", served.cpu - before + client, "s"
        _get(f"{served.web}metrics")  # the first imports what formats them
        time.sleep(METRICS_MAX_AGE_S)
        text: list[bytes] = []
        yield "metrics", served.cost(lambda: text.append(_get(f"{served.web}metrics"))), "s"
        yield "metrics_bytes", len(text[0]), "bytes"
        before = served.cpu
        with _Stream(served.web) as stream:
            event = stream.event()
            yield "page_first", served.cpu - before, "s"
            yield "page_first_bytes", len(event), "bytes"
            served.client.create_partition(PartitionSpec(name="a-change", size=1))
            yield "page_change_bytes", len(stream.event()), "bytes"
            served.client.remove_partition("a-change")
            with _server(bare, "--cluster-file", str(cluster)) as empty:
                costs = [(pair_cost(served), pair_cost(empty)) for _ in range(PAIR_ROUNDS)]
        full, alone = (statistics.median(one) for one in zip(*costs, strict=True))
        yield "pair_seconds", full, "s"
        yield "pair", full / alone, "of an empty pod's, without page"
        yield "history_minute", history_cost(served), "s"
        yield "memory", _memory(served.pid), "bytes"


def pair_cost(served: Served) -> float:
    """Seconds of the server for one create-and-remove pair. Where it has a page, it is scraped."""
    ends, pairs, scraped = time.monotonic() + PAIRS_S, 0, 0.0
    before = served.cpu
    while (now := time.monotonic()) < ends:
        if served.web and now > scraped + SCRAPE_S:
            scraped = now
            threading.Thread(target=_get, args=(f"{served.web}metrics",)).start()
        served.client.create_partition(PartitionSpec(name=f"pair-{pairs}", size=1))
        served.client.remove_partition(f"pair-{pairs}")
        pairs += 1
    return (served.cpu - before) / pairs


def history_cost(served: Served) -> float:
    """Seconds that recording a minute with 100 changes takes, beside what an idle server takes."""
    _sleep_until_second(50)
    for number in range(50):
        served.client.create_partition(PartitionSpec(name=f"change-{number}", size=1))
        served.client.remove_partition(f"change-{number}")
    _sleep_until_second(57)
    recording = served.cost(lambda: time.sleep(6.0))
    _sleep_until_second(40)
    return max(0.0, recording - served.cost(lambda: time.sleep(6.0)))


def fill(client: Client, count: int) -> None:
    """Create this many partitions of one device."""

    def create(first: int) -> None:
        with Client(UnixTransport(client.where)) as own:
            for n in range(first, count, CREATORS):
                own.create_partition(PartitionSpec(name=f"p{n:06}", size=1), wait=False)

    creators = [threading.Thread(target=create, args=(n,)) for n in range(CREATORS)]
    for creator in creators:
        creator.start()
    for creator in creators:
        creator.join()
    if (found := len(client.list_partitions())) != count:
        raise RuntimeError(f"{found} partitions, not {count}")


class _Stream:
    """The stream of an open page, read by a thread, so that the server does not wait for it."""

    def __init__(self, web: str) -> None:
        self._response = urllib.request.urlopen(f"{web}live", timeout=300)
        self._events: list[bytes] = []
        self._came = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> _Stream:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()

    def event(self) -> bytes:
        """The next event that carries something."""
        with self._came:
            if not self._came.wait_for(lambda: bool(self._events), 300):
                raise RuntimeError("the page's stream is silent")
            return self._events.pop(0)

    def _read(self) -> None:
        with suppress(OSError, ValueError, AttributeError):  # closed meanwhile
            for line in self._response:
                if line.startswith(b"data: "):
                    with self._came:
                        self._events.append(line)
                        self._came.notify()


def _command_cost(served: Served, *words: str) -> float:
    """Seconds of processor time of a `vipu` command, beyond those of one that asks nothing."""
    environ = {**os.environ, "PODWRIGHT_SOCKET": served.client.where}
    vipu = (sys.executable, "-m", "podwright.cli.vipu")

    def used(*command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    begin = statistics.median(used(*vipu, "get", "--help") for _ in range(3))
    return used(*vipu, *words) - begin


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=300) as reply:
        body: bytes = reply.read()
    return body


def _sleep_until_second(second: float) -> None:
    """Wait for a second of the minute."""
    time.sleep((second - time.time() % 60) % 60)


def _memory(pid: int) -> float:
    """The most memory that a process had at a time, in bytes."""
    (line,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(line) * 1024.0


def _takeover(folder: Path, place: str) -> dict[str, Any]:
    """From the kill of the active server to the first answer of the one that stood by."""
    cluster = _cluster_file(folder, DEVICES)
    words = ("--storage", place)
    count = COUNTS[0]
    with _server(folder / "one", "--cluster-file", str(cluster), *words) as first:
        while not _succeeds(first.client.list_clusters):  # it begins as one that stands by
            time.sleep(0.01)
        fill(first.client, count)
        with _server(folder / "two", *words) as standby:
            os.kill(first.pid, signal.SIGKILL)
            begun = time.perf_counter()
            while not _succeeds(lambda: standby.client.get_partition("p000000")):
                time.sleep(0.01)
            took = time.perf_counter() - begun
    return figure("growth.takeover", took, "s", limit=5.0, partitions=count, lease=2.5)


def _succeeds(call: Callable[[], object]) -> bool:
    try:
        call()
    except PodwrightError:
        return False
    return True


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
def _server(place: Path, *arguments: str) -> Iterator[Served]:
    """A server that has answered."""
    place.mkdir(exist_ok=True)
    socket_path = place / "s"
    storage = () if "--storage" in arguments else ("--storage", str(place / "store.db"))
    with (place / "log").open("wb") as log:
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
            while not _succeeds(client.get_server_info):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((place / "log").read_text()[-2000:])
                time.sleep(0.01)
            web = _PAGE.findall((place / "log").read_text())
            yield Served(client, process.pid, web[-1] if web else "", place)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
