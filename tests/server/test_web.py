"""HTTP to read only: health, figures, lists, and what is refused."""

from __future__ import annotations

import asyncio
import json
import logging
import platform
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from podwright import __version__
from podwright.agents import SimulatedMachine
from podwright.controller import Caller, Controller, Role, Visible
from podwright.errors import InvalidRequest, NotFound
from podwright.fabric import preset
from podwright.gate._gate_process import Setup
from podwright.gate._grpc_server import UNFINISHED_S
from podwright.guests.slurm.hooks._hook_server import REMOTE_LIMITS
from podwright.http._listener_state import Limits
from podwright.http._metrics_front import _METRICS_LISTENER_LIMITS as FIGURES
from podwright.server import Identity, ListenOptions, Server
from podwright.server._call_counts import CallCounts
from podwright.server._metrics import METRICS_MAX_AGE_S, Metrics
from podwright.server._web_front import LIMITS
from podwright.server.command._log_destination import JsonLineFormatter
from podwright.store import MemoryStore
from podwright.wire import (
    METHODS,
    CreateRequest,
    ListRequest,
    PartitionInfo,
    PartitionName,
    PartitionSpec,
)

ROOT = Caller("root", 0, Role.ADMINISTRATOR)


def make(
    *, secure: bool = False, host: str = "127.0.0.1", visible: Visible | None = None
) -> Server:
    cluster = preset("pod4")
    machines = [m for d in cluster.domains for m in d.machines]
    drivers = {m.name: SimulatedMachine(m, cluster.family) for m in machines}
    controller = Controller(MemoryStore(), [cluster], drivers, version="test", visible=visible)
    identity = Identity(secure=secure)
    return Server(controller, ListenOptions(None, host=None, web=(host, 0)), identity=identity)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = make()
    await made.start()
    yield made
    await made.stop(0)


async def get(server: Server, path: str, verb: str = "GET", host: str = "localhost:1") -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.web_port)
    head = f"{verb} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode())
    answer = await asyncio.wait_for(reader.read(), 120)
    writer.close()
    return answer.decode()


async def test_healthz_answers_and_lists_have_every_field(server: Server) -> None:
    spec = PartitionSpec(name="p1", size=2)
    await server.controller.create_partition(ROOT, CreateRequest(spec=spec))
    assert (await get(server, "/healthz")).startswith("HTTP/1.1 200")
    found = await listed(server, "/v1/partitions")
    assert found["partitions"][0]["name"] == "p1"
    assert found["partitions"][0].keys() == set(PartitionInfo.__struct_fields__), "defaults too"
    assert (await listed(server, "/v1/leases"))["leases"] == []
    assert (await get(server, "/v1/partitions", "HEAD")).endswith("\r\n\r\n")


async def listed(server: Server, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await get(server, path)).partition("\r\n\r\n")[2])
    return found


async def test_lists_come_in_pages_to_who_asks_for_them(server: Server) -> None:
    for n in range(3):
        spec = PartitionSpec(name=f"p{n}", size=1)
        await server.controller.create_partition(ROOT, CreateRequest(spec=spec))
    names, token, pages = [], "", 0
    while token or not pages:
        found = await listed(server, f"/v1/partitions?page_size=2&page_token={quote(token)}")
        names += [each["name"] for each in found["partitions"]]
        token, pages = found["next_page_token"], pages + 1
    assert (names, pages) == (["p0", "p1", "p2"], 2)
    assert (await get(server, "/v1/partitions?cluster=nowhere")).split()[1] == "404"
    for wrong in ("x=1", "page_size=two", "page_size=-1", "page_size=1&page_size=2"):
        assert (await get(server, f"/v1/partitions?{wrong}")).split()[1] == "400", wrong


async def test_metrics_can_be_read_by_prometheus_and_each_is_explained(server: Server) -> None:
    """Prometheus' own parser reads them, and each has its words."""
    spec = PartitionSpec(name="p1", size=2)
    await server.controller.create_partition(ROOT, CreateRequest(spec=spec))
    await server.calls(ROOT, METHODS["ListLeases"], ListRequest())
    with pytest.raises(NotFound):
        await server.calls(ROOT, METHODS["GetPartition"], PartitionName(name="no"))
    text = (await get(server, "/metrics")).partition("\r\n\r\n")[2]
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert all(family.documentation for family in families.values())
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert found["podwright_devices", "FREE", "pod4"] == 2
    assert found["podwright_devices", "IN_USE", "pod4"] == 2
    assert found["podwright_machines", "UP", "pod4"] == 1
    assert found["podwright_owner_devices", "root"] == 2
    assert found["podwright_partitions", "ACTIVE", "pod4"] == 1
    assert found["podwright_clusters",] == 1
    assert found["podwright_waiters",] == 0
    assert found["podwright_epoch",] == 1
    assert found["podwright_active",] == 1
    assert found["podwright_errors_total", "NOT_FOUND"] == 1
    assert found["podwright_calls_total",] >= 2
    assert found["podwright_call_duration_seconds_count", "ListLeases"] >= 1
    assert found["podwright_call_duration_seconds_bucket", "+Inf", "ListLeases"] >= 1
    assert found["podwright_build_info", *sorted((__version__, platform.python_version()))] == 1
    assert ("process_resident_memory_bytes",) in found


