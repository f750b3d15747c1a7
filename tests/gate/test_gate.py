"""The gate as its server starts it: a process of its own, which may die; probes, reflection."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from podwright import wire
from podwright.http import metrics_text
from podwright.server import ListenOptions, Server
from podwright.wire import messages, virm
from tests.ports import free_port
from tests.server.fakes import FakeController, as_controller

INFO = messages.method_path("GetServerInfo")
SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.fixture
async def apart() -> AsyncIterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="pw-", dir="/tmp"))
    served = Server(as_controller(FakeController()), ListenOptions(folder / "s", apart=True))
    await served.start()
    yield served
    await served.stop(5)
    shutil.rmtree(folder)


def runs(process: psutil.Process) -> bool:
    """Whether it has not ended; it may do so while it is looked at."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def gates() -> list[psutil.Process]:
    """Return the gates that this process started."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if runs(child) and "podwright.gate" in child.cmdline():
                found.append(child)
    return found


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not true():  # noqa: ASYNC110 - the other side has no event to offer
            await asyncio.sleep(0.01)


async def info(server: Server, **more: Any) -> wire.ServerInfo:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        answer = await channel.unary_unary(INFO)(b"", wait_for_ready=True, timeout=120, **more)
    return messages.decode(wire.ServerInfo, answer)


async def test_a_gate_is_started_by_the_first_connection(apart: Server) -> None:
    assert not gates()
    assert (await info(apart)).port == apart.port
    (gate,) = gates()
    assert gate.nice() > psutil.Process().nice()
    assert gate.rlimit(resource.RLIMIT_CORE)[0] == 0
    assert 0 < gate.rlimit(resource.RLIMIT_DATA)[0] <= 2 << 30
    assert gate.rlimit(resource.RLIMIT_NOFILE)[0] <= 6144
    await apart.stop(5)
    await until(lambda: not gates())


async def test_a_killed_gate_is_started_again(apart: Server) -> None:
    port = apart.port
    await info(apart)
    (gate,) = gates()
    gate.kill()
    # A zombie does not count as gone: while its other threads end, its sockets may still be open.
    await until(lambda: not psutil.pid_exists(gate.pid))
    assert (await info(apart)).port == port
    assert [found.pid for found in gates()] != [gate.pid]


async def test_what_a_gate_says_is_in_the_servers_log(
    apart: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A gate that cannot start reports why. The server goes on, and tries again."""
    command = [sys.executable, "-c", "import sys; sys.exit('no luck')"]
    monkeypatch.setattr("podwright.gate._gate_process.words", lambda setup: command)
    with socket.create_connection(("127.0.0.1", apart.port)):
        await until(lambda: "the next one starts in" in caplog.text)
    assert "the gate for gRPC: no luck" in caplog.text
    monkeypatch.undo()
    assert (await info(apart)).port == apart.port


async def test_a_signal_for_all_processes_of_the_service_is_the_servers(apart: Server) -> None:
    await info(apart)
    (gate,) = gates()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        gate.send_signal(number)
    assert (await info(apart)).port == apart.port
    assert [found.pid for found in gates()] == [gate.pid]


def test_a_gate_ends_with_a_killed_server_and_frees_the_port(tmp_path: Path) -> None:
    """The next server gets the same port, although nobody told the gate to end."""
    port = free_port()
    command = [sys.executable, "-m", "podwright.cli.vipu_server", "--preset", "pod4"]
    command += ["--api-port", str(port), "--storage", str(tmp_path / "db")]
    for number in range(2):
        place = str(tmp_path / f"s{number}")
        with subprocess.Popen(
            [*command, "--socket", place], stderr=subprocess.PIPE, text=True
        ) as served:
            try:
                assert served.stderr is not None
                assert f"127.0.0.1:{port}" in served.stderr.readline()
                with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                    assert channel.unary_unary(INFO)(b"", wait_for_ready=True, timeout=120)
                (gate,) = psutil.Process(served.pid).children()
            finally:
                served.kill()
        deadline = time.monotonic() + 120
        while runs(gate):
            assert time.monotonic() < deadline
            time.sleep(0.01)


