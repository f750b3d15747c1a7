"""HTTP to read only: health, figures, lists, and what is refused."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator

import pytest

from podwright.agents import SimulatedMachine
from podwright.cli._logs import JsonLines
from podwright.controller import Caller, Controller, Role
from podwright.fabric import preset
from podwright.server import Identity, Server
from podwright.store import MemoryStore
from podwright.wire import CreateRequest, InvalidRequest, PartitionSpec

ROOT = Caller("root", 0, Role.ADMINISTRATOR)


def make(*, secure: bool = False, host: str = "127.0.0.1") -> Server:
    cluster = preset("pod4")
    machines = [m for d in cluster.domains for m in d.machines]
    drivers = {m.name: SimulatedMachine(m, cluster.family) for m in machines}
    controller = Controller(MemoryStore(), [cluster], drivers, version="test")
    identity = Identity(secure=secure)
    return Server(controller, socket_path=None, host=None, web=(host, 0), identity=identity)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = make()
    await made.start()
    yield made
    await made.stop(0)


async def get(server: Server, path: str, verb: str = "GET", host: str = "localhost:1") -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.web_port)
    writer.write(f"{verb} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 120)
    writer.close()
    return answer.decode()


async def test_it_says_how_it_is(server: Server) -> None:
    spec = PartitionSpec(name="p1", size=2)
    await server.controller.create_partition(ROOT, CreateRequest(spec=spec))
    assert (await get(server, "/healthz")).startswith("HTTP/1.1 200")
    lines = (await get(server, "/metrics")).splitlines()
    assert 'podwright_devices{cluster="pod4",state="FREE"} 2' in lines
    assert 'podwright_devices{cluster="pod4",state="IN_USE"} 2' in lines
    assert 'podwright_partitions{state="ACTIVE"} 1' in lines
    assert "podwright_clusters 1" in lines
    assert "podwright_waiters 0" in lines
    body = (await get(server, "/v1/partitions?x=1")).partition("\r\n\r\n")[2]
    assert json.loads(body)["partitions"][0]["name"] == "p1"
    assert (await get(server, "/v1/partitions", "HEAD")).endswith("\r\n\r\n")


@pytest.mark.parametrize(
    ("path", "verb", "host", "status"),
    [
        ("/nothing", "GET", "localhost", "404"),
        ("/v1/users", "GET", "localhost", "404"),
        ("/v1/partitions", "POST", "localhost", "405"),
        ("/v1/partitions", "GET", "evil.example:80", "421"),
        ("/v1/partitions", "GET", "127.0.0.1:9", "200"),
    ],
)
async def test_what_is_not_to_be_had(
    server: Server, path: str, verb: str, host: str, status: str
) -> None:
    assert (await get(server, path, verb, host)).split()[1] == status


async def test_a_secure_server_shows_no_lists() -> None:
    server = make(secure=True)
    await server.start()
    try:
        assert (await get(server, "/v1/partitions")).split()[1] == "401"
        assert (await get(server, "/healthz")).split()[1] == "200"
    finally:
        await server.stop(0)


def test_it_stays_on_loopback_unless_told() -> None:
    with pytest.raises(InvalidRequest, match="--listen-anywhere"):
        make(host="0.0.0.0")


def test_log_lines_are_json() -> None:
    record = logging.LogRecord("podwright", logging.INFO, "f", 1, 'a "b"\n%s', ("c",), None)
    line = JsonLines().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == 'a "b"\nc'
