"""A Redfish fabric for the fault kit: the stand-in, and a transport that goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from podwright.agents import (
    FabricDevice,
    FabricDriver,
    FabricJournal,
    FabricParts,
    FabricReading,
    attached_name,
)
from podwright.agents.fabric import FabricTiming, HttpAnswer, OrderedFabric, Redfish, RedfishZones
from podwright.errors import Unavailable
from podwright.testing import (
    FABRIC_PATH,
    FabricFault,
    FabricTruth,
    Killed,
    RedfishStandIn,
    RequestGate,
    VirtualTime,
    endpoint_path,
    standin_inventory,
)

Devices = frozenset[FabricDevice]
MakeDriver = Callable[["RedfishRig", FabricJournal], FabricDriver]


class RedfishRig:
    """A FabricRig: three hosts, each with three devices. Odd seeds make changes by tasks."""

    def __init__(self, seed: int, make: MakeDriver | None = None) -> None:
        self.machines = {f"h{host}": 3 for host in range(3)}
        self.inventory = standin_inventory(self.machines)
        self.service = RedfishStandIn(self.machines, polls_per_task=seed % 2)
        self.random = Random(seed)
        self.time = VirtualTime()
        self.timing = FabricTiming(25.0, self.time.clock, self.time.sleep)
        self._device_of = {
            endpoint_path(machine, index): FabricDevice(machine, index)
            for machine, count in self.machines.items()
            for index in range(count)
        }
        self._make = make or make_driver
        self._foreign: dict[str, Devices] = {}
        self._gate: RequestGate | None = None
        self._faults: set[FabricFault] = set()
        self._missing = ""
        self._tasks_last = self.service.polls_per_task

    def driver(self, journal: FabricJournal) -> FabricDriver:
        """See `FabricRig.driver`."""
        return self._make(self, journal)

    def truth(self) -> FabricTruth:
        """See `FabricRig.truth`. A device counts in its zone, even if the zone is for another
        host.
        """
        ours: dict[str, Devices] = {}
        foreign: dict[str, Devices] = {}
        for name, paths in self.service.endpoints_by_zone().items():
            members = frozenset(self._device_of[path] for path in paths if path in self._device_of)
            if name.startswith("podwright-"):
                partition = name.removeprefix("podwright-").rpartition("-")[0]
                ours[partition] = ours.get(partition, frozenset()) | members
            else:
                foreign[name] = members
        return FabricTruth(ours, foreign)

    def foreign(self) -> Mapping[str, Devices]:
        """See `FabricRig.foreign`."""
        return self._foreign

    def violations(self) -> Sequence[str]:
        """Check that no two hosts are in one zone, and that each of our zones has its host."""
        found = []
        for name, paths in self.service.endpoints_by_zone().items():
            hosts = {path for path in paths if self.service.endpoints[path] == "RootComplex"}
            machines = {self._device_of[p].machine for p in paths if p in self._device_of}
            expected = {endpoint_path(machine) for machine in machines}
            if name.startswith("podwright-") and (len(hosts) != 1 or not expected <= hosts):
                found.append(f"zone {name} has {sorted(paths)}")
        return found

    def inject(self, fault: FabricFault, random: Random) -> bool:
        """See `FabricRig.inject`."""
        if fault is FabricFault.HALF_DONE:
            return False  # zones are the only record
        if fault is FabricFault.FOREIGN_PARTITION:
            return self._take()
        if fault is FabricFault.MISSING_MACHINE:
            self._missing = f"h{random.randrange(3)}"
        self._faults.add(fault)
        return True

    def gate(self) -> RequestGate:
        """See `FabricRig.gate`."""
        self._gate = RequestGate()
        return self._gate

    def heal(self) -> None:
        """See `FabricRig.heal`."""
        self._faults.clear()
        self._gate, self._missing = None, ""
        self.service.polls_per_task = self._tasks_last
        self.service.finish()

    # -- the transport ---------------------------------------------------------------------------

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """See `HttpTransport.request`."""
        if method == "GET":
            return self._get(path)
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.pass_through()
        if self._once(FabricFault.KILL_BEFORE):
            raise Killed
        if self._once(FabricFault.OTHER_WRITER) and self._take():
            # The service refuses nothing, so a device is in two zones until the driver has read
            # back. Only a driver that is left alone until then can withdraw.
            self._faults.clear()
            return self.service.request(method, path, body, headers)
        if self._once(FabricFault.STALE_TAG) and path in self.service.zones:
            self.service.zones[path]["@odata.etag"] = 'W/"stale"'
        if self._once(FabricFault.REFUSED):
            return HttpAnswer(503, {}, b'{"error": {"message": "a switch is down"}}')
        if self._once(FabricFault.LIE):
            return HttpAnswer(204, {}, b"")
        slow = self._once(FabricFault.SLOW)
        self.service.polls_per_task = (
            self.random.choice([70, 1 << 30]) if slow else self._tasks_last
        )
        answer = self.service.request(method, path, body, headers)
        self.service.polls_per_task = self._tasks_last
        if self._once(FabricFault.KILL_AFTER):
            raise Killed
        if self._once(FabricFault.DROPPED_ANSWER):
            raise Unavailable("the Redfish service does not answer: the answer was lost")
        return answer

    def _get(self, path: str) -> HttpAnswer:
        if self._missing and f"/Endpoints/{self._missing}-" in path:
            return HttpAnswer(404, {}, b"{}")
        answer = self.service.request("GET", path)
        document = answer.document()
        if FabricFault.REORDERED in self._faults:
            for entries in (document.get("Members"), document.get("Links", {}).get("Endpoints")):
                if entries:
                    self.random.shuffle(entries)
        if FabricFault.NULL_FIELDS in self._faults:
            document = {**document, "Status": None, "Description": None, "Actions": None}
            if document.get("Links") == {"Endpoints": []}:
                document["Links"] = None
        return answer._replace(content=json.dumps(document).encode())

    def _once(self, fault: FabricFault) -> bool:
        present = fault in self._faults
        self._faults.discard(fault)
        return present

    def _take(self) -> bool:
        """Let another party make a zone of one or two devices that are in none."""
        waiting = [change for _, _, change in self.service.tasks.values() if change is not None]
        taken = {path for paths in self.service.endpoints_by_zone().values() for path in paths}
        free = sorted(self._device_of.keys() - taken)
        if waiting or len(free) < 4 or len(self._foreign) > 1:
            return False
        chosen = self.random.sample(free, self.random.randint(1, 2))
        name = f"tenant{len(self._foreign)}"
        self.service.add_zone(name, chosen)
        self._foreign[name] = frozenset(self._device_of[path] for path in chosen)
        return True


def make_driver(rig: RedfishRig, journal: FabricJournal) -> FabricDriver:
    """Return the product's own driver."""
    service = Redfish(rig, rig.timing)
    return OrderedFabric(RedfishZones(service, FABRIC_PATH, rig.inventory), journal, rig.timing)


