"""Compositions by Redfish: the manifest that is sent, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright.agents import FabricDevice, FabricSite, MemoryFabricJournal
from podwright.agents.fabric import (
    FabricTiming,
    HttpTransport,
    OrderedFabric,
    Redfish,
    RedfishComposition,
)
from podwright.errors import Internal, InvalidRequest, WrongState
from podwright.server import FabricOptions
from podwright.server.machines._choose_fabric_driver import fabric_driver
from podwright.testing import RedfishStandIn, endpoint_path
from tests.machines.composition_rig import CompositionFace, block_inventory, block_path

MACHINES = {"h1": 2, "h2": 2}


def driver(transport: HttpTransport) -> OrderedFabric:
    """A driver as the server makes it, which does not sleep."""
    timing = FabricTiming(sleep=lambda _: None)
    hardware = RedfishComposition(Redfish(transport, timing), block_inventory(MACHINES))
    return OrderedFabric(hardware, MemoryFabricJournal(), timing)


@pytest.fixture
def service() -> RedfishStandIn:
    """Two hosts with two devices each."""
    return RedfishStandIn(MACHINES)


async def test_the_action_is_used_where_it_is_offered(service: RedfishStandIn) -> None:
    face = CompositionFace(service, compose=True)
    fabric = driver(face)
    await fabric.join("a", 1, {"h1": [0, 1], "h2": [1]})
    assert [manifest["Manifest"]["Stanzas"] for manifest in face.sent] == [
        [
            {
                "StanzaType": "ComposeSystem",
                "StanzaId": f"podwright-a-{machine}",
                "Request": {
                    "Id": f"podwright-a-{machine}",
                    "Name": f"podwright-a-{machine}",
                    "Links": {
                        "ResourceBlocks": [
                            {"@odata.id": block_path(machine, index)} for index in (None, *indices)
                        ]
                    },
                },
            }
        ]
        for machine, indices in (("h1", (0, 1)), ("h2", (1,)))
    ]
    assert (await fabric.read()).partitions == {
        "a": {FabricDevice("h1", 0), FabricDevice("h1", 1), FabricDevice("h2", 1)}
    }
    await fabric.leave(2, {"h1": [0, 1], "h2": [1]})
    assert service.endpoints_by_zone() == {}


async def test_a_block_of_another_system_is_refused(service: RedfishStandIn) -> None:
    service.add_zone("tenant", [endpoint_path("h1", 0)])
    fabric = driver(CompositionFace(service, compose=False))
    with pytest.raises(WrongState, match="device 0 of machine h1 is in system tenant"):
        await fabric.join("a", 1, {"h1": [0, 1]})
    assert service.calls == []


async def test_a_host_has_to_be_a_compute_block(service: RedfishStandIn) -> None:
    service.endpoints[endpoint_path("h1")] = "Processor"
    with pytest.raises(Internal, match=r"Host is \['Processor'\], and not a host"):
        await driver(CompositionFace(service, compose=False)).join("a", 1, {"h1": [0]})
    assert service.endpoints_by_zone() == {}


def test_the_address_says_which_service_is_meant(tmp_path: Path) -> None:
    def connect(path: str) -> str:
        make = fabric_driver(FabricOptions("Redfish", f"https://manager.example{path}"))
        assert make is not None
        found = make(FabricSite(MemoryFabricJournal(), lambda _: ()))
        assert isinstance(found, OrderedFabric)
        return type(found._hardware).__name__

    assert connect("/redfish/v1/Fabrics/PCIe") == "RedfishZones"
    assert connect("/redfish/v1/CompositionService/") == "RedfishComposition"
    with pytest.raises(InvalidRequest, match=r"or https://HOST/redfish/v1/CompositionService"):
        connect("/redfish/v1")
