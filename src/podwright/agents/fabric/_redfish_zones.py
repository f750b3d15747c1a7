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

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from podwright.agents._fabric_driver_interface import FabricDevice, FabricReading, attached_name
from podwright.agents.fabric._device_matching import FabricInventory
from podwright.agents.fabric._redfish_client import Redfish, RedfishResource
from podwright.errors import Internal, NotFound

#: The prefix of the names of Podwright's zones.
ZONE_PREFIX = "podwright-"
#: The entity types of a device (Endpoint.v1, EntityType), and those that stand for a host.
_DEVICE_ENTITY_TYPES, _HOST_ENTITY_TYPE = ("Processor", "AccelerationFunction"), "RootComplex"


class RedfishZones:
    """A FabricHardware over one Redfish fabric. fabric: its path, `/redfish/v1/Fabrics/PCIe`.

    A subclass may keep a partition in other resources than zones: `link` names the property of such
    a resource that lists its members.
    """

    kind = "Redfish"
    side_by_side = True
    link = "Endpoints"
    noun = "zone"

    def __init__(self, service: Redfish, fabric: str, inventory: FabricInventory) -> None:
        self._service = service
        self._zones_path = f"{fabric.rstrip('/')}/Zones"
        #: The paths below which tasks change partitions.
        self._task_roots: tuple[str, ...] = (self._zones_path,)
        self._inventory = inventory
        #: See `PoolDriver`.
        self.hosts = inventory.hosts()

    def settle(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.settle`."""
        paths = {self._endpoint_path(device) for device in devices}
        zones = {
            zone.path
            for zone in self._zones()
            if (partition and self._owner_and_place(zone)[0] == partition)
            or not paths.isdisjoint(zone.links("Links", self.link))
        }
        words = {*paths, f"{ZONE_PREFIX}{partition.partition('@')[0]}-"} if partition else paths

        def concerns(target: str, body: str | None) -> bool:
            if any(target == zone or target.startswith(f"{zone}/") for zone in zones):
                return True
            # A change that will add one of the devices tells so only in its body.
            return target.startswith(self._task_roots) and (
                body is None or any(word in body for word in words)
            )

        self._service.wait_for_tasks(concerns)

    def read(
        self, devices: Iterable[FabricDevice], machines: Collection[str] = ()
    ) -> FabricReading:
        """See `FabricHardware.read`."""
        if machines:  # the controller compares, and wants to hear of changes
            self._service.listen_for_events()
        wanted_devices = dict.fromkeys(devices)
        device_by_path = self._device_of(
            {device.machine for device in wanted_devices}.union(machines)
        )
        wanted_devices.update(
            (device, None) for device in device_by_path.values() if device.machine in machines
        )
        endpoints = {device: self._endpoint_resource(device) for device in wanted_devices}
        partitions: dict[str, frozenset[FabricDevice]] = {}
        foreign: dict[FabricDevice, str] = {}
        doubts: dict[str, str] = {}
        zone_by_device: dict[FabricDevice, str] = {}
        partition_by_zone: dict[str, str] = {}
        for zone in self._zones():
            title = str(zone.document.get("Name") or "")
            member_paths = zone.links("Links", self.link)
            members = {device_by_path[path] for path in member_paths if path in device_by_path}
            partition_name, machine_or_host = self._owner_and_place(zone)
            for device in members:
                if device in zone_by_device:
                    conflict = (
                        f"{device} is in {self.noun}s {zone_by_device[device]} and {zone.path}"
                    )
                    doubts.update(
                        dict.fromkeys(
                            {partition_by_zone[zone_by_device[device]], partition_name}, conflict
                        )
                    )
                zone_by_device[device] = zone.path
            partition_by_zone[zone.path] = partition_name
            if not machine_or_host:
                foreign.update(dict.fromkeys(members, f"{self.noun} {title or zone.path}"))
                continue
            if problem := self._misplacement(zone, machine_or_host, members):
                doubts[partition_name] = problem
            partitions[partition_name] = partitions.get(partition_name, frozenset()) | members
        free_devices = {
            endpoint_device
            for endpoint_device, endpoint in endpoints.items()
            if endpoint is not None
        } - zone_by_device.keys()
        unfit_devices = {
            device: problem
            for device, endpoint in endpoints.items()
            if endpoint is not None
            and (problem := self._unfit_reason(endpoint, _DEVICE_ENTITY_TYPES))
        }
        doubts.pop("", None)
        return FabricReading(
            partitions, foreign, frozenset(free_devices), doubts, ill=unfit_devices
        )

    def add(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.add`."""
        # Two partitions may have zones of one name, so zones are told apart by their hosts as well.
        zone_by_owner = {self._owner_and_place(zone): zone for zone in self._zones()}
        partition_name, is_attached, host = partition.partition("@")
        devices_by_host: dict[str, list[FabricDevice]] = {}
        for device in sorted(devices):
            if is_attached and not self._inventory.pooled(device.machine):
                raise Internal(f"{device} has a home, and is not attached to host {host}")
            devices_by_host.setdefault(host if is_attached else device.machine, []).append(device)
        for machine_or_host, joined_devices in devices_by_host.items():
            added_paths = [self._endpoint_path(device) for device in joined_devices]
            if (zone := zone_by_owner.get((partition, machine_or_host))) is None:
                self._create(
                    f"{ZONE_PREFIX}{partition_name}-{machine_or_host}",
                    [self._host_endpoint_path(machine_or_host), *added_paths],
                )
            else:
                present_paths = zone.links("Links", self.link)
                self._set_endpoints(
                    zone,
                    [
                        *present_paths,
                        *(path for path in added_paths if path not in present_paths),
                    ],
                )

    def remove(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.remove`."""
        leaving_paths = {self._endpoint_path(device) for device in devices}
        for zone in self._zones():
            partition_name, machine_or_host = self._owner_and_place(zone)
            if partition_name != partition or not machine_or_host:
                continue
            present_paths = zone.links("Links", self.link)
            remaining_paths = [path for path in present_paths if path not in leaving_paths]
            if remaining_paths == present_paths:
                continue
            if remaining_paths == [self._inventory.host(machine_or_host)] or not remaining_paths:
                self._service.change("DELETE", zone.path, tag=zone.tag)
            else:
                self._set_endpoints(zone, remaining_paths)

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

    def _set_endpoints(self, zone: RedfishResource, endpoint_paths: list[str]) -> None:
        """Set the endpoints of a zone: by its actions if it offers them, else by PATCH."""
        present_paths = zone.links("Links", self.link)
        for action_name, changed_paths in (
            (
                "#Zone.AddEndpoint",
                [
                    endpoint_path
                    for endpoint_path in endpoint_paths
                    if endpoint_path not in present_paths
                ],
            ),
            (
                "#Zone.RemoveEndpoint",
                [
                    endpoint_path
                    for endpoint_path in present_paths
                    if endpoint_path not in endpoint_paths
                ],
            ),
        ):
            actions = zone.document.get("Actions")
            action = actions.get(action_name) if isinstance(actions, Mapping) else None
            action_path = action.get("target") if isinstance(action, Mapping) else None
            if not changed_paths:
                continue
            if not isinstance(action_path, str):
                self._service.change("PATCH", zone.path, self._links(endpoint_paths), zone.tag)
                return
            for endpoint_path in changed_paths:
                self._send_action(action_path, zone.path, endpoint_path)

    def _send_action(self, action_path: str, zone_path: str, endpoint_path: str) -> None:
        """Send one action on one endpoint, with the tags that both resources have now."""
        zone, endpoint = self._service.get(zone_path), self._service.get(endpoint_path)
        if zone is None or endpoint is None:
            raise NotFound(
                f"the Redfish service has no {endpoint_path if zone else zone_path} any more"
            )
        body: dict[str, Any] = {"Endpoint": {"@odata.id": endpoint_path}}
        if zone.tag:
            body["ZoneETag"] = zone.tag
        if endpoint.tag:
            body["EndpointETag"] = endpoint.tag
        self._service.change("POST", action_path, body)

    # -- identities ------------------------------------------------------------------------------

    def _endpoint_path(self, device: FabricDevice) -> str:
        return self._inventory.identity(device).name

    def _device_of(self, machines: set[str]) -> dict[str, FabricDevice]:
        listed_devices = self._inventory.devices(sorted(machines))
        return {identity.name: device for device, identity in listed_devices}

    def _endpoint_resource(self, device: FabricDevice) -> RedfishResource | None:
        return self._service.get(self._endpoint_path(device))

    def _host_endpoint_path(self, machine_or_host: str) -> str:
        """Return the path of the endpoint of a host. Raises Internal when it is of another kind."""
        path = self._inventory.host(machine_or_host)
        endpoint = self._service.get(path)
        if endpoint is None:
            raise NotFound(
                f"the Redfish service has no endpoint {path} of the host of {machine_or_host}"
            )
        if problem := self._unfit_reason(endpoint, (_HOST_ENTITY_TYPE,)):
            noun = "host" if machine_or_host in self.hosts else "the host of machine"
            raise Internal(f"{noun} {machine_or_host} cannot be used: {problem}")
        return path

    def _owner_and_place(self, zone: RedfishResource) -> tuple[str, str]:
        """Return a zone's partition and its place; two empty texts for a foreign zone.

        Names of partitions and places may contain hyphens, so the host in the zone decides where
        the name divides.
        """
        zone_name = str(zone.document.get("Name") or "")
        unprefixed_name = zone_name.removeprefix(ZONE_PREFIX)
        candidates = [
            machine_or_host
            for machine_or_host in (*self._inventory.machines(), *self.hosts)
            if not self._inventory.pooled(machine_or_host)
            and unprefixed_name.endswith(f"-{machine_or_host}")
            and len(unprefixed_name) > len(machine_or_host) + 1
        ]
        if not candidates or unprefixed_name == zone_name:
            return "", ""
        present_paths = zone.links("Links", self.link)
        confirmed = [
            machine_or_host
            for machine_or_host in candidates
            if self._inventory.host(machine_or_host) in present_paths
        ]
        machine_or_host = max(confirmed or candidates, key=len)
        partition_name = unprefixed_name[: -len(machine_or_host) - 1]
        return attached_name(
            partition_name, machine_or_host
        ) if machine_or_host in self.hosts else partition_name, machine_or_host

    def _misplacement(
        self, zone: RedfishResource, machine_or_host: str, members: set[FabricDevice]
    ) -> str:
        """Return how a zone of Podwright's differs from those that this driver makes. Empty: it
        does not.
        """
        if machine_or_host in self.hosts:
            foreign_devices = {
                member for member in members if not self._inventory.pooled(member.machine)
            }
        else:
            foreign_devices = {device for device in members if device.machine != machine_or_host}
        if foreign_devices:
            return f"{self.noun} {zone.path} of {machine_or_host} has {min(foreign_devices)}"
        allowed_paths = {self._endpoint_path(device) for device in members} | {
            self._inventory.host(machine_or_host)
        }
        unknown_paths = set(zone.links("Links", self.link)) - allowed_paths
        if unknown_paths:
            return f"{self.noun} {zone.path} has the unknown member {min(unknown_paths)}"
        if self._inventory.host(machine_or_host) not in zone.links("Links", self.link):
            return f"{self.noun} {zone.path} has not the endpoint of its host"
        return ""

    def _links(self, endpoint_paths: list[str]) -> dict[str, Any]:
        return {"Links": {self.link: [{"@odata.id": path} for path in endpoint_paths]}}

    def _unfit_reason(self, member: RedfishResource, allowed_types: tuple[str, ...]) -> str:
        """Return why a member is of another kind, or in critical health. Empty: it is fit."""
        entities = member.document.get("ConnectedEntities")
        entity_types = {
            entity.get("EntityType")
            for entity in (entities if isinstance(entities, list) else [])
            if isinstance(entity, Mapping)
        }
        if not entity_types & set(allowed_types):
            return f"{member.path} is {sorted(map(str, entity_types)) or 'of no named type'}"
        return critical_problem(member)


def critical_problem(member: RedfishResource) -> str:
    """Return the problem of a resource that reports the health Critical; empty for every other."""
    status = member.document.get("Status")
    is_critical = isinstance(status, Mapping) and status.get("Health") == "Critical"
    return f"the health of {member.path} is Critical" if is_critical else ""
