"""How long others wait while strangers flood the server's ports, good calls included.

Worst of what `vipu list partitions`, as a whole process over the Unix socket, the call itself,
`/healthz` and a gRPC call of somebody else take meanwhile. The floods come from a process of its
own, on loopback. `nothing`: the same machine in peace.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import grpc.aio

from bench import Figures, figure
from bench._floods import FLOODS, send, unfinished
from podwright.client import Client, UnixTransport
from podwright.wire import messages
from podwright.wire.messages import ACCESS_KEY, USER_KEY

SECONDS = 5.0
ATTACKERS = 4
LIMITS = {"vipu_list": 1.0, "unix": 1.0, "healthz": 2.0}
_VIPU = (sys.executable, "-m", "podwright.cli.vipu", "list", "partitions")
#: What a server says when all its doors are open: the port of its page, and that for gRPC.
_SAID = re.compile(r"on http://127\.0\.0\.1:(\d+)/.*127\.0\.0\.1:(\d+) and", re.DOTALL)
_LIST, _INFO = messages.method_path("ListDevices"), messages.method_path("GetServerInfo")


def run() -> Figures:
    """A figure for each flood and each door."""
    with _server() as (environ, port, web):
        for name in ("nothing", *FLOODS, "unfinished", "silent", "calls", "keys"):
            attack = subprocess.Popen(
                [sys.executable, "-m", "bench.flood", name, str(port), str(web)]
            )
            try:
                worst = _worst(environ, port, web)
            finally:
                attack.terminate()
                attack.wait(30)
            for door, seconds in worst.items():
                yield figure(
                    "flood.wait", round(seconds, 3), "s", limit=LIMITS.get(door), door=door, by=name
                )


def _worst(environ: dict[str, str], port: int, web: int) -> dict[str, float]:
    def vipu() -> None:
        subprocess.run(_VIPU, env=environ, check=True, capture_output=True)

    def unix() -> None:
        with Client(UnixTransport(environ["PODWRIGHT_SOCKET"])) as client:
            client.list_partitions()

    def healthz() -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{web}/healthz", timeout=30) as said:
            said.read()

    def call() -> None:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, suppress(grpc.RpcError):
            channel.unary_unary(_INFO)(b"", timeout=30)

    doors: dict[str, Callable[[], None]] = {
        "vipu_list": vipu,
        "unix": unix,
        "healthz": healthz,
        "grpc": call,
    }
    worst = dict.fromkeys(doors, 0.0)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for name, ask in doors.items():
            begun = time.monotonic()
            ask()
            worst[name] = max(worst[name], time.monotonic() - begun)
    return worst


@contextmanager
def _server() -> Iterator[tuple[dict[str, str], int, int]]:
    with tempfile.TemporaryDirectory(prefix="podwright-bench-") as folder:
        log = Path(folder, "log")
        command = [
            *(sys.executable, "-m", "podwright.cli.vipu_server", "--preset", "pod256"),
            *("--storage", f"{folder}/db", "--socket", f"{folder}/s"),
            *("--api-port", "0", "--http-port", "0"),
        ]
        with log.open("wb") as said:
            process = subprocess.Popen(command, stderr=said)
        try:
            deadline = time.monotonic() + 60
            while not (found := _SAID.search(log.read_text())):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the server did not start")
                time.sleep(0.01)
            environ = {**os.environ, "PODWRIGHT_SOCKET": f"{folder}/s"}
            yield environ, int(found[2]), int(found[1])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


async def _calls(port: int, *shown: tuple[str, str]) -> None:
    """Good calls, each a list of all devices, as many as are answered. shown: who they say."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        ask = channel.unary_unary(_LIST)

        async def repeat() -> None:
            while True:
                with suppress(grpc.aio.AioRpcError):
                    await ask(b"", timeout=30, metadata=shown)

        await asyncio.gather(*(repeat() for _ in range(100)))


async def _silent(*ports: int) -> None:
    """A thousand connections that say nothing, opened again and again."""
    while True:
        opened = []
        for number in range(1000):
            with suppress(OSError):
                opened.append(await asyncio.open_connection("127.0.0.1", ports[number % 2]))
        await asyncio.sleep(1.0)
        for _, writer in opened:
            writer.transport.abort()


async def _again(name: str, port: int) -> None:
    parts = unfinished if name == "unfinished" else FLOODS[name]
    while True:
        with suppress(OSError):
            await send(port, parts(_LIST), 1 << 40, seconds=60)
        await asyncio.sleep(0.01)


async def _attack(name: str, port: int, web: int) -> None:
    if name == "nothing":
        await asyncio.sleep(600)
    elif name == "silent":
        await _silent(port, web)
    elif name in ("calls", "keys"):  # each wrong key costs as much as a good one
        shown = ((USER_KEY, "root"), (ACCESS_KEY, "guessed")) if name == "keys" else ()
        await asyncio.gather(*(_calls(port, *shown) for _ in range(ATTACKERS)))
    else:
        count = 60 if name == "unfinished" else ATTACKERS
        await asyncio.gather(*(_again(name, port) for _ in range(count)))


if __name__ == "__main__":
    asyncio.run(_attack(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
