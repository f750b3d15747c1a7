"""A large pod on the page: numbers of its link domains, and one thing when somebody opens it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from podwright.agents import SimulatedMachine
from podwright.controller import Caller, Controller, Role
from podwright.controller.state._records import DrainRecord
from podwright.fabric import Cluster, LinkDomain, Machine, family_named
from podwright.page import DOMAIN_STATES, FOLDED_FROM
from podwright.server import Identity, ListenOptions, Server
from podwright.server import _folded_pod as folded_pod
from podwright.store import MemoryStore
from podwright.wire import CreateRequest, PartitionName, PartitionSpec, RemoveRequest
from tests.server.test_web import get

ROOT = Caller("root", 0, Role.ADMINISTRATOR, "unix")
DOMAINS = FOLDED_FROM // 64 + 1


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    family = family_named("ipu")
    assert family is not None
    return Cluster(
        "large",
        family,
        tuple(
            LinkDomain(f"d{n}", tuple(Machine(f"m{n:02}-{at:02}") for at in range(16)))
            for n in range(DOMAINS)
        ),
        simulated=True,
    )


@pytest.fixture
async def server(cluster: Cluster) -> AsyncIterator[Server]:
    machines = [machine for domain in cluster.domains for machine in domain.machines]
    drivers = {machine.name: SimulatedMachine(machine, cluster.family) for machine in machines}
    controller = Controller(MemoryStore(), [cluster], drivers, version="test")
    listen = ListenOptions(None, host=None, web=("127.0.0.1", 0))
    made = Server(controller, listen, identity=Identity(secure=False))
    await made.start()
    yield made
    await made.stop(0)


async def asked(server: Server, path: str) -> Any:
    head, _, body = (await get(server, path)).partition("\r\n\r\n")
    found = json.loads(body)
    found["status"] = int(head.split()[1])
    return found


async def create(server: Server, name: str, size: int) -> None:
    spec = PartitionSpec(name=name, size=size)
    await server.controller.create_partition(ROOT, CreateRequest(spec=spec))


async def overview(server: Server) -> Any:
    page = server._web.page
    assert page is not None
    caller = page._server.anonymous()
    assert caller is not None
    return await page._snapshot(caller)


def domain(topics: Any, number: int) -> dict[str, int]:
    counts = zip(DOMAIN_STATES, topics["domains"][f"large/{number}"], strict=True)
    return {state: count for state, count in counts if count}


async def test_numbers_follow_what_happens_and_only_that_is_looked_at(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = await overview(server)
    assert len(topics["domains"]) == DOMAINS
    assert not topics.keys() & {"devices", "partitions", "leases", "machines"}
    summary, looked = server.controller.observer.summary, list[int]()
    look_at = summary._look_at

    def noted(cluster: Any, number: int) -> None:
        looked.append(number)
        look_at(cluster, number)

    monkeypatch.setattr(summary, "_look_at", noted)
    await create(server, "p1", 4)
    topics = await overview(server)
    assert len(looked) == 1
    assert domain(topics, looked[0]) == {"FREE": 60, "IN_USE": 4}
    assert topics["totals"]["partitions"] == {"count": 1}
    assert topics["fragments"]["large"]["free"] == DOMAINS * 64 - 4
    state = server.controller._state
    state.mark_down("m05-00")
    cluster = state.inventory.clusters["large"]
    cluster.drains["m06-01"] = DrainRecord(reason="fan 3 is loud")
    cluster.touch_machine("m06-01")
    topics = await overview(server)
    assert sorted(looked[1:]) == [5, 6]
    assert domain(topics, 5) == {"FREE": 60, "DOWN": 4}
    assert domain(topics, 6) == {"FREE": 60, "DRAINED": 4}
    problems = {problem["about"] for problem in topics["problems"].values()}
    assert {"m05-00", "m06-01"} <= problems
    await server.controller.remove_partition(ROOT, RemoveRequest(name="p1"))
    assert domain(await overview(server), looked[0]) == {"FREE": 64}
    fresh = type(summary)(state)
    await fresh.refresh()
    assert fresh.domains == summary.domains
    assert +fresh.states == +summary.states


async def test_a_link_domain_that_is_opened_has_its_devices_and_their_partitions(
    server: Server,
) -> None:
    await create(server, "p1", 8)
    devices = (await server.controller.get_partition(ROOT, PartitionName(name="p1"))).gcds[0]
    number = devices[0].domain
    topics = (await asked(server, f"/v1/domain?name={quote(f'large/{number}')}"))["topics"]
    assert len(topics["devices"]) == 64
    assert {key.rpartition("/")[0] for key in topics["devices"]} == {f"large/{number}"}
    assert sum(row[3] == "p1" for row in topics["devices"].values()) == 8
    assert list(topics["partitions"]) == ["p1"]
    assert list(topics["machines"]) == [f"m{number:02}-{at:02}" for at in range(16)]
    for wrong in ("large/99", "large/x", "small/0", "large"):
        assert (await asked(server, f"/v1/domain?name={quote(wrong)}"))["status"] == 404


async def test_a_table_comes_in_parts_and_is_searched_on_the_server(server: Server) -> None:
    for number in range(5):
        await create(server, f"p{number}", 1)
    names, after, parts = [], "", 0
    while after or not parts:
        part = await asked(server, f"/v1/table?topic=partitions&limit=2&after={after}")
        names += list(part["topics"]["partitions"])
        after, parts = part["next"], parts + 1
    assert (names, parts) == ([f"p{number}" for number in range(5)], 3)
    found = await asked(server, "/v1/table?topic=partitions&find=P3")
    assert list(found["topics"]["partitions"]) == ["p3"]
    one = await asked(server, "/v1/table?topic=partitions&name=p4")
    assert (list(one["topics"]["partitions"]), len(one["topics"]["devices"])) == (["p4"], 1)
    none = await asked(server, "/v1/table?topic=partitions&name=gone")
    assert (none["status"], none["topics"]["partitions"]) == (200, {})
    machines = await asked(server, "/v1/table?topic=machines&find=m03-&limit=10")
    assert (len(machines["topics"]["machines"]), machines["next"]) == (10, "m03-09")
    rest = await asked(server, "/v1/table?topic=machines&find=m03-&limit=10&after=m03-09")
    assert (len(rest["topics"]["machines"]), rest["next"]) == (6, "")
    for wrong in ("", "topic=users", "topic=leases&limit=0", "topic=leases&x=1"):
        assert (await asked(server, f"/v1/table?{wrong}"))["status"] == 400, wrong


async def test_many_problems_are_counted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folded_pod, "PROBLEMS_SHOWN", 3)
    for number in range(8):
        server.controller._state.mark_down(f"m{number:02}-00")
    topics = await overview(server)
    assert len(topics["problems"]) == 3
    assert topics["totals"]["problems"] == {"count": 8}


async def test_the_owner_of_devices_that_are_down_is_named_in_a_large_pod(server: Server) -> None:
    await create(server, "p1", 4)
    entry = server.controller._state.partitions.get("p1")
    assert entry is not None
    (machine,) = entry.machines
    server.controller._state.mark_down(machine)
    problems = (await overview(server))["problems"]
    assert problems[f"silent-agent/{machine}"]["cause"].endswith("partitions on it: p1 of root")
