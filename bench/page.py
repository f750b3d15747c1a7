"""The page: how soon it is there and hears, what many open ones cost, what it keeps.

In Debian's Chromium, where a browser is asked; its processor time counts beside the server's on
the same cores.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from bench import Figures, figure
from podwright.client import Client, UnixTransport
from podwright.history import KEEP, Past, Writer, encode_part, sums_of
from podwright.page import changes
from podwright.store import SQLiteHistory
from podwright.wire import PartitionSpec

DOMAINS = 16  # link domains of 64: 1,024 devices
PAGES = 200
RATE = 5.0  # changes a second
SECONDS = 20.0
EVENTS = 10_000
HOURS = 12  # of a busy pod of 256, of which 30 days are told
_CPU = os.sysconf("SC_CLK_TCK")


class Served(NamedTuple):
    """A server with its page."""

    client: Client
    pid: int
    address: str

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / _CPU


def run() -> Figures:
    """First view, an event, many pages, a page's heap, 30 days."""
    yield from asyncio.run(_history())
    with _server() as served:
        bare = _cost(served, 0)
        full = _cost(served, PAGES)
        yield figure(
            "page.many", full - bare, "cores", limit=0.2, pages=PAGES, changes=RATE, without=bare
        )
        yield from _browser(served)


def _browser(served: Served) -> Figures:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=["--no-sandbox", "--enable-precise-memory-info"],
        )
        views, heard = [], []
        for _ in range(5):
            context = browser.new_context()
            page = context.new_page()
            page.set_default_timeout(120_000)
            begun = time.perf_counter()
            page.goto(f"{served.address}pod", wait_until="commit")
            page.wait_for_function(_DRAWN.format(count=DOMAINS * 64))
            views.append(time.perf_counter() - begun)
            context.close()
        yield figure("page.first", statistics.median(views), "s", limit=1.0, devices=DOMAINS * 64)
        page = browser.new_page()
        page.set_default_timeout(120_000)
        page.goto(f"{served.address}pod")
        page.wait_for_function(_DRAWN.format(count=DOMAINS * 64))
        for round_ in range(11):
            waits = page.evaluate_handle(_HEARS)
            served.client.create_partition(PartitionSpec(name=f"e{round_}", size=4))
            begun = time.time()
            heard.append(
                page.evaluate("({ promise }) => promise.then((at) => at / 1000)", waits) - begun
            )
            served.client.remove_partition(f"e{round_}")
            time.sleep(1.0)
        yield figure("page.event", statistics.median(heard), "s", limit=0.5, worst=max(heard))
        page.goto(f"{served.address}login#token={served.client.issue_token('page').token}")
        page.wait_for_selector("h1:has-text('Pod')")
        page.click("#views a[href='/events']")
        page.wait_for_function("() => document.querySelectorAll('tbody tr').length > 1")
        session = page.context.new_cdp_session(page)
        _changes(served.client, 1000)
        before = _heap(session)
        _changes(served.client, EVENTS)
        yield figure(
            "page.heap", _heap(session) / before - 1, "of before", limit=0.05,
            events=EVENTS, before=before,
        )  # fmt: skip
        browser.close()


_DRAWN = "() => document.querySelectorAll('svg[role=group] .device').length === {count}"
#: When a device of another's is drawn: milliseconds since 1970. A promise in an object, which a
#: handle keeps.
_HEARS = """() => ({ promise: new Promise((resolve) => {
  const look = new MutationObserver(() => {
    if (!document.querySelector('svg[role=group] .device.IN_USE')) return;
    look.disconnect();
    resolve(Date.now());
  });
  look.observe(document.querySelector('.pod'), { subtree: true, attributes: true });
}) })"""


def _heap(session: Any) -> int:
    """Bytes of JavaScript, collected."""
    time.sleep(2.0)
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    return int(session.send("Runtime.getHeapUsage")["usedSize"])