async def test_the_socket_between_gate_and_server_is_in_no_folder(
    apart: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as folder:  # gates of others' tests
        monkeypatch.setenv("TMPDIR", folder)
        await info(apart)
        assert os.listdir(folder) == []
    (gate,) = gates()
    paths = [str(found.laddr) for found in gate.net_connections("unix")]
    assert not [path for path in paths if path and os.path.exists(path)]  # noqa: ASYNC240


async def test_a_gate_answers_probes_and_reflection(apart: Server) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{apart.port}") as channel:
        probe = health_pb2_grpc.HealthStub(channel)
        for name in ("", messages.SERVICE, "virmgrpc.UserService"):
            request = health_pb2.HealthCheckRequest(service=name)
            async with asyncio.timeout(120):
                while (  # noqa: ASYNC110 - it is known a moment after the start
                    await probe.Check(request, wait_for_ready=True)
                ).status != SERVING:
                    await asyncio.sleep(0.05)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await probe.Check(health_pb2.HealthCheckRequest(service="nothing"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        ask = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        requests = [reflection_pb2.ServerReflectionRequest(list_services="")]
        requests += [
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=name)
            for name in (messages.SERVICE, "virmgrpc.UserService")
        ]
        listed, *files = [answer async for answer in ask(iter(requests))]
        names = {service.name for service in listed.list_services_response.service}
        assert {messages.SERVICE, "virmgrpc.UserService", "grpc.health.v1.Health"} <= names
        assert all(found.file_descriptor_response.file_descriptor_proto for found in files)


async def test_a_server_that_stands_still_is_not_well(apart: Server) -> None:
    """A probe learns that, although the gate itself answers."""
    await info(apart)
    front: Any = apart._grpc
    front._calls.health = lambda: {"status": "standby", "active": "another"}
    async with grpc.aio.insecure_channel(f"127.0.0.1:{apart.port}") as channel:
        probe = health_pb2_grpc.HealthStub(channel)
        async with asyncio.timeout(120):
            while (  # noqa: ASYNC110
                await probe.Check(health_pb2.HealthCheckRequest())
            ).status == SERVING:
                await asyncio.sleep(0.05)


async def test_a_call_given_up_is_given_up_by_the_server(apart: Server) -> None:
    controller: Any = apart.controller
    controller.hold["renew"] = asyncio.Event()
    body = messages.encode(wire.LeaseRequest(id="l", epoch=1))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{apart.port}") as channel:
        call = channel.unary_unary(messages.method_path("Renew"))(body, wait_for_ready=True)
        await until(lambda: controller.callers)
        assert apart.calls.under_way == 1
        call.cancel()
        await until(lambda: not apart.calls.under_way)
        late = channel.unary_unary(messages.method_path("Renew"))(body, timeout=0.2)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await late
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: not apart.calls.under_way)


async def test_a_request_that_never_ends_is_given_up(
    apart: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers and half a message arrive. The caller gets a refusal, and nothing is kept."""
    monkeypatch.setattr("podwright.gate._grpc_server.UNFINISHED_S", 0.2)
    within = Server(as_controller(FakeController()), ListenOptions(None))
    await within.start()
    never = asyncio.Event()

    async def half() -> Any:
        await never.wait()
        yield b""

    async with grpc.aio.insecure_channel(f"127.0.0.1:{within.port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="was not whole within") as caught:
            await channel.stream_unary(INFO)(half())
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await within.stop(1)


async def test_connections_beyond_the_limit_take_the_place_of_silent_ones(apart: Server) -> None:
    """A thousand silent connections keep nobody out."""
    await info(apart)
    front = apart._grpc
    assert front
    for _ in range(5):  # gRPC ends silent ones after 20 s: where all took so long, others come
        with ExitStack() as silent:
            for _ in range(1000):
                one = silent.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", apart.port))
            assert (await info(apart)).port == apart.port
            (gate,) = gates()
            assert gate.num_fds() < 2300  # three of each with a place, one of each that waits
            with suppress(TimeoutError):
                async with asyncio.timeout(15):
                    closed = front.closed_connections
                    while sum(closed().values()) < 1001 - 512 or not front.connections:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
            assert front.connections <= 512
            metrics = apart._web.metrics
            text = metrics_text([*metrics._calls(), *metrics._moment()]).decode()
        told = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        ended = 'podwright_connections_ended_total{{door="grpc",reason="{}"}}'
        gone = sum(float(told[ended.format(why)]) for why in ("refused", "evicted"))
        if gone >= 1001 - 512 and float(told['podwright_connections{door="grpc"}']) > 0:
            return
    pytest.fail(f"of a thousand connections {gone} were ended")


async def test_a_gate_takes_the_calls_of_virm(apart: Server) -> None:
    method = virm.VIRM_METHODS["GetVersion"]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{apart.port}") as channel:
        answer = await channel.unary_unary(method.path)(b"", wait_for_ready=True, timeout=120)
    assert method.reply.FromString(answer).version
