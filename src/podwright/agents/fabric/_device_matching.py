"""Matches the devices of a fabric with the devices of machines, by identity and never by order.

The identities come from a file of the site, or from the attributes that a machine's agent reports
for its devices. The file is TOML:

    free_partitions = ["tray_partition_*"]             # NMX-M's, whose GPUs count as free

    [machines.t0]
    domain = "3b7f0a1e-9a53-4f4e-8d6b-6f7f2f9d4c10"   # NMX-M's DomainUUID
    chassis = "1820324160012"                          # serial number; slot and tray alike
    slot = 11
    tray = 0
    devices = ["0x1a2b", "0x1a2c", "0x1a2d", "0x1a2e"] # DeviceUID, in the machine's order

    [machines.h1]                                      # Redfish
    host = "/redfish/v1/Fabrics/PCIe/Endpoints/Host1"
    devices = ["/redfish/v1/Fabrics/PCIe/Endpoints/Gpu1", "/redfish/v1/Fabrics/PCIe/Endpoints/Gpu2"]

    [machines.chassis1]                                # a pool: no host of its own
    devices = ["/redfish/v1/Fabrics/PCIe/Endpoints/Gpu3", "/redfish/v1/Fabrics/PCIe/Endpoints/Gpu4"]
    [hosts]                                            # the hosts that its devices may get
    n3 = "/redfish/v1/Fabrics/PCIe/Endpoints/Host3"
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from podwright.agents._fabric_driver_interface import FabricDevice
from podwright.errors import Internal, InvalidRequest, NotFound

#: Returns the attributes of each device of a machine, in the order of the devices, as its agent
#: reports them.
ReportedAttributes = Callable[[str], Sequence[Mapping[str, str]]]


class DeviceIdentity(NamedTuple):
    """The identity of one device.

    name: the fabric's name for the device: a DeviceUID in decimal digits, or the address of an
    endpoint. The other fields are compared where both sides have them: NMX-M's domain, the serial
    number of the chassis, slot and tray.
    """

    name: str
    domain: str = ""
    chassis: str = ""
    slot: int | None = None
    tray: int | None = None


class MachineIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One machine in the file. host: the endpoint of the host that its devices are attached to."""

    devices: tuple[str | int, ...]
    domain: str = ""
    chassis: str = ""
    slot: int | None = None
    tray: int | None = None
    host: str = ""


class _InventoryFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    machines: dict[str, MachineIdentity] = {}
    hosts: dict[str, str] = {}
    free_partitions: tuple[str, ...] = ()


