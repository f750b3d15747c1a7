"""The fault kit proves itself: drivers with one defect each, and all of them are caught.

The first five are the defects that an independent judge found in an earlier driver of ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from podwright.agents import (
    FabricDevice,
    FabricDriver,
    FabricJournal,
    FabricParts,
    MemoryFabricJournal,
    devices_of,
)
from podwright.agents.fabric import FabricReading, HttpAnswer, Nmx, OrderedFabric, Racks
from podwright.agents.fabric._intent_journal import FabricIntent, Intents
from podwright.agents.fabric._journaled_driver import _check_intent
from podwright.agents.fabric._nmx_messages import NmxPartition
from podwright.agents.fabric._nmx_snapshot import PARTITION_NAME_PREFIX, NmxView
from podwright.errors import PodwrightError
from podwright.testing import ContractBroken, check_fabric_driver
from tests.machines.nmx import uid
from tests.machines.nmx_rig import NmxRig

Devices = frozenset[FabricDevice]
#: Lives that a defect may survive.
SEEDS = range(60)


def driver(
    rig: NmxRig,
    journal: FabricJournal,
    racks: type[Racks] = Racks,
    ordered: type[OrderedFabric] = OrderedFabric,
) -> OrderedFabric:
    """A driver of these parts."""
    return ordered(racks(Nmx(rig, rig.timing), rig.inventory), journal, rig.timing)


# -- the five defects that were seen ---------------------------------------------------------------


def identity_by_order(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """Machines are matched with trays by order, so a missing tray shifts all that follow."""

    class ByOrder:
        def request(
            self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
        ) -> HttpAnswer:
            answer = rig.request(method, path, body, headers)
            if method != "GET" or not path.endswith("/gpus"):
                return answer
            listed = sorted(answer.document(), key=lambda gpu: gpu["DeviceUID"])
            for place, gpu in enumerate(listed):
                tray, device = divmod(place, 3)
                gpu.update(DeviceUID=uid(tray, device + 1), LocationInfo=None)
            return answer._replace(content=json.dumps(listed).encode())

    return OrderedFabric(Racks(Nmx(ByOrder(), rig.timing), rig.inventory), journal, rig.timing)


def no_reading_back(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """An operation that says `completed` is believed."""

    class Believing(OrderedFabric):
        def _confirm_outcome(self, intent: FabricIntent, expected: Mapping[str, Devices]) -> None:
            """Nothing."""

    return driver(rig, journal, ordered=Believing)


def lock_goes_with_the_caller(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """A caller that gives up lets the next call in, although its own is still under way."""

    class Impatient(OrderedFabric):
        async def _run_in_turn(self, keys: Any, work: Any) -> Any:
            turn = await self._turns.begin(keys)
            try:
                return await work(turn)
            finally:
                self._turns.end(turn)

    return driver(rig, journal, ordered=Impatient)


def null_members(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """`Members` is taken for a list, although it may be null."""

    class Strict(Racks):
        def read(self, devices: Any, machines: Any = ()) -> FabricReading:
            for partition in self._nmx.partitions():
                len(partition.Members)  # type: ignore[arg-type]
            return super().read(devices, machines)

    return driver(rig, journal, Strict)


def resends(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """A slow operation is posted again, and nothing adopts the first."""

    class Hasty(Racks):
        def settle(self, partition: str, devices: Devices) -> None:
            """Nothing."""

    return driver(rig, journal, Hasty)


# -- ten more --------------------------------------------------------------------------------------


def ignores_epochs(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """Old epochs are served like new ones."""

    class Timeless(Intents):
        def newest(self, devices: Any) -> int:
            return 0

    made = driver(rig, journal)
    made._intents = Timeless(journal)
    return made


def forgets_its_journal(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """A restarted driver knows of no epoch."""
    return driver(rig, MemoryFabricJournal())


def robs(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """Devices are taken out of whatever partition they are in."""

    class Robber(Racks):
        def read(self, devices: Any, machines: Any = ()) -> FabricReading:
            wanted = frozenset(devices)
            reading = super().read(devices, machines)
            others = {name: members - wanted for name, members in reading.partitions.items()}
            rest = {d: name for d, name in reading.foreign.items() if d not in wanted}
            own = {
                name: members
                for name, members in reading.partitions.items()
                if wanted and wanted <= members
            }
            free = reading.free | (wanted if not own else frozenset())
            return replace(reading, partitions=others | own, foreign=rest, free=free)

        def add(self, partition: str, devices: Devices) -> None:
            view = self._view(devices)
            for listed in view.partitions:
                if any(device in devices for _, device in view.members(listed)):
                    self._without(view, listed, devices)
            super().add(partition, devices)

    class Shameless(OrderedFabric):
        def _settled_reading(self, intent: FabricIntent) -> FabricReading:
            reading = super()._settled_reading(intent)
            name = intent.partition
            return replace(
                reading,
                partitions={
                    n: m - intent.devices if n != name and name else m
                    for n, m in reading.partitions.items()
                },
            )

    return driver(rig, journal, Robber, Shameless)


def deletes_whole_partitions(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """The last device is not waited for."""

    class Deleting(Racks):
        def _without(self, view: NmxView, partition: NmxPartition, devices: Devices) -> None:
            if partition.Name.startswith(PARTITION_NAME_PREFIX):
                self._nmx.delete(partition.ID)
            else:
                super()._without(view, partition, devices)

    class Blind(OrderedFabric):
        def _confirm_outcome(self, intent: FabricIntent, expected: Mapping[str, Devices]) -> None:
            super()._confirm_outcome(intent, expected if intent.partition else {})

    return driver(rig, journal, Deleting, Blind)


def drops_other_members(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """A PUT carries the new devices alone."""

    class Dropping(Racks):
        def add(self, partition: str, devices: Devices) -> None:
            view = self._view(devices)
            for listed in view.partitions:
                if listed.Name == PARTITION_NAME_PREFIX + partition:
                    ids = [view.gpu(device).ID for device in sorted(devices)]
                    self._nmx.update(listed.ID, ids)  # type: ignore[arg-type]
                    return
            super().add(partition, devices)

    class Blind(OrderedFabric):
        def _confirm_outcome(self, intent: FabricIntent, expected: Mapping[str, Devices]) -> None:
            super()._confirm_outcome(intent, {})

    return driver(rig, journal, Dropping, Blind)


def reads_one_record(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """The GPU's own record of its partition is not compared with the list of members."""

    class Half(Racks):
        def read(self, devices: Any, machines: Any = ()) -> FabricReading:
            return replace(super().read(devices, machines), doubts={}, disputed={})

    return driver(rig, journal, Half)


