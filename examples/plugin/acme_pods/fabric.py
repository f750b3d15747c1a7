"""Acme's switch between machines: `vipu-server --fabric acme`.

The hardware makes single requests and says what there is. Order, refusals, the journal and the
reading back are Podwright's (`OrderedFabric`).
"""

from collections.abc import Collection, Iterable

from podwright.agents import FabricDevice, FabricDriver, FabricSite
from podwright.agents.fabric import FabricReading, OrderedFabric

#: Before the names of our groups on the switch, which others use too.
PREFIX = "podwright-"


class Switch:
    """The switch: groups of ports by name. A port is in at most one. A real one is elsewhere."""

    def __init__(self, ports: Iterable[FabricDevice] = ()) -> None:
        self.ports = set(ports)
        self.groups: dict[str, set[FabricDevice]] = {}

    def reaches(self, device: FabricDevice, peer: FabricDevice) -> bool:
        """Does what one port sends arrive at the other?"""
        return any({device, peer} <= members for members in self.groups.values())

    def add(self, group: str, ports: Iterable[FabricDevice]) -> None:
        """Put ports into a group."""
        self.groups.setdefault(group, set()).update(ports)

    def remove(self, group: str, ports: Iterable[FabricDevice]) -> None:
        """Take ports out of a group, which goes with its last one."""
        rest = self.groups.get(group, set()).difference(ports)
        self.groups.pop(group, None)
        if rest:
            self.groups[group] = rest


class AcmeFabric:
    """What `OrderedFabric` drives: a `podwright.agents.fabric.FabricHardware`."""

    kind = "Acme"

    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    def settle(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """The switch works on one request after the other."""

    def read(
        self, devices: Iterable[FabricDevice], machines: Collection[str] = ()
    ) -> FabricReading:
        """The groups: ours, and those of others, whose ports are not to be taken."""
        ours, foreign = {}, {}
        for name, members in self._switch.groups.items():
            if name.startswith(PREFIX):
                ours[name.removeprefix(PREFIX)] = frozenset(members)
            else:
                foreign.update(dict.fromkeys(members, f"group {name}"))
        grouped = {port for members in self._switch.groups.values() for port in members}
        return FabricReading(ours, foreign, frozenset(self._switch.ports - grouped))

    def add(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """One request to the switch."""
        self._switch.add(PREFIX + partition, devices)

    def remove(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """One request to the switch."""
        self._switch.remove(PREFIX + partition, devices)


#: Where there is no real switch: two rings of four.
SWITCH = Switch(FabricDevice(ring, port) for ring in ("r1", "r2") for port in range(4))


def fabric(site: FabricSite) -> FabricDriver:
    """What `vipu-server --fabric acme` drives."""
    return OrderedFabric(AcmeFabric(SWITCH), site.journal)
