"""A Redfish composition service for the fault kit: the fabric's stand-in, spoken to by systems and
resource blocks instead of zones and endpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from podwright.agents import FabricDriver, FabricJournal
from podwright.agents.fabric import (
    COMPOSITION,
    FabricInventory,
    HttpAnswer,
    HttpTransport,
    MachineIdentity,
    OrderedFabric,
    Redfish,
    RedfishComposition,
)
from podwright.testing import FABRIC_PATH, endpoint_path
from tests.machines.redfish_rig import RedfishRig

_SYSTEMS, _ZONES = "/redfish/v1/Systems", f"{FABRIC_PATH}/Zones"
_BLOCKS, _ENDPOINTS = f"{COMPOSITION}/ResourceBlocks", f"{FABRIC_PATH}/Endpoints"
_ACTION = f"{COMPOSITION}/Actions/CompositionService.Compose"


def block_path(machine: str, index: int | None = None) -> str:
    """The resource block of a device; without an index, of the machine's host."""
    return endpoint_path(machine, index).replace(_ENDPOINTS, _BLOCKS)


def block_inventory(machines: Mapping[str, int]) -> FabricInventory:
    """The identities of all devices of a service with these machines and device counts."""
    return FabricInventory(
        {
            name: MachineIdentity(
                tuple(block_path(name, index) for index in range(count)), host=block_path(name)
            )
            for name, count in machines.items()
        }
    )


class CompositionFace:
    """A HttpTransport that offers a fabric's stand-in as a composition service.

    compose: whether it offers the action. sent: the manifests that arrived.
    """

    def __init__(self, fabric: HttpTransport, *, compose: bool) -> None:
        self._fabric = fabric
        self._compose = compose
        self.sent: list[Any] = []

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """See `HttpTransport.request`."""
        if path == COMPOSITION and method == "GET":
            actions = {"#CompositionService.Compose": {"target": _ACTION}} if self._compose else {}
            return HttpAnswer(200, {}, json.dumps({"Actions": actions}).encode())
        if path == _ACTION and self._compose:
            self.sent.append(body)
            (stanza,) = body["Manifest"]["Stanzas"]
            path, body = _SYSTEMS, stanza["Request"]
        answer = self._fabric.request(method, _to_fabric(path), _translated(body), headers)
        back = {name: _from_fabric(value) for name, value in answer.headers.items()}
        content = _from_fabric(answer.content.decode())
        return HttpAnswer(answer.status, back, content.encode())


def _to_fabric(text: str) -> str:
    return text.replace(_SYSTEMS, _ZONES).replace(_BLOCKS, _ENDPOINTS)


def _from_fabric(text: str) -> str:
    text = text.replace(_ZONES, _SYSTEMS).replace(_ENDPOINTS, _BLOCKS)
    text = text.replace('"Endpoints"', '"ResourceBlocks"')
    types = ("RootComplex", "Compute"), ("Processor", "Processor")
    for entity, block in types:
        entity_text = f'"ConnectedEntities": [{{"EntityType": "{entity}"}}]'
        text = text.replace(entity_text, f'"ResourceBlockType": ["{block}"]')
    return text


def _translated(body: Any) -> Any:
    if body is None:
        return None
    text = json.dumps(body).replace('"ResourceBlocks"', '"Endpoints"')
    return json.loads(_to_fabric(text))


class CompositionRig(RedfishRig):
    """A FabricRig over a composition service. Every third seed offers the action Compose."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, self._driver_of)
        self._compose = seed % 3 == 0

    def _driver_of(self, rig: RedfishRig, journal: FabricJournal) -> FabricDriver:
        service = Redfish(CompositionFace(rig, compose=self._compose), rig.timing)
        hardware = RedfishComposition(service, block_inventory(self.machines))
        return OrderedFabric(hardware, journal, rig.timing)