async def test_no_series_is_a_partitions_and_of_owners_only_the_largest_are_named(
    server: Server,
) -> None:
    for n in range(4):
        owner = Caller(f"user{n}", 1000 + n, Role.USER, "unix")
        spec = PartitionSpec(name=f"secret{n}", size=1)
        await server.controller.create_partition(owner, CreateRequest(spec=spec))
    (machine,) = server.controller.clusters[0].domains[0].machines
    server.controller._state.mark_down(machine.name)
    with mock.patch("podwright.controller._pod_observer.OWNERS_SHOWN", 3):
        text = (await get(server, "/metrics")).partition("\r\n\r\n")[2]
    assert "secret" not in text
    assert text.count("podwright_owner_devices{") == 3
    assert f'podwright_machine_down{{cluster="pod4",machine="{machine.name}"}} 1.0' in text
    assert 'podwright_devices{cluster="pod4",state="DOWN"} 4.0' in text


@pytest.mark.parametrize("private", ["partitions", "devices"])
async def test_owners_are_not_named_where_partitions_are_private(private: str) -> None:
    server = make(visible=Visible(private=frozenset({private})))
    await server.start()
    spec = PartitionSpec(name="p1", size=2)
    await server.controller.create_partition(ROOT, CreateRequest(spec=spec))
    text = (await get(server, "/metrics")).partition("\r\n\r\n")[2]
    await server.stop(0)
    assert 'podwright_devices{cluster="pod4",state="IN_USE"} 2.0' in text
    assert "owner" not in text


async def test_scrapes_share_what_was_gathered() -> None:
    """A hundred at once look at the pod once; and a slow look holds up nobody."""
    looks: list[int] = []
    began, go, now = asyncio.Event(), asyncio.Event(), 0.0

    async def refresh() -> None:
        looks.append(1)
        began.set()
        await go.wait()

    observer: Any = mock.MagicMock()
    observer.summary.refresh, observer.summary.states = refresh, {}
    observer.machine_states.return_value = ({}, [])
    observer.definitions.return_value = observer.partition_states = {}
    observer.lease_states.return_value, observer.waiting = {}, 0

    metrics = Metrics(
        CallCounts(), dict, list, dict, lambda: observer, lambda: False, clock=lambda: now
    )
    scrapes = [asyncio.create_task(metrics.text()) for _ in range(100)]
    await began.wait()
    scrapes[0].cancel()  # whoever began it may go
    go.set()
    texts = await asyncio.gather(*scrapes, return_exceptions=True)
    assert len({text for text in texts[1:] if isinstance(text, bytes)}) == 1
    assert len(looks) == 1
    await metrics.text()
    assert len(looks) == 1
    now = METRICS_MAX_AGE_S + 1
    await metrics.text()
    assert len(looks) == 2


async def test_silent_connections_keep_no_probe_out(server: Server) -> None:
    """Sixty-four once did."""
    most = LIMITS.each
    silent = [await asyncio.open_connection("127.0.0.1", server.web_port) for _ in range(most + 50)]
    assert (await get(server, "/healthz")).startswith("HTTP/1.1 200")
    assert len(server._web.door.visitors) <= most
    for _, writer in silent:
        writer.close()


@pytest.mark.parametrize(
    ("path", "verb", "host", "status"),
    [
        ("/nothing", "GET", "localhost", "404"),
        ("/v1/users", "GET", "localhost", "404"),
        ("/v1/partitions", "POST", "localhost", "405"),
        ("/v1/partitions", "GET", "evil.example:80", "421"),
        ("/v1/partitions", "GET", "127.0.0.1:9", "200"),
        ("/v1/partitions", "GET", "LOCALHOST:9", "200"),
        ("/v1/partitions", "GET", "10.0.0.5", "200"),
        ("/v1/partitions", "GET", "[::1]:9", "200"),
        ("/v1/partitions", "GET", "127.0.0.1:8091.evil.com", "421"),
        ("/v1/partitions", "GET", "127.0.0.1:8091:80", "421"),
        ("/v1/partitions", "GET", "127.0.0.1:", "421"),
        ("/v1/partitions", "GET", "127.0.0.1:99999", "421"),
        ("/v1/partitions", "GET", "[::1].evil.com", "421"),
        ("/v1/partitions", "GET", "1.2.3", "421"),
        ("/v1/partitions", "GET", "localhost\r\nHost: localhost", "400"),
        ("/pod", "GET", "127.0.0.1:8091.evil.com", "421"),
        ("/pod", "GET", "localhost\r\nHost: evil.com", "400"),
    ],
)
async def test_unknown_paths_methods_and_hosts_are_refused(
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


def test_the_web_port_stays_on_loopback_unless_told() -> None:
    with pytest.raises(InvalidRequest, match="--listen-anywhere"):
        make(host="0.0.0.0")


def test_the_guide_says_what_each_door_takes() -> None:
    page = (Path(__file__).parents[2] / "docs/admin/guide.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    said = {
        row[0].strip("| "): f"{row[1]} | {row[2].partition(';')[0]}"
        for row in rows
        if len(row) == 4
    }
    gate, silent = Setup(0, 0), f"requests whole within {UNFINISHED_S:g} s"
    for door, limits, each in (
        ("Unix socket", Limits(), "512 of a uid"),
        ("HTTP: page, figures and lists", LIMITS, "512 of an address"),
        (
            "HTTP: figures alone (`vipu-agent`, the service beside slurmctld)",
            FIGURES,
            "64 of an address",
        ),
    ):
        assert each.startswith(f"{limits.each} ")
        assert said[door] == f"{limits.connections:,}; {each} | {limits.idle:g} s"
    assert said["gRPC on TCP"] == f"{gate.connections:,}; {gate.each} of an address | {silent}"
    assert said["Slurm's hooks on TCP"] == f"{REMOTE_LIMITS.connections} | {REMOTE_LIMITS.idle:g} s"


def test_log_lines_are_json() -> None:
    record = logging.LogRecord("podwright", logging.INFO, "f", 1, 'a "b"\n%s', ("c",), None)
    line = JsonLineFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == 'a "b"\nc'