class FabricInventory:
    """The identities of all devices.

    reported_attributes: returns the agent's attributes for a machine that the file does not name.
    hosts: the endpoints of the hosts that devices of a pool may get. free_partitions: patterns of
    the names of the fabric's partitions whose devices count as free, as in a shell.
    """

    def __init__(
        self,
        machines: Mapping[str, MachineIdentity],
        reported_attributes: ReportedAttributes = lambda _: (),
        hosts: Mapping[str, str] | None = None,
        free_partitions: Sequence[str] = (),
    ) -> None:
        self.free_partitions = tuple(free_partitions)
        self._machines = dict(machines)
        self._hosts = dict(hosts or {})
        if shared_names := self._hosts.keys() & self._machines.keys():
            raise InvalidRequest(
                f"{min(shared_names)} is a machine and a host of the fabric's inventory",
                would_work="give two names",
            )
        endpoints = list(self._hosts.values())
        if shared_endpoints := {
            endpoint for endpoint in endpoints if endpoints.count(endpoint) > 1 or not endpoint
        }:
            raise InvalidRequest(
                f"two hosts of the fabric's inventory have the endpoint {min(shared_endpoints)!r}"
            )
        self._reported = reported_attributes
        identities = [
            identity for machine in machines for identity in self._machine_devices(machine)
        ]
        if (
            len(
                duplicates := {
                    device_identity
                    for device_identity in identities
                    if identities.count(device_identity) > 1
                }
            )
            > 0
        ):
            raise InvalidRequest(
                f"two machines of the fabric's inventory have {min(duplicates).name}"
            )

    def identity(self, device: FabricDevice) -> DeviceIdentity:
        """Return the identity of one device. Raises NotFound when neither the file nor an agent has
        it.
        """
        identities = self._machine_devices(device.machine)
        if device.index < len(identities) and identities[device.index].name:
            return identities[device.index]
        raise NotFound(
            f"nothing tells which device of the fabric is {device}",
            would_work="--fabric-inventory FILE, or an agent that reports the GPUs' fabric guids",
        )

    def machines(self) -> tuple[str, ...]:
        """Return the machines that the file names."""
        return tuple(self._machines)

    def hosts(self) -> tuple[str, ...]:
        """Return the hosts that devices of a pool may get."""
        return tuple(self._hosts)

    def pooled(self, machine: str) -> bool:
        """Return whether a machine of the file is a chassis of a pool: it has no host."""
        identity = self._machines.get(machine)
        return identity is not None and not identity.host

    def host(self, machine: str) -> str:
        """Return the endpoint of a host, or of a machine's own host. Raises NotFound when none is
        named.
        """
        if machine in self._hosts:
            return self._hosts[machine]
        identity = self._machines.get(machine)
        if identity is None or not identity.host:
            raise NotFound(
                f"the fabric's inventory names no host of machine {machine}",
                would_work=f'host = "…" under [machines.{machine}]',
            )
        return identity.host

    def devices(
        self, machines: Sequence[str] = ()
    ) -> Iterator[tuple[FabricDevice, DeviceIdentity]]:
        """Return all devices of the file, and those of these machines.

        Raises Internal when two of them have one identity: an agent may report an identity that the
        file gives to another machine.
        """
        device_by_identity: dict[str, tuple[FabricDevice, str]] = {}
        for machine_name in dict.fromkeys([*self._machines, *machines]):
            for device_index, identity in enumerate(self._machine_devices(machine_name)):
                if not identity.name:
                    continue
                device = FabricDevice(machine_name, device_index)
                earlier_device, earlier_domain = device_by_identity.setdefault(
                    identity.name, (device, identity.domain)
                )
                if earlier_device != device and (
                    earlier_domain == identity.domain or not earlier_domain
                ):
                    raise Internal(
                        f"{earlier_device} and {device} are both {identity.name} of the fabric",
                        would_work="correct the fabric's inventory, or the agent of one of them",
                    )
                yield device, identity

    def _machine_devices(self, machine_name: str) -> list[DeviceIdentity]:
        machine_identity = self._machines.get(machine_name)
        if machine_identity is None:
            return [_reported_identity(attributes) for attributes in self._reported(machine_name)]
        location = (
            machine_identity.domain.lower(),
            machine_identity.chassis,
            machine_identity.slot,
            machine_identity.tray,
        )
        return [
            DeviceIdentity(_canonical_name(device_name), *location)
            for device_name in machine_identity.devices
        ]


def read_inventory(
    path: Path, reported_attributes: ReportedAttributes = lambda _: ()
) -> FabricInventory:
    """Read the inventory in a file. Raises InvalidRequest, which names the file."""
    try:
        toml_document = tomllib.loads(path.read_text())
        inventory_file = msgspec.convert(toml_document, _InventoryFile)
        return FabricInventory(
            inventory_file.machines,
            reported_attributes,
            inventory_file.hosts,
            inventory_file.free_partitions,
        )
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, msgspec.ValidationError) as error:
        raise InvalidRequest(f"{path} is not an inventory of a fabric: {error}") from None
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}: {error.problem}") from None


def _reported_identity(attributes: Mapping[str, str]) -> DeviceIdentity:
    slot, tray = attributes.get("slot", ""), attributes.get("tray", "")
    return DeviceIdentity(
        _canonical_name(attributes.get("fabric guid", "")),
        attributes.get("fabric domain", "").lower(),
        attributes.get("chassis serial", ""),
        int(slot) if slot.isdecimal() else None,
        int(tray) if tray.isdecimal() else None,
    )


def _canonical_name(device_name: str | int) -> str:
    """Return a number in decimal digits, in whichever base it is written; any other text
    unchanged.
    """
    if isinstance(device_name, int):
        return str(device_name)
    return str(int(device_name, 16)) if device_name[:2].lower() == "0x" else device_name
