"""Matches the devices of a fabric with the devices of machines, by identity and never by order.

The identities come from a file of the site, or from the attributes that a machine's agent reports
for its devices. The file is TOML:

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

from podwright.agents._fabric_driver import FabricDevice
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


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    machines: dict[str, MachineIdentity]
    hosts: dict[str, str] = {}


class FabricInventory:
    """The identities of all devices.

    reported: returns the agent's attributes for a machine that the file does not name. hosts: the
    endpoints of the hosts that devices of a pool may get.
    """

    def __init__(
        self,
        machines: Mapping[str, MachineIdentity],
        reported: ReportedAttributes = lambda _: (),
        hosts: Mapping[str, str] | None = None,
    ) -> None:
        self._machines = dict(machines)
        self._hosts = dict(hosts or {})
        if both := self._hosts.keys() & self._machines.keys():
            raise InvalidRequest(
                f"{min(both)} is a machine and a host of the fabric's inventory",
                would_work="give two names",
            )
        endpoints = list(self._hosts.values())
        if shared := {path for path in endpoints if endpoints.count(path) > 1 or not path}:
            raise InvalidRequest(
                f"two hosts of the fabric's inventory have the endpoint {min(shared)!r}"
            )
        self._reported = reported
        names = [name for machine in machines for name in self._of_machine(machine)]
        if len(twice := {n for n in names if names.count(n) > 1}) > 0:
            raise InvalidRequest(f"two machines of the fabric's inventory have {min(twice).name}")

    def identity(self, device: FabricDevice) -> DeviceIdentity:
        """Return the identity of one device. Raises NotFound when neither the file nor an agent has
        it.
        """
        identities = self._of_machine(device.machine)
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
        known = self._machines.get(machine)
        return known is not None and not known.host

    def host(self, machine: str) -> str:
        """Return the endpoint of a host, or of a machine's own host. Raises NotFound when none is
        named.
        """
        if machine in self._hosts:
            return self._hosts[machine]
        known = self._machines.get(machine)
        if known is None or not known.host:
            raise NotFound(
                f"the fabric's inventory names no host of machine {machine}",
                would_work=f'host = "…" under [machines.{machine}]',
            )
        return known.host

    def devices(
        self, machines: Sequence[str] = ()
    ) -> Iterator[tuple[FabricDevice, DeviceIdentity]]:
        """Return all devices of the file, and those of these machines.

        Raises Internal when two of them have one identity: an agent may report an identity that the
        file gives to another machine.
        """
        seen: dict[str, tuple[FabricDevice, str]] = {}
        for name in dict.fromkeys([*self._machines, *machines]):
            for index, identity in enumerate(self._of_machine(name)):
                if not identity.name:
                    continue
                device = FabricDevice(name, index)
                other, domain = seen.setdefault(identity.name, (device, identity.domain))
                if other != device and (domain == identity.domain or not domain):
                    raise Internal(
                        f"{other} and {device} are both {identity.name} of the fabric",
                        would_work="correct the fabric's inventory, or the agent of one of them",
                    )
                yield device, identity

    def _of_machine(self, name: str) -> list[DeviceIdentity]:
        machine = self._machines.get(name)
        if machine is None:
            return [_of_attributes(attributes) for attributes in self._reported(name)]
        place = machine.domain.lower(), machine.chassis, machine.slot, machine.tray
        return [DeviceIdentity(_canonical(text), *place) for text in machine.devices]


def read_inventory(path: Path, reported: ReportedAttributes = lambda _: ()) -> FabricInventory:
    """Read the inventory in a file. Raises InvalidRequest, which names the file."""
    try:
        tree = tomllib.loads(path.read_text())
        file = msgspec.convert(tree, _File)
        return FabricInventory(file.machines, reported, file.hosts)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, msgspec.ValidationError) as error:
        raise InvalidRequest(f"{path} is not an inventory of a fabric: {error}") from None
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}: {error.problem}") from None


def _of_attributes(attributes: Mapping[str, str]) -> DeviceIdentity:
    slot, tray = attributes.get("slot", ""), attributes.get("tray", "")
    return DeviceIdentity(
        _canonical(attributes.get("fabric guid", "")),
        attributes.get("fabric domain", "").lower(),
        attributes.get("chassis serial", ""),
        int(slot) if slot.isdecimal() else None,
        int(tray) if tray.isdecimal() else None,
    )


def _canonical(text: str | int) -> str:
    """Return a number in decimal digits, in whichever base it is written; any other text
    unchanged.
    """
    if isinstance(text, int):
        return str(text)
    return str(int(text, 16)) if text[:2].lower() == "0x" else text