def joins_any_partition(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """Devices are added to the first partition of Podwright's, whatever its name."""

    class First(Racks):
        def add(self, partition: str, devices: Devices) -> None:
            names = sorted(
                p.Name.removeprefix(PARTITION_NAME_PREFIX)
                for p in self._nmx.partitions()
                if p.Name.startswith(PARTITION_NAME_PREFIX)
            )
            super().add(names[0] if names else partition, devices)

    class Blind(OrderedFabric):
        def _confirm_outcome(self, intent: FabricIntent, expected: Mapping[str, Devices]) -> None:
            """Nothing."""

    return driver(rig, journal, First, Blind)


def skips_what_is_missing(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """Devices that the fabric does not list are left out of a join without a word."""

    class Skipping(OrderedFabric):
        async def _change(self, intent: FabricIntent, turn: Any) -> None:
            reading = await self._call(self._settled_reading, intent)
            known = {
                machine: [i for i in some if reading.knows(FabricDevice(machine, i))]
                for machine, some in intent.parts.items()
            }
            rest = {machine: some for machine, some in known.items() if some}
            if rest:
                await super()._change(FabricIntent(intent.partition, intent.epoch, rest), turn)

    return driver(rig, journal, ordered=Skipping)


def forgets_the_unlisted(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """A member whose GPU is not listed is not written back."""

    class Forgetting(Racks):
        def _without(self, view: NmxView, partition: NmxPartition, devices: Devices) -> None:
            rest = [m for m, d in view.members(partition) if d is not None and d not in devices]
            if rest:
                self._nmx.update(partition.ID, rest)
            elif partition.Name.startswith(PARTITION_NAME_PREFIX):
                self._nmx.delete(partition.ID)

    return driver(rig, journal, Forgetting)


def takes_foreign_for_free(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """Whatever is not Podwright's is free, and is taken out of its partition."""

    class Greedy(Racks):
        def read(self, devices: Any, machines: Any = ()) -> FabricReading:
            reading = super().read(devices, machines)
            return replace(reading, foreign={}, free=reading.free | reading.foreign.keys())

        def add(self, partition: str, devices: Devices) -> None:
            view = self._view(devices)
            for listed in view.partitions:
                if not listed.Name.startswith(PARTITION_NAME_PREFIX) and any(
                    device in devices for _, device in view.members(listed)
                ):
                    self._without(view, listed, devices)
            super().add(partition, devices)

    return driver(rig, journal, Greedy)


# -- what happens between calls --------------------------------------------------------------------


def ignores_the_health_of_partitions(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """An unhealthy partition is handed out."""

    class Blind(Racks):
        def read(self, devices: Any, machines: Any = ()) -> FabricReading:
            reading = super().read(devices, machines)
            doubts = {n: why for n, why in reading.doubts.items() if "health" not in why}
            return replace(reading, doubts=doubts)

    return driver(rig, journal, Blind)


def ignores_missing_links(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """A GPU without NVLink is joined like any other."""

    class Blind(Racks):
        def read(self, devices: Any, machines: Any = ()) -> FabricReading:
            return replace(super().read(devices, machines), ill={})

    return driver(rig, journal, Blind)


def ignores_the_domain(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """A GPU of another domain is taken for the one with the same DeviceUID."""

    class Domainless:
        def request(
            self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
        ) -> HttpAnswer:
            answer = rig.request(method, path, body, headers)
            if method != "GET" or not path.endswith("/gpus"):
                return answer
            listed = [{**gpu, "DomainUUID": None} for gpu in answer.document()]
            return answer._replace(content=json.dumps(listed).encode())

    return OrderedFabric(Racks(Nmx(Domainless(), rig.timing), rig.inventory), journal, rig.timing)


def writes_its_intent_afterwards(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """The intent is durable only when the change is made."""

    class Late(OrderedFabric):
        async def _change(self, intent: FabricIntent, turn: Any) -> None:
            reading = await self._call(self._settled_reading, intent)
            if intent.epoch >= self._loaded_intents().newest(intent.devices):
                with suppress(PodwrightError):
                    _check_intent(intent, reading)
                    await self._call(self._carry_out_intent, intent, reading)
            await super()._change(intent, turn)

    return driver(rig, journal, ordered=Late)


def forgets_epochs_of_calls_that_change_nothing(
    rig: NmxRig, journal: FabricJournal
) -> FabricDriver:
    """A repeated call leaves the devices at the epoch that they had."""

    class Forgetful(Intents):
        def raise_epochs(self, intent: FabricIntent) -> None:
            """Nothing."""

    made = driver(rig, journal)
    made._intents = Forgetful(journal)
    return made


def leaves_open_intents_alone(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """What a killed server had begun is not finished."""

    class Careless(OrderedFabric):
        async def _carry_out_open_intents(self, excluded: Any, *, strict: bool) -> None:
            """Nothing."""

    return driver(rig, journal, ordered=Careless)


def ignores_unmatched_members(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """A partition with a member that is no known GPU gets more members."""

    class Blind(Racks):
        def read(self, devices: Any, machines: Any = ()) -> FabricReading:
            return replace(super().read(devices, machines), unmatched={})

    return driver(rig, journal, Blind)


def remembers_its_first_reading(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """`read` tells what the driver joined, and not what the fabric has."""

    class Remembering(OrderedFabric):
        joined: ClassVar[dict[str, Devices]] = {}

        async def join(self, partition: str, epoch: int, parts: FabricParts) -> None:
            await super().join(partition, epoch, parts)
            self.joined[partition] = devices_of(parts)

        async def read(self, machines: Any = ()) -> FabricReading:
            return FabricReading(dict(self.joined))

    return driver(rig, journal, ordered=Remembering)


def goes_on_when_it_cannot_write(rig: NmxRig, journal: FabricJournal) -> FabricDriver:
    """A server whose store was taken over changes the fabric all the same."""

    class Bold(Intents):
        async def begin(self, intent: FabricIntent) -> int:
            try:
                return await super().begin(intent)
            except PodwrightError:
                return 0

    made = driver(rig, journal)
    made._intents = Bold(journal)
    return made


MUTANTS = [
    identity_by_order,
    no_reading_back,
    lock_goes_with_the_caller,
    null_members,
    resends,
    ignores_epochs,
    forgets_its_journal,
    robs,
    deletes_whole_partitions,
    drops_other_members,
    reads_one_record,
    joins_any_partition,
    skips_what_is_missing,
    forgets_the_unlisted,
    takes_foreign_for_free,
    ignores_the_health_of_partitions,
    ignores_missing_links,
    ignores_the_domain,
    writes_its_intent_afterwards,
    forgets_epochs_of_calls_that_change_nothing,
    leaves_open_intents_alone,
    ignores_unmatched_members,
    remembers_its_first_reading,
    goes_on_when_it_cannot_write,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
async def test_a_driver_with_a_defect_is_caught(
    mutant: Callable[[NmxRig, FabricJournal], FabricDriver],
) -> None:
    for seed in SEEDS:
        try:
            await check_fabric_driver(NmxRig(seed, mutant), seed)
        except ContractBroken:
            return
    pytest.fail(f"{mutant.__name__} survives {len(SEEDS)} lives")
