"""A fabric in the manner of newer managers: one controller a domain, increments, return codes.

NVIDIA's NMX-C works so: it is given devices to add or to remove, and a code in its reply says how
that went. The names here are our own, and nothing is taken from its proprietary description. The
rig shows that `FabricHardware` needs nothing more for such a manager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from random import Random

import pytest

from podwright.agents import FabricDevice, FabricDriver, FabricJournal, FabricReading
from podwright.agents.fabric import FabricTiming, OrderedFabric
from podwright.errors import Internal, Unavailable
from podwright.testing import (
    FabricFault,
    FabricTruth,
    Killed,
    RequestGate,
    VirtualTime,
    check_fabric_driver,
)

Devices = frozenset[FabricDevice]
PREFIX = "podwright-"


class Code(IntEnum):
    """The results of a request, as a reply's header has them."""

    DONE = 0
    REFUSED = 1
    IN_USE = 2


class DomainController:
    """One domain: partitions change by increments, and only a code tells how that went."""

    def __init__(self, devices: Iterable[FabricDevice]) -> None:
        self.devices = frozenset(devices)
        self.partitions: dict[str, set[FabricDevice]] = {}

    def add(self, name: str, devices: Devices) -> Code:
        others = [members for key, members in self.partitions.items() if key != name]
        if any(not devices.isdisjoint(members) for members in others):
            return Code.IN_USE
        self.partitions.setdefault(name, set()).update(devices)
        return Code.DONE

    def remove(self, name: str, devices: Devices) -> Code:
        rest = self.partitions.pop(name, set()) - devices
        if rest:
            self.partitions[name] = rest
        return Code.DONE


class Domains:
    """A `FabricHardware` over several domains. endpoints: the controller of each, as data."""

    kind = "domains"
    side_by_side = True

    def __init__(
        self, endpoints: Mapping[str, DomainController], send: Callable[[Callable[[], Code]], Code]
    ) -> None:
        self._endpoints = endpoints
        self._send = send

    def settle(self, partition: str, devices: Devices) -> None:
        """A request ends before its reply."""

    def read(
        self, devices: Iterable[FabricDevice], machines: Collection[str] = ()
    ) -> FabricReading:
        ours: dict[str, Devices] = {}
        foreign: dict[FabricDevice, str] = {}
        known: set[FabricDevice] = set()
        for controller in self._endpoints.values():
            known |= controller.devices
            for name, members in controller.partitions.items():
                if name.startswith(PREFIX):
                    own = name.removeprefix(PREFIX)
                    ours[own] = ours.get(own, frozenset()) | members
                else:
                    foreign.update(dict.fromkeys(members, name))
        taken = frozenset().union(foreign, *ours.values())
        return FabricReading(ours, foreign, frozenset(known - taken))

    def add(self, partition: str, devices: Devices) -> None:
        self._each(devices, lambda controller, part: controller.add(PREFIX + partition, part))

    def remove(self, partition: str, devices: Devices) -> None:
        self._each(devices, lambda controller, part: controller.remove(PREFIX + partition, part))

    def _each(self, devices: Devices, act: Callable[[DomainController, Devices], Code]) -> None:
        for name, controller in self._endpoints.items():
            if part := devices & controller.devices:
                code = self._send(lambda c=controller, p=part: act(c, p))  # type: ignore[misc]
                if code is not Code.DONE:
                    raise Internal(f"the controller of domain {name} answers {code.name}")


class DomainsRig:
    """A FabricRig: two domains of two machines each, and no partition spans both at first."""

    machines: Mapping[str, int] = {"a1": 2, "a2": 2, "b1": 2, "b2": 2}

    def __init__(self) -> None:
        self.endpoints = {
            domain: DomainController(
                FabricDevice(machine, index)
                for machine, count in self.machines.items()
                if machine.startswith(domain)
                for index in range(count)
            )
            for domain in "ab"
        }
        time = VirtualTime()
        self.timing = FabricTiming(25.0, time.clock, time.sleep)
        self.fault: FabricFault | None = None
        self._gate: RequestGate | None = None
        self._foreign: dict[str, Devices] = {}

    def driver(self, journal: FabricJournal) -> FabricDriver:
        self.fault = None
        return OrderedFabric(Domains(self.endpoints, self._send), journal, self.timing)

    def truth(self) -> FabricTruth:
        ours: dict[str, Devices] = {}
        for controller in self.endpoints.values():
            for name, members in controller.partitions.items():
                if name.startswith(PREFIX):
                    own = name.removeprefix(PREFIX)
                    ours[own] = ours.get(own, frozenset()) | members
        return FabricTruth(ours, dict(self._foreign))

    def foreign(self) -> Mapping[str, Devices]:
        return self._foreign

    def violations(self) -> Sequence[str]:
        return ()

    def inject(self, fault: FabricFault, random: Random) -> bool:
        if fault is FabricFault.FOREIGN_PARTITION and not self._foreign:
            controller = random.choice(list(self.endpoints.values()))
            taken = set().union(*controller.partitions.values())
            if free := sorted(controller.devices - taken):
                self._foreign["tenant"] = frozenset(free[:1])
                controller.partitions["tenant"] = {free[0]}
            return bool(free)
        if fault not in _FAULTS:
            return False
        self.fault = fault
        return True

    def gate(self) -> RequestGate:
        self._gate = RequestGate()
        return self._gate

    def heal(self) -> None:
        self.fault = self._gate = None

    def _send(self, act: Callable[[], Code]) -> Code:
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.pass_through()
        fault, self.fault = self.fault, None
        if fault is FabricFault.KILL_BEFORE:
            raise Killed
        if fault is FabricFault.REFUSED:
            return Code.REFUSED
        code = Code.DONE if fault is FabricFault.LIE else act()
        if fault is FabricFault.KILL_AFTER:
            raise Killed
        if fault is FabricFault.DROPPED_ANSWER:
            raise Unavailable("the controller does not answer")
        return code


_FAULTS = (
    FabricFault.LIE,
    FabricFault.REFUSED,
    FabricFault.DROPPED_ANSWER,
    FabricFault.KILL_BEFORE,
    FabricFault.KILL_AFTER,
)


@pytest.mark.parametrize("seed", range(12))
async def test_increments_and_return_codes_fit_the_contract(seed: int) -> None:
    await check_fabric_driver(DomainsRig(), seed)


@pytest.mark.soak
async def test_two_hundred_lives_of_increments() -> None:
    for seed in range(200):
        await check_fabric_driver(DomainsRig(), seed)
