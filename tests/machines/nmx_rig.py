"""NMX-M for the fault kit: the model of `nmx`, and a transport that goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from podwright.agents import FabricDevice, FabricDriver, FabricJournal
from podwright.agents.fabric import (
    FabricInventory,
    FabricTiming,
    HttpAnswer,
    Nmx,
    OrderedFabric,
    Racks,
)
from podwright.errors import Unavailable
from podwright.testing import (
    Affected,
    FabricCondition,
    FabricFault,
    FabricTruth,
    Killed,
    RequestGate,
    VirtualTime,
)
from tests.machines.nmx import DEFAULT_PARTITION, NmxModel, inventory

Devices = frozenset[FabricDevice]
MakeDriver = Callable[["NmxRig", FabricJournal], FabricDriver]


class NmxRig:
    """A FabricRig: three trays of three GPUs, all in the default partition at first."""

    def __init__(self, seed: int, make: MakeDriver | None = None) -> None:
        self.machines = {f"t{tray}": 3 for tray in range(3)}
        self.model = NmxModel(3, 3, polls=1)
        self.random = Random(seed)
        self.time = VirtualTime()
        self.timing = FabricTiming(25.0, self.time.clock, self.time.sleep)
        self._make = make or make_driver
        self._foreign: dict[str, Devices] = {}
        self._gate: RequestGate | None = None
        self._drop = self._other_writer = self._reordered = False
        self._kill = ""
        self._violations: list[str] = []
        if seed % 3 == 0:  # the specification allows a partition without members: null
            self.model.add("tenant-empty", [])
            self._foreign["tenant-empty"] = frozenset()
        if seed % 2:
            self.model.add("Default Partition", sorted(self.model.trays), DEFAULT_PARTITION)

    @property
    def inventory(self) -> FabricInventory:
        """Return the identities of the GPUs."""
        return inventory(3, 3)

    def driver(self, journal: FabricJournal) -> FabricDriver:
        """See `FabricRig.driver`."""
        self._kill = ""
        return self._make(self, journal)

    def truth(self) -> FabricTruth:
        """See `FabricRig.truth`. A GPU is in a partition when both of NMX-M's records agree."""
        ours: dict[str, Devices] = {}
        foreign: dict[str, Devices] = {}
        for partition in self.model.partitions.values():
            if partition["PartitionID"] == DEFAULT_PARTITION:
                continue
            members = frozenset(
                _device(self.model, i)
                for i in partition["Members"] or ()
                if self.model.gpu_partition[i] == partition["PartitionID"]
            )
            name = partition["Name"]
            if name.startswith("podwright-"):
                name = name.removeprefix("podwright-")
                ours[name] = ours.get(name, frozenset()) | members
            else:
                foreign[name] = members
        return FabricTruth(ours, foreign)

    def foreign(self) -> Mapping[str, Devices]:
        """See `FabricRig.foreign`."""
        return self._foreign

    def violations(self) -> Sequence[str]:
        """See `FabricRig.violations`."""
        return self._violations

    def inject(self, fault: FabricFault, random: Random) -> bool:
        """See `FabricRig.inject`."""
        faults = self.model.faults
        match fault:
            case FabricFault.LIE:
                faults.lie = True
            case FabricFault.HALF_DONE:
                faults.half = True
            case FabricFault.REFUSED:
                faults.fail = "a switch is down"
            case FabricFault.SLOW:
                # Beyond the driver's patience: until it is healed, or until the next call waits.
                faults.slow = random.choice([40, 1 << 30])
            case FabricFault.NULL_FIELDS:
                faults.null_fields = True
            case FabricFault.REORDERED:
                self._reordered = True
            case FabricFault.MISSING_MACHINE:
                faults.missing_trays = {random.randrange(3)}
            case FabricFault.DROPPED_ANSWER:
                self._drop = True
            case FabricFault.FOREIGN_PARTITION:
                return self._take(random)
            case FabricFault.OTHER_WRITER:
                self._other_writer = True
            case FabricFault.KILL_BEFORE:
                self._kill = "before"
            case FabricFault.KILL_AFTER:
                self._kill = "after"
            case FabricFault.STALE_TAG:
                return False  # NMX-M has no tags
        return True

    def change(self, condition: FabricCondition, random: Random) -> Affected | None:
        """See `Changeable.change`."""
        model, ours = self.model, self.truth().ours
        joined = {name: members for name, members in ours.items() if members}
        taken = frozenset().union(*joined.values(), *self._foreign.values())
        free = sorted({_device(model, i) for i in model.trays} - taken)
        name = random.choice(sorted(joined)) if joined else ""
        chosen = frozenset(random.sample(free, 1)) if free else frozenset()
        match condition:
            case FabricCondition.UNHEALTHY if name:
                model.faults.unhealthy = {f"podwright-{name}"}
                return Affected(name)
            case FabricCondition.UNKNOWN_MEMBER if name:
                model.faults.missing_trays = {int(min(joined[name]).machine[1:])}
                return Affected(name)
            case FabricCondition.NO_LINK if chosen:
                model.faults.unlinked = {_gpu(model, device) for device in chosen}
                return Affected("", chosen)
            case FabricCondition.WRONG_IDENTITY if chosen:
                model.faults.elsewhere = {_gpu(model, device) for device in chosen}
                return Affected("", chosen)
            case FabricCondition.LOST_DEVICE if name:
                lost = frozenset(random.sample(sorted(joined[name]), 1))
                model.move([_gpu(model, device) for device in lost], "")
                return Affected(name, lost)
            case FabricCondition.LATE_ARRIVAL if name and chosen:
                model.move([_gpu(model, device) for device in chosen], f"podwright-{name}")
                return Affected(name, chosen)
        return None

    def gate(self) -> RequestGate:
        """See `FabricRig.gate`."""
        self._gate = RequestGate()
        return self._gate

    def heal(self) -> None:
        """See `FabricRig.heal`."""
        self.model.faults = type(self.model.faults)()
        self._drop = self._other_writer = self._reordered = False
        self._gate, self._kill = None, ""
        self.model.finish()

    # -- the transport ---------------------------------------------------------------------------

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """See `HttpTransport.request`."""
        if method == "GET":
            return self._reorder(self.model.request(method, path, body, headers))
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.pass_through()
        kill, self._kill = self._kill, ""
        if kill == "before":
            raise Killed
        if self._other_writer:
            self._other_writer = False
            self._take(self.random)
        for operation in self.model.operations.values():
            same = operation.method, operation.path, operation.body
            if operation.status == "in-progress" and same == (method, path, body):
                self._violations.append(f"{method} {path} was sent while the same is under way")
        answer = self.model.request(method, path, body, headers)
        if kill == "after":
            raise Killed
        if self._drop:
            self._drop = False
            raise Unavailable("NMX-M does not answer: the answer was lost")
        return answer

    def _reorder(self, answer: HttpAnswer) -> HttpAnswer:
        document = answer.document()
        if not self._reordered or not isinstance(document, list):
            return answer
        self.random.shuffle(document)
        for entry in document:
            if entry.get("Members"):
                self.random.shuffle(entry["Members"])
        return answer._replace(content=json.dumps(document).encode())

    def _take(self, random: Random) -> bool:
        """Let another party make a partition of one or two GPUs that nobody has."""
        model = self.model
        waiting = [o.body or {} for o in model.operations.values() if o.status == "in-progress"]
        taken = {
            i
            for p in [*model.partitions.values(), *waiting]
            if p.get("PartitionID") != DEFAULT_PARTITION
            for i in p.get("Members") or ()
        }
        free = sorted(model.trays.keys() - taken)
        if len(free) < 4 or len(self._foreign) > 2:
            return False
        chosen = random.sample(free, random.randint(1, 2))
        for partition in model.partitions.values():
            if partition["PartitionID"] == DEFAULT_PARTITION:
                rest = [i for i in partition["Members"] or () if i not in chosen]
                partition["Members"] = rest
        name = f"tenant{len(self._foreign)}"
        model.add(name, chosen)
        self._foreign[name] = frozenset(_device(model, i) for i in chosen)
        return True


def make_driver(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """Return the product's own driver."""
    return OrderedFabric(Racks(Nmx(rig, rig.timing), rig.inventory), journal, rig.timing)


def _gpu(model: NmxModel, device: FabricDevice) -> str:
    return model.gpu_id(int(device.machine[1:]), device.index + 1)


def _device(model: NmxModel, gpu_id: str) -> FabricDevice:
    tray, device = model.trays[gpu_id]
    return FabricDevice(f"t{tray}", device - 1)
