"""A worker that no connection reaches is called through the API server, if that is permitted.

The API server here is a stand-in that runs the commands of pods/exec on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import ssl
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import WSMsgType, web

from podwright.guests.kubernetes.workers import _worker_call
from podwright.guests.kubernetes.workers._pods_exec_client import ExecTarget, Tunnel
from podwright.guests.kubernetes.workers._worker_call import WorkerNotReached, WorkerUnusable
from podwright.guests.kubernetes.workers._worker_call import call as reach_and_run
from podwright.hosts import EXEC_VARIABLE, KEYS_VARIABLE, WORKER_VARIABLE, WORKERS_VARIABLE
from tests.certificates import JOB_KEYS, OTHER_KEYS, SERVER
from tests.guests.kubernetes.test_worker_door import new_name, wait_for

#: No TCP connection leads to an address of many.
NOWHERE = "224.0.0.1"
TOKEN = "the-launcher-s"


class ApiServer:
    """asked: the requests to pods/exec. status: the code with which it refuses all; 0: it refuses
    none.
    """

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.status = 0
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Start to listen. Returns when it listens."""
        app = web.Application()
        app.router.add_get("/api/v1/namespaces/team/pods/{pod}/exec", self._exec)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(SERVER / "cert.pem", SERVER / "key.pem")
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        assert self._runner
        await self._runner.cleanup()

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        command = request.query.getall("command")
        self.asked.append(command)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise web.HTTPUnauthorized
        if self.status:
            return web.Response(status=self.status)
        assert (request.query["container"], request.query["stdin"]) == ("main", "true")
        line = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await line.prepare(request)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        assert process.stdin
        assert process.stdout
        assert process.stderr
        outs = [
            asyncio.create_task(_pass_out(line, 1, process.stdout)),
            asyncio.create_task(_pass_out(line, 2, process.stderr)),
        ]
        ends = asyncio.create_task(_close(line, outs))
        async for message in line:
            if message.type is WSMsgType.BINARY and message.data[0] == 0:
                process.stdin.write(message.data[1:])
                await process.stdin.drain()
        process.stdin.close()
        await process.wait()
        await asyncio.gather(*outs, ends, return_exceptions=True)
        return line


async def _pass_out(line: web.WebSocketResponse, kind: int, source: asyncio.StreamReader) -> None:
    while data := await source.read(65536):
        await line.send_bytes(bytes([kind]) + data)


async def _close(line: web.WebSocketResponse, outs: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*outs, return_exceptions=True)
    await line.close()


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiServer]:
    account = tmp_path / "account"
    account.mkdir()
    shutil.copy(SERVER / "ca.pem", account / "ca.crt")
    (account / "token").write_text(f"{TOKEN}\n")
    monkeypatch.setattr("podwright.guests.kubernetes.workers._pods_exec_client.ACCOUNT", account)
    made = ApiServer()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def worker() -> AsyncIterator[str]:
    """A worker's service, and its name."""
    name = new_name()
    environ = {**os.environ, WORKER_VARIABLE: name, KEYS_VARIABLE: str(JOB_KEYS)}
    words = [sys.executable, "-P", "-m", "podwright.guests.kubernetes.workers._worker_door"]
    process = await asyncio.create_subprocess_exec(*words, env=environ, start_new_session=True)
    assert await _call(name, "127.0.0.1", "true", patience=300) == 0
    yield name
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _environ(
    name: str, address: str, server: ApiServer | None = None, keys: Path = JOB_KEYS
) -> dict[str, str]:
    said = {WORKERS_VARIABLE: f"{name}={address}", KEYS_VARIABLE: str(keys)}
    if server is None:
        return said
    at = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
    return said | at | {EXEC_VARIABLE: "team/main"}


async def _call(
    name: str,
    address: str,
    *words: str,
    server: ApiServer | None = None,
    keys: Path = JOB_KEYS,
    patience: float = 0,
) -> int:
    return await reach_and_run(
        name, words, _environ(name, address, server, keys), timeout_s=patience
    )


