"""Redfish zones: requests, refusals, and a session that ends; over HTTP and with mutants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from podwright.agents import FabricDevice, FabricDriver, FabricJournal, MemoryFabricJournal
from podwright.agents.fabric import (
    FabricReading,
    FabricTiming,
    HttpAnswer,
    HttpManager,
    OrderedFabric,
    Redfish,
    RedfishZones,
)
from podwright.agents.fabric._intent_journal import FabricIntent
from podwright.errors import Internal, Unavailable, WrongState
from podwright.testing import (
    FABRIC_PATH,
    ContractBroken,
    RedfishServer,
    RedfishStandIn,
    check_fabric_driver,
    endpoint_path,
    standin_inventory,
)
from tests.machines.redfish_rig import MakeDriver, RedfishRig

MACHINES = {"h1": 4, "h2": 4}
Devices = frozenset[FabricDevice]


@pytest.fixture
def service() -> RedfishStandIn:
    """Two hosts with four devices each."""
    return RedfishStandIn(MACHINES)


@pytest.fixture
def server(service: RedfishStandIn) -> Iterator[RedfishServer]:
    """The service behind HTTP."""
    found = RedfishServer(service)
    yield found
    found.close()


def driver(transport: Any, patience: float = 25.0) -> OrderedFabric:
    """A driver as the server makes it, which does not sleep."""
    timing = FabricTiming(patience, sleep=lambda _: None)
    zones = RedfishZones(Redfish(transport, timing), FABRIC_PATH, standin_inventory(MACHINES))
    return OrderedFabric(zones, MemoryFabricJournal(), timing)


def paths(machine: str, *indices: int) -> set[str]:
    """A zone's endpoints: the host's, and these devices'."""
    return {endpoint_path(machine), *(endpoint_path(machine, index) for index in indices)}


async def test_each_host_has_a_zone_of_its_own(server: RedfishServer) -> None:
    fabric = driver(HttpManager("Redfish", server.url))
    await fabric.join("a", 1, {"h1": [0, 1], "h2": [3]})
    await fabric.join("a", 2, {"h1": [2]})
    assert server.service.endpoints_by_zone() == {
        "podwright-a-h1": paths("h1", 0, 1, 2),
        "podwright-a-h2": paths("h2", 3),
    }
    assert server.service.calls == ["POST", "POST", "PATCH"]
    for zone in server.service.zones.values():
        assert zone["ZoneType"] == "ZoneOfEndpoints"
        assert zone["ExternalAccessibility"] == "ZoneOnly"
    assert {name: len(found) for name, found in (await fabric.read()).partitions.items()} == {
        "a": 4
    }
    await fabric.leave(3, {"h1": [0, 1, 2], "h2": [3]})
    assert server.service.endpoints_by_zone() == {}


async def test_a_double_composition_that_the_service_permits_is_refused(
    service: RedfishStandIn,
) -> None:
    service.add_zone("tenant", [endpoint_path("h1", 0)])
    fabric = driver(service)
    with pytest.raises(WrongState, match="device 0 of machine h1 is in zone tenant"):
        await fabric.join("a", 1, {"h1": [0, 1]})
    await fabric.join("a", 2, {"h1": [1]})
    with pytest.raises(WrongState, match="device 1 of machine h1 is in partition a"):
        await fabric.join("b", 3, {"h1": [1]})
    assert service.calls == ["POST"]


async def test_a_zone_that_changed_meanwhile_is_not_overwritten(service: RedfishStandIn) -> None:
    class Meanwhile:
        def request(
            self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
        ) -> HttpAnswer:
            if method == "PATCH":
                assert headers is not None
                assert headers["If-Match"]
                service.zones[path]["@odata.etag"] = "another"
            return service.request(method, path, body, headers)

    await driver(service).join("a", 1, {"h1": [0]})
    with pytest.raises(Unavailable, match="was changed by somebody else meanwhile: 412"):
        await driver(Meanwhile()).join("a", 2, {"h1": [1]})
    assert service.endpoints_by_zone() == {"podwright-a-h1": paths("h1", 0)}


async def test_actions_are_used_where_they_are_offered(service: RedfishStandIn) -> None:
    await driver(service).join("a", 1, {"h1": [0]})
    (path,) = service.zones
    sent: list[tuple[str, Any]] = []

    class Acting:
        def request(
            self, method: str, target: str, body: Any = None, headers: Any = None
        ) -> HttpAnswer:
            if not target.startswith(f"{path}/Actions/"):
                return service.request(method, target, body, headers)
            sent.append((target.rpartition("/")[2], body))
            service.zones[path]["Links"]["Endpoints"].append(body["Endpoint"])
            return HttpAnswer(204, {}, b"")

    service.zones[path]["Actions"] = {
        "#Zone.AddEndpoint": {"target": f"{path}/Actions/Zone.AddEndpoint"}
    }
    await driver(Acting()).join("a", 2, {"h1": [1]})
    assert sent == [
        (
            "Zone.AddEndpoint",
            {
                "Endpoint": {"@odata.id": endpoint_path("h1", 1)},
                "ZoneETag": service.zones[path]["@odata.etag"],
            },
        )
    ]
    assert service.endpoints_by_zone() == {"podwright-a-h1": paths("h1", 0, 1)}