class PoolRig(RedfishRig):
    """The same with a pool: three chassis without hosts, and two hosts that get their devices."""

    hosts = ("n1", "n2")

    def __init__(self, seed: int, make: MakeDriver | None = None) -> None:
        super().__init__(seed, make)
        self.inventory = standin_inventory(self.machines, self.hosts)
        self.service = RedfishStandIn(self.machines, self._tasks_last, self.hosts)

    def driver(self, journal: FabricJournal) -> FabricDriver:
        """See `FabricRig.driver`."""
        return _AtHosts(self._make(self, journal))

    def violations(self) -> Sequence[str]:
        """Check that each of our zones has the host in its name, and no other."""
        found = []
        for name, paths in self.service.endpoints_by_zone().items():
            hosts = {path for path in paths if self.service.endpoints[path] == "RootComplex"}
            if name.startswith("podwright-") and hosts != {endpoint_path(name.rpartition("-")[2])}:
                found.append(f"zone {name} has {sorted(paths)}")
        return found


class _AtHosts:
    """A driver of a pool, as a controller uses it: each partition is attached to one host."""

    def __init__(self, inner: FabricDriver) -> None:
        self._inner = inner
        self.kind = inner.kind

    async def join(self, partition: str, epoch: int, parts: FabricParts) -> None:
        """See `FabricDriver.join`."""
        host = PoolRig.hosts[sum(partition.encode()) % len(PoolRig.hosts)]
        await self._inner.join(attached_name(partition, host), epoch, parts)

    async def leave(self, epoch: int, parts: FabricParts) -> None:
        """See `FabricDriver.leave`."""
        await self._inner.leave(epoch, parts)

    async def read(self, machines: Collection[str] = ()) -> FabricReading:
        """See `FabricDriver.read`."""
        reading = await self._inner.read(machines)
        named = {name.partition("@")[0]: d for name, d in reading.partitions.items()}
        return replace(reading, partitions=named)