def _changes(client: Client, events: int) -> None:
    """Each is a partition made or removed."""
    for _ in range(events // 2):
        client.create_partition(PartitionSpec(name="b", size=1))
        client.remove_partition("b")


def _cost(served: Served, pages: int) -> float:
    """Cores of the server while so many pages read, and changes come."""
    return asyncio.run(_cores(served, pages))


async def _cores(served: Served, pages: int) -> float:
    port = int(served.address.rstrip("/").rpartition(":")[2])
    readers = [asyncio.create_task(_read(port)) for _ in range(pages)]
    await asyncio.sleep(3.0)
    used, begun = served.cpu, time.perf_counter()
    made = 0
    while time.perf_counter() < begun + SECONDS:
        verb = served.client.remove_partition if made % 2 else None
        if verb is None:
            spec = PartitionSpec(name="m", size=4)
            await asyncio.to_thread(served.client.create_partition, spec)
        else:
            await asyncio.to_thread(verb, "m")
        made += 1
        await asyncio.sleep(max(0.0, begun + made / RATE - time.perf_counter()))
    cores = (served.cpu - used) / (time.perf_counter() - begun)
    if made % 2:
        served.client.remove_partition("m")
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    return cores


async def _read(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    writer.write(f"GET /live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    try:
        while await reader.read(1 << 20):
            pass
    finally:
        writer.close()


async def _history() -> list[dict[str, Any]]:
    """Jobs of 4 to 32 devices and ten minutes in the mean keep a pod of 256 full."""
    dice = random.Random(16)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "history"
        history, writer = SQLiteHistory(file), Writer()
        known: dict[str, dict[str, Any]] = {}
        start = 29_000_000 // 60 * 60
        ends: dict[tuple[int, int], tuple[int, str]] = {}
        for minute in range(HOURS * 60):
            for (first, size), (end, _) in list(ends.items()):
                if end <= minute:
                    del ends[first, size]
            taken = {at for first, size in ends for at in range(first, first + size)}
            for first in range(0, 256, 4):
                size = dice.choice((4, 4, 8, 16, 32))
                if first % size == 0 and taken.isdisjoint(range(first, first + size)):
                    ends[first, size] = (
                        minute + 1 + int(dice.expovariate(0.1)), f"slurm_{minute * 64 + first}"
                    )  # fmt: skip
                    taken.update(range(first, first + size))
            before, known = known, _pod(ends, minute)
            used = sum(size for _, size in ends)
            sizes = [(1 << order, (256 - used) >> order) for order in range(7)]
            sums = sums_of({"IN_USE": used, "FREE": 256 - used}, 10, 0, sizes)
            if writer.wants_whole(start + minute):
                row = writer.whole(start + minute, [encode_part(start + minute, known)], sums)
            else:
                row = writer.add(start + minute, changes(before, known), sums)
            await history.write(row, since=start + minute - KEEP, most=10**9, epoch=1)
        whole = file.stat().st_size * (KEEP / (HOURS * 60))
        past, times = Past(history), []
        for _ in range(51):
            begun = time.perf_counter()
            await past.at(start + dice.randrange(HOURS * 60))
            times.append(time.perf_counter() - begun)
    return [
        figure("page.history", whole / 1e6, "MB", limit=50, days=30, measured_hours=HOURS),
        figure("page.minute", statistics.median(times), "s", limit=0.3, worst=max(times)),
    ]


def _pod(ends: dict[tuple[int, int], tuple[int, str]], minute: int) -> dict[str, dict[str, Any]]:
    """What is kept of a pod at a minute."""
    names = {
        at: name for (first, size), (_, name) in ends.items() for at in range(first, first + size)
    }
    pairs = [("IN_USE", names[at]) if at in names else ("FREE", "") for at in range(256)]
    return {
        "clusters": {"c": {"family": "ipu", "size": 256, "domains": [64] * 4, "simulated": True}},
        "layout": {f"c/{n}": [(f"m{n * 16 + at}", 4) for at in range(16)] for n in range(4)},
        "devices": {
            f"c/{n}": [(pair, len(list(run))) for pair, run in groupby(pairs[n * 64 : n * 64 + 64])]
            for n in range(4)
        },
        "partitions": {
            name: [f"user{hash(name) % 40}", f"{name} 0 lab", "a", 1_790_000_000 + end * 7, 0,
                   "ACTIVE"]
            for end, name in ends.values()
        },
        "waiters": {
            f"w{minute // 5 + at}": [at, f"user{at}", f"partition of {4 << at % 4}", "devices",
                                     1_790_000_000 + minute, 0]
            for at in range(10)
        },
    }  # fmt: skip


@contextlib.contextmanager
def _server() -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        lines = ['name = "large"', 'family = "ipu"', 'topology = "looped"', "simulated = true"]
        for domain in range(DOMAINS):
            machines = ", ".join(f'"m{domain}-{machine}"' for machine in range(16))
            lines += ["[[link_domains]]", f"machines = [{machines}]"]
        (place / "pod.toml").write_text("\n".join(lines) + "\n")
        command = [sys.executable, "-m", "podwright.cli.vipu_server", "--socket", f"{folder}/s"]
        command += ["--storage", f"{folder}/s.db", "--cluster-file", f"{folder}/pod.toml"]
        command += ["--api-port", "0", "--http-port", "0"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as run:
            try:
                client = Client(UnixTransport(f"{folder}/s"))
                address = _page(client)
                urllib.request.urlopen(f"{address}healthz", timeout=60).close()
                yield Served(client, run.pid, address)
            finally:
                run.send_signal(signal.SIGTERM)


def _page(client: Client) -> str:
    until = time.monotonic() + 120
    while True:
        try:
            return client.get_server_info().page
        except Exception:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
