"""The fault kit over Acme's driver: `python check_fabric.py [LIVES]`.

A rig stands between the driver and a switch. It injects faults into requests, and tells the kit
what is really joined and which ports reach each other.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from acme_pods.fabric import PREFIX, AcmeFabric, Switch

from podwright.agents import FabricDevice, FabricDriver, FabricJournal
from podwright.agents.fabric import FabricTiming, OrderedFabric
from podwright.errors import Unavailable
from podwright.testing import (
    FabricFault,
    FabricTruth,
    Killed,
    RequestGate,
    VirtualTime,
    check_fabric_driver,
)

Devices = frozenset[FabricDevice]
#: What can happen to a request to this switch.
FAULTS = (
    FabricFault.LIE,
    FabricFault.REFUSED,
    FabricFault.DROPPED_ANSWER,
    FabricFault.KILL_BEFORE,
    FabricFault.KILL_AFTER,
)


class FaultySwitch(Switch):
    """A switch whose requests go wrong where the rig says so."""

    def __init__(self, ports: Iterable[FabricDevice]) -> None:
        super().__init__(ports)
        self.fault: FabricFault | None = None
        self.gate: RequestGate | None = None

    def add(self, group: str, ports: Iterable[FabricDevice]) -> None:
        """See `Switch.add`."""
        self._request(lambda: Switch.add(self, group, ports))

    def remove(self, group: str, ports: Iterable[FabricDevice]) -> None:
        """See `Switch.remove`."""
        self._request(lambda: Switch.remove(self, group, ports))

    def _request(self, change: Callable[[], None]) -> None:
        gate, self.gate = self.gate, None
        if gate is not None:
            gate.pass_through()
        fault, self.fault = self.fault, None
        if fault is FabricFault.KILL_BEFORE:
            raise Killed
        if fault is FabricFault.REFUSED:
            raise Unavailable("the switch refuses")
        if fault is not FabricFault.LIE:
            change()
        if fault is FabricFault.KILL_AFTER:
            raise Killed
        if fault is FabricFault.DROPPED_ANSWER:
            raise Unavailable("the switch does not answer")


class AcmeRig:
    """A `podwright.testing.FabricRig` and a `DataPlane`."""

    machines: Mapping[str, int] = {"r1": 4, "r2": 4}

    def __init__(self) -> None:
        ports = [
            FabricDevice(name, i) for name, count in self.machines.items() for i in range(count)
        ]
        self.switch = FaultySwitch(ports)
        self.strangers: dict[str, Devices] = {}
        time = VirtualTime()
        self.timing = FabricTiming(25.0, time.clock, time.sleep)

    def driver(self, journal: FabricJournal) -> FabricDriver:
        """A driver in a process of its own."""
        return OrderedFabric(AcmeFabric(self.switch), journal, self.timing)

    def truth(self) -> FabricTruth:
        """What is really joined."""
        groups = {name: frozenset(members) for name, members in self.switch.groups.items()}
        ours = {n.removeprefix(PREFIX): m for n, m in groups.items() if n.startswith(PREFIX)}
        return FabricTruth(ours, {n: m for n, m in groups.items() if not n.startswith(PREFIX)})

    def reaches(self, device: FabricDevice, peer: FabricDevice) -> bool:
        """The data plane."""
        return self.switch.reaches(device, peer)

    def foreign(self) -> Mapping[str, Devices]:
        """What others joined."""
        return self.strangers

    def violations(self) -> Sequence[str]:
        """The switch sees none by itself."""
        return ()

    def inject(self, fault: FabricFault, random: Random) -> bool:
        """Let a fault happen to the next request, or let somebody else take a port."""
        if fault is FabricFault.FOREIGN_PARTITION and not self.strangers:
            grouped = {port for members in self.switch.groups.values() for port in members}
            port = random.choice(sorted(self.switch.ports - grouped) or [None])
            if port is not None:
                self.strangers["tenant"] = frozenset([port])
                self.switch.groups["tenant"] = {port}
            return port is not None
        if fault in FAULTS:
            self.switch.fault = fault
        return fault in FAULTS

    def gate(self) -> RequestGate:
        """Stop the next request."""
        self.switch.gate = RequestGate()
        return self.switch.gate

    def heal(self) -> None:
        """End all faults."""
        self.switch.fault = self.switch.gate = None


async def main(lives: int) -> None:
    """Raises ContractBroken, which names the life and the call."""
    faults = kills = 0
    for seed in range(lives):
        run = await check_fabric_driver(AcmeRig(), seed)
        faults, kills = faults + sum(run.injected.values()), kills + run.kills
    print(f"{lives} lives, {faults} faults, {kills} kills: the contract holds")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 12))