async def test_what_is_no_device_is_not_composed(service: RedfishStandIn) -> None:
    service.endpoints[endpoint_path("h1", 0)] = "Switch"
    with pytest.raises(Unavailable, match=r"device 0 of machine h1 cannot be joined: .*'Switch'"):
        await driver(service).join("a", 1, {"h1": [0]})
    service.endpoints[endpoint_path("h2")] = "Processor"
    with pytest.raises(Internal, match="the host of machine h2 cannot be used"):
        await driver(service).join("a", 2, {"h2": [0]})
    assert service.calls == []


def test_a_session_is_opened_renewed_and_ended() -> None:
    seen: list[tuple[str, str, str]] = []
    valid = {"first"}

    class Sessions:
        def request(
            self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
        ) -> HttpAnswer:
            token = (headers or {}).get("X-Auth-Token", "")
            seen.append((method, path.rpartition("/")[2], token))
            if path.endswith("/Sessions"):
                assert body == {"UserName": "user", "Password": "secret"}
                token = "second" if len(seen) > 2 else "first"
                location = "https://elsewhere.example/redfish/v1/SessionService/Sessions/7"
                return HttpAnswer(201, {"x-auth-token": token, "location": location}, b"{}")
            if method == "GET" and token not in valid:
                return HttpAnswer(401, {}, b"{}")
            return HttpAnswer(200, {}, b"{}")

    service = Redfish(Sessions(), login=("user", "secret"))
    service.get("/redfish/v1/a")
    valid = {"second"}
    service.get("/redfish/v1/b")
    service.close()
    assert seen == [
        ("POST", "Sessions", ""),
        ("GET", "a", "first"),
        ("GET", "b", "first"),
        ("POST", "Sessions", ""),
        ("GET", "b", "second"),
        ("DELETE", "7", "second"),
    ]


# -- the kit catches what is wrong ---------------------------------------------------------------


def made(
    rig: RedfishRig,
    journal: FabricJournal,
    zones: type[RedfishZones] = RedfishZones,
    ordered: type[OrderedFabric] = OrderedFabric,
) -> FabricDriver:
    """A driver of these parts."""
    service = Redfish(rig, rig.timing)
    return ordered(zones(service, FABRIC_PATH, rig.inventory), journal, rig.timing)


def believes(rig: RedfishRig, journal: FabricJournal) -> FabricDriver:
    """Nothing is read back."""

    class Believing(OrderedFabric):
        def _confirm_outcome(self, intent: FabricIntent, expected: Mapping[str, Devices]) -> None:
            """Nothing."""

    return made(rig, journal, ordered=Believing)


def never_withdraws(rig: RedfishRig, journal: FabricJournal) -> FabricDriver:
    """A device that somebody else took meanwhile stays in both zones."""

    class Stubborn(OrderedFabric):
        def _give_back_contested(self, intent: FabricIntent, reading: FabricReading) -> None:
            """Nothing."""

    return made(rig, journal, ordered=Stubborn)


def joins_hosts(rig: RedfishRig, journal: FabricJournal) -> FabricDriver:
    """All hosts of a partition are in one zone."""

    class Joining(RedfishZones):
        def _create(self, title: str, endpoints: list[str]) -> None:
            super()._create(title, [*endpoints, endpoint_path("h0"), endpoint_path("h1")])

    return made(rig, journal, Joining)


def takes_foreign_for_free(rig: RedfishRig, journal: FabricJournal) -> FabricDriver:
    """What the service permits is done."""

    class Greedy(RedfishZones):
        def read(self, devices: Any, machines: Any = ()) -> FabricReading:
            reading = super().read(devices, machines)
            return replace(reading, foreign={}, free=reading.free | reading.foreign.keys())

    return made(rig, journal, Greedy)


@pytest.mark.parametrize(
    "mutant",
    [believes, never_withdraws, joins_hosts, takes_foreign_for_free],
    ids=lambda mutant: mutant.__name__,
)
async def test_a_driver_with_a_defect_is_caught(mutant: MakeDriver) -> None:
    for seed in range(60):
        try:
            await check_fabric_driver(RedfishRig(seed, mutant), seed)
        except ContractBroken:
            return
    pytest.fail(f"{mutant.__name__} survives 60 lives")