async def test_words_run_there_with_our_streams_and_their_exit_code(
    server: ApiServer, worker: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    script = "head -c 1000000 /dev/zero; cat; echo bad >&2; exit 7"
    assert await _call(worker, NOWHERE, "sh", "-c", script, server=server) == 7
    said = capfdbinary.readouterr()
    assert said.out == b"\0" * 1_000_000
    way, bad = said.err.decode().splitlines()
    assert bad == "bad"
    assert way.startswith(f"podwright: worker {worker}: it does not answer: ")
    assert way.endswith("it is called through the API server (pods/exec)")
    # What is run, and what it says, is between launcher and worker.
    assert [command[1:4] for command in server.asked] == [
        ["-P", "-m", "podwright.guests.kubernetes.workers._worker_tunnel"]
    ]
    assert await _call(worker, NOWHERE, "sh", "-c", "kill -9 $$", server=server) == 137


async def test_who_is_reached_is_not_called_so(server: ApiServer, worker: str) -> None:
    assert await _call(worker, "127.0.0.1", "true", server=server) == 0
    with pytest.raises(WorkerNotReached):  # as without the right to it
        await _call(worker, NOWHERE, "true")
    assert server.asked == []


async def test_other_keys_get_in_neither_way(
    server: ApiServer, worker: str, tmp_path: Path
) -> None:
    words = ["touch", str(tmp_path / "ran")]
    with pytest.raises(WorkerUnusable, match="does not answer") as refused:
        await _call(worker, "127.0.0.1", *words, server=server, keys=OTHER_KEYS)
    assert not isinstance(refused.value, WorkerNotReached)
    assert server.asked == []
    with pytest.raises(
        WorkerUnusable, match=r"through the API server: (it does not answer|nothing answers)"
    ):
        await _call(worker, NOWHERE, *words, server=server, keys=OTHER_KEYS)
    assert server.asked
    assert not (tmp_path / "ran").exists()


async def test_what_stands_in_the_way_is_said(server: ApiServer) -> None:
    name = new_name()
    with pytest.raises(
        WorkerUnusable, match=r"224.*through the API server: nothing answers at its port"
    ):
        await _call(name, NOWHERE, "true", server=server)
    server.status = 403
    asked = len(server.asked)
    with pytest.raises(WorkerUnusable, match="the API server refuses pods/exec: 403"):
        await _call(name, NOWHERE, "true", server=server)
    assert len(server.asked) == asked + 1
    await server.stop()
    with pytest.raises(WorkerUnusable, match="the API server does not answer: "):
        await _call(name, NOWHERE, "true", server=server)
    await server.start()


async def test_the_end_of_a_caller_is_that_of_its_words_input(
    server: ApiServer, worker: str, tmp_path: Path
) -> None:
    began, ended = tmp_path / "began", tmp_path / "ended"
    account = tmp_path / "account"
    main = "import asyncio, os, sys; from pathlib import Path; "
    main += "from podwright.guests.kubernetes.workers import _worker_call, _pods_exec_client; "
    main += f"_pods_exec_client.ACCOUNT = Path({str(account)!r}); name, *words = sys.argv[1:]; "
    main += "asyncio.run(_worker_call.call(name, words, os.environ, timeout_s=0))"
    caller = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", main, worker, "sh", "-c", f"touch {began}; cat; touch {ended}"),
        env={**os.environ, **_environ(worker, NOWHERE, server)},
        stdin=PIPE,
        stderr=PIPE,
    )
    await asyncio.to_thread(wait_for, began)
    caller.kill()
    await asyncio.to_thread(wait_for, ended)
    await caller.communicate()


async def test_a_tunnel_that_cannot_be_made_is_named_as_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextlib.asynccontextmanager
    async def no_sockets(*_: object) -> AsyncIterator[Tunnel]:
        raise OSError(errno.EMFILE, "Too many open files")
        yield  # an asynchronous generator

    monkeypatch.setattr(_worker_call, "open_tunnel", no_sockets)
    target = ExecTarget("ns", "box", "https://127.0.0.1:1", Path("/nowhere"))
    async with contextlib.AsyncExitStack() as stack:
        with pytest.raises(WorkerUnusable, match="Too many open files"):
            await _worker_call._reach_through_api_server(
                "w", target, ssl.create_default_context(), stack
            )
