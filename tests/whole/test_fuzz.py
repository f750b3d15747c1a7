"""Hostile messages on every door of a server and of an agent: both go on, and do not grow.

In the clear and behind TLS. A few thousand in each run of the tests, 100,000 of each with
`make soak`.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest

from podwright.agents import Secret, machine_key
from podwright.agents._shared_key_auth import AUTH_METADATA_KEY
from podwright.client import Client, Credentials, GrpcTransport, UnixTransport
from podwright.wire import UserRequest, messages, read_certificates
from podwright.wire.agent import AGENT_SERVICE, DescribeRequest, MachineState
from tests.certificates import CLIENT, MACHINE, SERVER, folder_of
from tests.whole.conftest import Pod
from tests.whole.hostile import Hand

BIN = Path(sys.executable).parent
#: Messages of one batch, by door. After each batch every door answers a good call.
BATCH = {"unix": 200, "web": 80, "grpc": 100, "frames": 70, "agent": 50}
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
_PORTS = {"server": "port", "agent": "agent"}
PATIENCE = 15.0  #: seconds for an answer to what may never get one
AT_ONCE = 24
#: Bytes that a process may grow by between the middle of a run and its end.
GROWTH = 24 << 20


class Target:
    """A server, an agent, and their attackers."""

    credentials = Credentials()
    #: An answer that each run must have met, beside those of every run.
    met: frozenset[str | bytes] = frozenset()

    def __init__(self, pod: Pod, agent: subprocess.Popen[bytes], folder: Path, seed: int) -> None:
        assert pod.process is not None
        self.pod, self.folder = pod, folder
        log = self.log(pod.folder / "server.log")
        self.web = int(_found(r"page and metrics on http://127\.0\.0\.1:(\d+)", log))
        self.port = int(_found(r"\) on 127\.0\.0\.1:(\d+) and ", log))
        self.agent = int(_found(r"\) on 127\.0\.0\.1:(\d+), kept", self.log(folder / "agent.log")))
        self.processes = {
            "server": psutil.Process(pod.process.pid),
            "agent": psutil.Process(agent.pid),
        }
        self.sizes: dict[str, list[int]] = {name: [] for name in self.processes}
        self.hand = Hand(seed)
        self.sent: Counter[str] = Counter()
        self.heard: Counter[str | bytes] = Counter()
        self._free = asyncio.Semaphore(AT_ONCE)

    def channel(self, name: str) -> grpc.aio.Channel:
        """A connection for good and bad calls to the server or the agent."""
        return grpc.aio.insecure_channel(f"127.0.0.1:{getattr(self, _PORTS[name])}")

    def log(self, path: Path) -> str:
        return path.read_text(errors="replace")

    async def batch(self, channels: dict[str, grpc.aio.Channel]) -> None:
        """One batch on all doors at once."""
        await asyncio.gather(*(self._door(name, channels) for name in BATCH))

    async def _door(self, name: str, channels: dict[str, grpc.aio.Channel]) -> None:
        left, tasks = BATCH[name], []
        while left > 0:
            await self._free.acquire()
            count, work = self._next(name, left, channels)
            task = asyncio.ensure_future(work)
            task.add_done_callback(lambda _: self._free.release())
            tasks.append(task)
            self.sent[name] += count
            left -= count
        await asyncio.gather(*tasks)

    def _next(
        self, name: str, left: int, channels: dict[str, grpc.aio.Channel]
    ) -> tuple[int, Coroutine[Any, Any, None]]:
        """Return the number of messages, and what sends them."""
        if name == "grpc":
            return 1, self._call(channels["server"], *self.hand.grpc())
        if name == "agent":
            return 1, self._call(channels["agent"], *self.hand.agent())
        if name == "unix":
            parts = [self.hand.post() for _ in range(min(left, self.hand.random.randrange(1, 6)))]
            return len(parts), self._stream(str(self.pod.socket), parts)
        if name == "web":
            return 1, self._stream(self.web, [self.hand.get()])
        port = self.hand.random.choice([self.port, self.agent])
        parts = self._frames()[:left]
        return len(parts), self._stream(port, parts)

    def _frames(self) -> list[bytes]:
        if self.hand.random.random() < 0.2:
            return [self.hand.garbage(3000)]
        return [PREFACE if self.hand.random.random() < 0.9 else b"", *self.hand.frames()]

    async def _stream(self, place: str | int, parts: list[bytes]) -> None:
        """Send messages over one connection, read whatever comes, and close it."""
        if isinstance(place, str):
            reader, writer = await asyncio.open_unix_connection(place)
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", place)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                for part in parts:
                    writer.write(part)
                await writer.drain()
                writer.write_eof()
                while data := await reader.read(1 << 16):
                    self.heard.update(re.findall(rb"HTTP/1.1 (\d\d\d)", data))
        writer.transport.abort()

    async def _call(self, channel: grpc.aio.Channel, path: str, body: bytes) -> None:
        shown = [*(self.hand.metadata() or ())]
        if path.startswith(f"/{AGENT_SERVICE}/"):  # signed, so that they get as far as they can
            shown.append(self.signed(path, body))
        try:
            await channel.unary_unary(path)(body, metadata=shown, timeout=PATIENCE)
            self.heard["OK"] += 1
        except grpc.aio.AioRpcError as error:
            self.heard[error.code().name] += 1

    async def still_good(self, channels: dict[str, grpc.aio.Channel]) -> None:
        """Check that every door answers a good call, and record the memory of the processes."""

        def ask() -> None:
            for transport in (
                UnixTransport(str(self.pod.socket)),
                GrpcTransport("127.0.0.1", self.port, credentials=self.credentials),
            ):
                with Client(transport, timeout=300) as client:
                    assert client.get_server_info().version
                    client.list_partitions()
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.web}/healthz", timeout=300
            ) as said:
                assert said.status == 200

        await asyncio.to_thread(ask)
        call = channels["agent"].unary_unary(f"/{AGENT_SERVICE}/Describe")
        body = messages.encode(DescribeRequest())
        shown = [self.signed("/Describe", body)]
        told = await call(body, metadata=shown, timeout=300)
        assert len(messages.decode(MachineState, told).devices) == 4
        for name, process in self.processes.items():
            self.sizes[name].append(process.memory_info().rss)

    def signed(self, path: str, body: bytes) -> tuple[str, str]:
        """Return metadata that the agent's own server would send."""
        secret = Secret(machine_key(Path(os.environ["PODWRIGHT_AGENT_KEY"])))
        return AUTH_METADATA_KEY, secret.sign(path.rpartition("/")[2], body, "ag1")[0]

    def grown(self, name: str) -> int:
        """Return the growth in bytes from the second quarter of the run to its last."""
        sizes = self.sizes[name]
        quarter = max(1, len(sizes) // 4)
        return int(median(sizes[-quarter:]) - median(sizes[quarter : 2 * quarter]))


class TlsTarget(Target):
    """The same behind TLS, with callers who have the right certificates, others, or none."""

    credentials = Credentials(certs=str(folder_of("chief")))
    met = frozenset({"handshake"})

    def channel(self, name: str) -> grpc.aio.Channel:
        """As an administrator to the server; as the server to the agent."""
        shown = folder_of("chief") if name == "server" else SERVER
        tls = grpc.ssl_channel_credentials(*read_certificates(str(shown)))
        place = f"127.0.0.1:{getattr(self, _PORTS[name])}"
        hers = [("grpc.ssl_target_name_override", MACHINE)] if name == "agent" else []
        return grpc.aio.secure_channel(place, tls, options=hers)

    async def _stream(self, place: str | int, parts: list[bytes]) -> None:
        """After a handshake, where the port wants one; one in four comes without."""
        if place not in (self.port, self.agent) or self.hand.random.random() < 0.25:
            await super()._stream(place, parts)
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(self.hand.random.choice([["h2"], ["http/1.1"], ["h2", "x"]]))
        if self.hand.random.random() < 0.5:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        who = self.hand.random.choice([SERVER, CLIENT, folder_of("nobody"), None])
        if who is not None:
            context.load_cert_chain(who / "cert.pem", who / "key.pem")
        self.heard[await asyncio.to_thread(_say, int(place), context, parts)] += 1

    def _frames(self) -> list[bytes]:
        if self.hand.random.random() < 0.2:
            return self.hand.records()
        return super()._frames()


def _say(port: int, context: ssl.SSLContext, parts: list[bytes]) -> str:
    """Send messages after a handshake; how far that came. Whoever listens on is left."""
    came = "no handshake"
    with (
        suppress(OSError),
        socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
        context.wrap_socket(plain) as talk,
    ):
        came = "handshake"
        talk.settimeout(0.3)
        talk.sendall(b"".join(parts))
        while talk.recv(1 << 16):
            pass
    return came


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match, text
    return match[1]


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """An agent of its own; what it says is in agent.log."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> subprocess.Popen[bytes]:
        command = [str(BIN / "vipu-agent"), "--machine", name, "--port", "0", *words]
        with (tmp_path / "agent.log").open("wb") as log:
            process = subprocess.Popen([*command, "--state", str(tmp_path / "state")], stderr=log)
        started.append(process)
        while b" on 127.0.0.1:" not in (tmp_path / "agent.log").read_bytes():
            assert process.poll() is None
            time.sleep(0.05)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(300)


_SERVED = ("--preset", "pod16", "--http-port", "0", "--agent-silence", "1")


@pytest.fixture
def target(
    make_pod: Callable[..., Pod],
    start_agent: Callable[..., subprocess.Popen[bytes]],
    tmp_path: Path,
) -> Target:
    return Target(make_pod(*_SERVED), start_agent("ag1"), tmp_path, seed=20)


@pytest.fixture
def behind_tls(
    make_pod: Callable[..., Pod],
    start_agent: Callable[..., subprocess.Popen[bytes]],
    tmp_path: Path,
) -> Target:
    pod = make_pod(*_SERVED, "--secure", "--tls-certs", str(SERVER))
    with Client(UnixTransport(str(pod.socket))) as client:
        client.call("CreateUser", UserRequest(name="chief", role="administrator"))
    agent = start_agent(MACHINE, "--tls-certs", str(folder_of(MACHINE)))
    return TlsTarget(pod, agent, tmp_path, seed=21)


async def bother(target: Target, count: int) -> None:
    """So many messages, and what must hold after them."""
    async with target.channel("server") as server, target.channel("agent") as agent:
        channels = {"server": server, "agent": agent}
        while target.sent.total() < count:
            await target.batch(channels)
            await target.still_good(channels)
    logs = {
        "server": target.log(target.pod.folder / "server.log"),
        "agent": target.log(target.folder / "agent.log"),
    }
    print("answers:", dict(target.heard.most_common()))
    for name in logs:
        sizes = [size >> 20 for size in target.sizes[name]]
        print(
            f"{name}: {target.sent.total()} messages {dict(target.sent)}, "
            f"RSS {sizes[0]} MiB after the first batch, {max(sizes)} at most, {sizes[-1]} at last; "
            f"grown by {target.grown(name) >> 10} KiB from the second quarter to the last"
        )
    for name, log in logs.items():
        assert "Traceback" not in log, log[-4000:]
        assert "failed" not in log, log[-4000:]
        assert target.grown(name) < GROWTH
    # They got as far as they could: parsed, refused for many reasons, and a few of them served.
    assert {b"200", b"400", b"404", "OK", "INVALID_ARGUMENT", "UNAUTHENTICATED"} <= {*target.heard}
    assert target.met <= {*target.heard}
    assert not {b"500", "INTERNAL", "UNKNOWN"} & {*target.heard}
    assert target.pod.stop() == 0


async def test_hostile_messages_change_nothing_for_others(target: Target) -> None:
    await bother(target, 2500)


async def test_hostile_messages_behind_tls_change_nothing_for_others(behind_tls: Target) -> None:
    await bother(behind_tls, 1000)


@pytest.mark.soak
@pytest.mark.timeout(10800)
async def test_a_hundred_thousand_hostile_messages_behind_tls_change_nothing(
    behind_tls: Target,
) -> None:
    await bother(behind_tls, 100_000)


@pytest.mark.soak
@pytest.mark.timeout(10800)
async def test_a_hundred_thousand_hostile_messages_change_nothing(target: Target) -> None:
    await bother(target, 100_000)
