"""Composable devices behind a Redfish composition service, as `OrderedFabric` drives them.

A partition is one composed system for each host, named `podwright-NAME-MACHINE`. The system
consists of the resource block of the host and the resource blocks of its devices (DSP2050, specific
composition). A service that offers the action `CompositionService.Compose` gets one manifest for
each system; every other service gets a POST to its systems. A service may accept a block that is in
another system already (DMTF's emulator does), so the driver checks that itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from podwright.agents._fabric_driver_interface import FabricDevice, FabricReading
from podwright.agents.fabric._device_matching import FabricInventory
from podwright.agents.fabric._redfish_client import REDFISH_ROOT, Redfish, RedfishResource
from podwright.agents.fabric._redfish_zones import RedfishZones, critical_problem
from podwright.errors import NotFound

COMPOSITION = f"{REDFISH_ROOT}/CompositionService"
_SYSTEMS_PATH = f"{REDFISH_ROOT}/Systems"
#: The types of a resource block (ResourceBlock.v1, ResourceBlockType) that can stand for a host.
_HOST_BLOCK_TYPES = ("Compute", "ComputerSystem")
#: The states of a resource block (CompositionState) in which it cannot be composed.
_UNUSABLE_STATES = ("Failed", "Unavailable")


class RedfishComposition(RedfishZones):
    """A FabricHardware over one composition service. The inventory names resource blocks."""

    link = "ResourceBlocks"
    noun = "system"

    def __init__(self, service: Redfish, inventory: FabricInventory) -> None:
        super().__init__(service, "", inventory)
        self._task_roots = _SYSTEMS_PATH, COMPOSITION

    def read(
        self, devices: Iterable[FabricDevice], machines: Collection[str] = ()
    ) -> FabricReading:
        """See `FabricHardware.read`.

        A block also names the systems that it is in. A system that is not in the list of systems
        belongs to another party.
        """
        reading = super().read(devices, machines)
        listed_paths = {system.path for system in self._zones()}
        foreign = dict(reading.foreign)
        for device in reading.free:
            resource_block = self._endpoint_resource(device)
            for system_path in (
                resource_block.links("Links", "ComputerSystems")
                if resource_block is not None
                else ()
            ):
                if system_path not in listed_paths:
                    foreign[device] = f"system {system_path}"
        return replace(reading, foreign=foreign, free=reading.free - foreign.keys())

    def _zones(self) -> list[RedfishResource]:
        """Return the systems that are composed of blocks. All others are the service's own
        machines.
        """
        systems = self._service.members(_SYSTEMS_PATH)
        return [system for system in systems if system.links("Links", self.link)]

    def _create(self, title: str, endpoints: list[str]) -> None:
        request = {"Id": title, "Name": title, **self._links(endpoints)}
        path = self._compose_path()
        if not path:
            self._service.change("POST", _SYSTEMS_PATH, request)
            return
        stanza = {"StanzaType": "ComposeSystem", "StanzaId": title, "Request": request}
        manifest = {"Description": title, "Expand": "None", "Stanzas": [stanza]}
        manifest_request = {
            "RequestFormat": "Manifest",
            "RequestType": "Apply",
            "Manifest": manifest,
        }
        self._service.change("POST", path, manifest_request)

    def _compose_path(self) -> str:
        """Return the address of the Compose action; empty when it is not offered."""
        service = self._service.get(COMPOSITION)
        if service is None:
            raise NotFound(f"the Redfish service has no {COMPOSITION}")
        actions = service.document.get("Actions")
        action = actions.get("#CompositionService.Compose") if isinstance(actions, Mapping) else {}
        target_path = action.get("target") if isinstance(action, Mapping) else None
        return target_path if isinstance(target_path, str) else ""

    def _unfit_reason(self, member: RedfishResource, allowed_types: tuple[str, ...]) -> str:
        listed_types = member.document.get("ResourceBlockType")
        block_types = (
            {str(block_type) for block_type in listed_types}
            if isinstance(listed_types, list)
            else set()
        )
        if not block_types and (member.links("Processors") or member.links("ComputerSystems")):
            block_types = {"Compute"}  # some services leave the type out, as DMTF's emulator does
        if "RootComplex" in allowed_types and not block_types & set(_HOST_BLOCK_TYPES):
            return f"{member.path} is {sorted(block_types) or 'of no named type'}, and not a host"
        composition_status = member.document.get("CompositionStatus")
        composition_state = (
            composition_status.get("CompositionState")
            if isinstance(composition_status, Mapping)
            else None
        )
        if composition_state in _UNUSABLE_STATES:
            return f"the composition state of {member.path} is {composition_state}"
        return critical_problem(member)
