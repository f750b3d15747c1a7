"""Composable devices behind a Redfish fabric, as `OrderedFabric` drives them.

A partition is one Zone for each host, named `podwright-NAME-MACHINE`. The zone contains the
endpoint of the host's root complex and the endpoints of its devices. Two hosts in one zone would
see each other's devices. A service may accept a device that is in another zone already (DMTF's
emulator does), so the driver checks that itself.

Devices of a pool have no host of their own. They are joined under the name PARTITION@HOST
(`attached_name`), which is one zone, named `podwright-PARTITION-HOST`, with the endpoint of that
host. Below, a zone's place is the machine or the host in its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from podwright.agents._fabric_driver import FabricDevice, attached_name
from podwright.agents.fabric._fabric_hardware import FabricReading
from podwright.agents.fabric._identities import FabricInventory
from podwright.agents.fabric._redfish import Redfish, RedfishResource
from podwright.errors import Internal, NotFound

#: The prefix of the names of Podwright's zones.
ZONE_PREFIX = "podwright-"
#: The entity types of a device (Endpoint.v1, EntityType), and those that stand for a host.
_DEVICES, _HOST = ("Processor", "AccelerationFunction"), "RootComplex"


class RedfishZones:
    """A FabricHardware over one Redfish fabric. fabric: its path, `/redfish/v1/Fabrics/PCIe`.

    A subclass may keep a partition in other resources than zones: `link` names the property of such
    a resource that lists its members.
    """

    kind = "Redfish"
    link = "Endpoints"
    noun = "zone"

    def __init__(self, service: Redfish, fabric: str, inventory: FabricInventory) -> None:
        self._service = service
        self._zones_path = f"{fabric.rstrip('/')}/Zones"
        self._inventory = inventory
        #: See `PoolDriver`.
        self.hosts = inventory.hosts()

    def settle(self) -> None:
        """See `FabricHardware.settle`."""
        self._service.wait_for_tasks(self._zones_path)

    def read(self, devices: Iterable[FabricDevice]) -> FabricReading:
        """See `FabricHardware.read`."""
        wanted = list(devices)
        device_of = self._device_of({device.machine for device in wanted})
        endpoints = {device: self._endpoint(device) for device in wanted}
        partitions: dict[str, frozenset[FabricDevice]] = {}
        foreign: dict[FabricDevice, str] = {}
        doubts: dict[str, str] = {}
        listed: dict[FabricDevice, str] = {}
        owned: dict[str, str] = {}
        for zone in self._zones():
            title = str(zone.document.get("Name") or "")
            paths = zone.links("Links", self.link)
            members = {device_of[path] for path in paths if path in device_of}
            name, place = self._owner(zone)
            for device in members:
                if device in listed:
                    text = f"{device} is in {self.noun}s {listed[device]} and {zone.path}"
                    doubts.update(dict.fromkeys({owned[listed[device]], name}, text))
                listed[device] = zone.path
            owned[zone.path] = name
            if not place:
                foreign.update(dict.fromkeys(members, f"{self.noun} {title or zone.path}"))
                continue
            if problem := self._misplaced(zone, place, members):
                doubts[name] = problem
            partitions[name] = partitions.get(name, frozenset()) | members
        free = {d for d, endpoint in endpoints.items() if endpoint is not None} - listed.keys()
        ill = {
            device: problem
            for device, endpoint in endpoints.items()
            if endpoint is not None and (problem := self._unfit(endpoint, _DEVICES))
        }
        doubts.pop("", None)
        return FabricReading(partitions, foreign, frozenset(free), doubts, ill=ill)

    def add(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.add`."""
        # Two partitions may have zones of one name, so zones are told apart by their hosts as well.
        zones = {self._owner(zone): zone for zone in self._zones()}
        name, attached, host = partition.partition("@")
        by_place: dict[str, list[FabricDevice]] = {}
        for device in sorted(devices):
            if attached and not self._inventory.pooled(device.machine):
                raise Internal(f"{device} has a home, and is not attached to host {host}")
            by_place.setdefault(host if attached else device.machine, []).append(device)
        for place, joined in by_place.items():
            added = [self._path(device) for device in joined]
            if (zone := zones.get((partition, place))) is None:
                self._create(
                    f"{ZONE_PREFIX}{name}-{place}", [self._host_endpoint_path(place), *added]
                )
            else:
                present = zone.links("Links", self.link)
                self._write(zone, [*present, *(path for path in added if path not in present)])

    def remove(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.remove`."""
        leaving = {self._path(device) for device in devices}
        for zone in self._zones():
            name, place = self._owner(zone)
            if name != partition or not place:
                continue
            present = zone.links("Links", self.link)
            rest = [path for path in present if path not in leaving]
            if rest == present:
                continue
            if rest == [self._inventory.host(place)] or not rest:
                self._service.change("DELETE", zone.path, tag=zone.tag)
            else:
                self._write(zone, rest)

    # -- requests --------------------------------------------------------------------------------

    def _zones(self) -> list[RedfishResource]:
        """Return all zones but the service's default one, whose devices are free."""
        zones = self._service.members(self._zones_path)
        return [zone for zone in zones if zone.document.get("ZoneType") != "Default"]

    def _create(self, title: str, endpoints: list[str]) -> None:
        body: dict[str, Any] = {
            "Name": title,
            "ZoneType": "ZoneOfEndpoints",
            "ExternalAccessibility": "ZoneOnly",
            **self._links(endpoints),
        }
        self._service.change("POST", self._zones_path, body)

    def _write(self, zone: RedfishResource, endpoints: list[str]) -> None:
        """Set the endpoints of a zone: by its actions if it offers them, else by PATCH."""
        present = zone.links("Links", self.link)
        for name, changed in (
            ("#Zone.AddEndpoint", [path for path in endpoints if path not in present]),
            ("#Zone.RemoveEndpoint", [path for path in present if path not in endpoints]),
        ):
            actions = zone.document.get("Actions")
            action = actions.get(name) if isinstance(actions, Mapping) else None
            target = action.get("target") if isinstance(action, Mapping) else None
            if not changed:
                continue
            if not isinstance(target, str):
                self._service.change("PATCH", zone.path, self._links(endpoints), zone.tag)
                return
            for path in changed:
                self._act(target, zone.path, path)

    def _act(self, target: str, zone_path: str, path: str) -> None:
        """Send one action on one endpoint, with the tags that both resources have now."""
        zone, endpoint = self._service.get(zone_path), self._service.get(path)
        if zone is None or endpoint is None:
            raise NotFound(f"the Redfish service has no {path if zone else zone_path} any more")
        body: dict[str, Any] = {"Endpoint": {"@odata.id": path}}
        if zone.tag:
            body["ZoneETag"] = zone.tag
        if endpoint.tag:
            body["EndpointETag"] = endpoint.tag
        self._service.change("POST", target, body)

    # -- identities ------------------------------------------------------------------------------

    def _path(self, device: FabricDevice) -> str:
        return self._inventory.identity(device).name

    def _device_of(self, machines: set[str]) -> dict[str, FabricDevice]:
        known = self._inventory.devices(sorted(machines))
        return {identity.name: device for device, identity in known}

    def _endpoint(self, device: FabricDevice) -> RedfishResource | None:
        return self._service.get(self._path(device))

    def _host_endpoint_path(self, place: str) -> str:
        """Return the path of the endpoint of a host. Raises Internal when it is of another kind."""
        path = self._inventory.host(place)
        endpoint = self._service.get(path)
        if endpoint is None:
            raise NotFound(f"the Redfish service has no endpoint {path} of the host of {place}")
        if problem := self._unfit(endpoint, (_HOST,)):
            noun = "host" if place in self.hosts else "the host of machine"
            raise Internal(f"{noun} {place} cannot be used: {problem}")
        return path

    def _owner(self, zone: RedfishResource) -> tuple[str, str]:
        """Return a zone's partition and its place; two empty texts for a foreign zone.

        Names of partitions and places may contain hyphens, so the host in the zone decides where
        the name divides.
        """
        title = str(zone.document.get("Name") or "")
        text = title.removeprefix(ZONE_PREFIX)
        able = [
            place
            for place in (*self._inventory.machines(), *self.hosts)
            if not self._inventory.pooled(place)
            and text.endswith(f"-{place}")
            and len(text) > len(place) + 1
        ]
        if not able or text == title:
            return "", ""
        present = zone.links("Links", self.link)
        sure = [place for place in able if self._inventory.host(place) in present]
        place = max(sure or able, key=len)
        name = text[: -len(place) - 1]
        return attached_name(name, place) if place in self.hosts else name, place

    def _misplaced(self, zone: RedfishResource, place: str, members: set[FabricDevice]) -> str:
        """Return how a zone of Podwright's differs from those that this driver makes. Empty: it
        does not.
        """
        if place in self.hosts:
            strangers = {d for d in members if not self._inventory.pooled(d.machine)}
        else:
            strangers = {device for device in members if device.machine != place}
        if strangers:
            return f"{self.noun} {zone.path} of {place} has {min(strangers)}"
        allowed = {self._path(device) for device in members} | {self._inventory.host(place)}
        unknown = set(zone.links("Links", self.link)) - allowed
        if unknown:
            return f"{self.noun} {zone.path} has the unknown member {min(unknown)}"
        if self._inventory.host(place) not in zone.links("Links", self.link):
            return f"{self.noun} {zone.path} has not the endpoint of its host"
        return ""

    def _links(self, members: list[str]) -> dict[str, Any]:
        return {"Links": {self.link: [{"@odata.id": path} for path in members]}}

    def _unfit(self, member: RedfishResource, kinds: tuple[str, ...]) -> str:
        """Return why a member is of another kind, or in critical health. Empty: it is fit."""
        entities = member.document.get("ConnectedEntities")
        entity_types = {
            entity.get("EntityType")
            for entity in (entities if isinstance(entities, list) else [])
            if isinstance(entity, Mapping)
        }
        if not entity_types & set(kinds):
            return f"{member.path} is {sorted(map(str, entity_types)) or 'of no named type'}"
        return critical(member)


def critical(member: RedfishResource) -> str:
    """Return the problem of a resource that reports the health Critical; empty for every other."""
    status = member.document.get("Status")
    bad = isinstance(status, Mapping) and status.get("Health") == "Critical"
    return f"the health of {member.path} is Critical" if bad else ""
