"""What changes in the fabric between two calls is seen, told, and mended where that is safe."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from podwright.agents import (
    FabricDevice,
    FabricParts,
    FabricReading,
    MachineReport,
    SimulatedMachine,
    devices_of,
)
from podwright.errors import NoCapacity, NotFound, Unavailable, WrongState
from podwright.fabric import Family, Machine, preset
from podwright.wire import EventsRequest, ExplainRequest, PartitionSpec, ReadyState
from tests.controller.world import ROOT, World, claim, virtually

#: Seconds within which the issue wants a difference to be seen.
SEEN_WITHIN = 70.0


class ModelFabric:
    """A fabric of eight GPUs, which others can change at any time."""

    kind = "NMX-M"

    def __init__(self) -> None:
        self.devices = {FabricDevice("gpu1", index) for index in range(8)}
        self.partitions: dict[str, set[FabricDevice]] = {}
        self.foreign: dict[FabricDevice, str] = {}
        self.doubts: dict[str, str] = {}
        self.silent = False
        self.calls: list[str] = []

    async def join(self, partition: str, epoch: int, parts: FabricParts) -> None:
        self.calls.append(f"join {partition}")
        wanted = devices_of(parts)
        if missing := wanted - self.devices:
            raise NotFound(f"the fabric lists no {min(missing)}")
        for device in wanted:
            if device in self.foreign:
                raise WrongState(f"{device} is in {self.foreign[device]}")
            if any(device in members for name, members in self.others(partition)):
                raise WrongState(f"{device} is in another partition")
        if partition in self.doubts:
            raise WrongState(self.doubts[partition])
        self.partitions.setdefault(partition, set()).update(wanted)

    async def leave(self, epoch: int, parts: FabricParts) -> None:
        self.calls.append("leave")
        if self.silent:
            raise Unavailable("NMX-M does not answer: connection refused")
        leaving = devices_of(parts)
        self.partitions = {
            name: rest for name, members in self.partitions.items() if (rest := members - leaving)
        }

    async def read(self, machines: Collection[str] = ()) -> FabricReading:
        if self.silent:
            raise Unavailable("NMX-M does not answer: connection refused")
        taken = set().union(self.foreign, *self.partitions.values())
        return FabricReading(
            {name: frozenset(members) for name, members in self.partitions.items()},
            dict(self.foreign),
            frozenset(self.devices - taken),
            dict(self.doubts),
        )

    def others(self, partition: str) -> list[tuple[str, set[FabricDevice]]]:
        return [(name, members) for name, members in self.partitions.items() if name != partition]


def gpus(*indices: int) -> set[FabricDevice]:
    return {FabricDevice("gpu1", index) for index in indices}


async def started() -> tuple[World, ModelFabric]:
    fabric = ModelFabric()
    world = World([preset("hgx8")], make_fabric=lambda _: fabric)
    await world.start()
    return world, fabric


async def events(world: World) -> list[tuple[str, str]]:
    reply = await world.controller.list_events(ROOT, EventsRequest())
    return [(event.what, event.about) for event in reply.events]


def somebody_deletes_the_partition(fabric: ModelFabric) -> None:
    del fabric.partitions["p1"]


def a_factory_reset(fabric: ModelFabric) -> None:
    fabric.partitions.clear()


def one_device_is_lost(fabric: ModelFabric) -> None:
    fabric.partitions["p1"] -= gpus(0, 1)


def a_device_is_composed_elsewhere(fabric: ModelFabric) -> None:
    (device, *_) = fabric.partitions["p1"]
    fabric.partitions["p1"].discard(device)
    fabric.foreign[device] = "tenant-7"


def the_health_is_bad(fabric: ModelFabric) -> None:
    fabric.doubts["p1"] = "the partition's health is UNHEALTHY"


DRIFTS = [
    somebody_deletes_the_partition,
    a_factory_reset,
    one_device_is_lost,
    a_device_is_composed_elsewhere,
    the_health_is_bad,
]
#: What only somebody else can mend: a foreign partition, or bad hardware.
BEYOND_US = {a_device_is_composed_elsewhere, the_health_is_bad}


@pytest.mark.parametrize("drift", DRIFTS, ids=lambda drift: drift.__name__)
def test_a_partition_in_use_turns_to_error_and_names_both_sides(
    drift: Callable[[ModelFabric], None],
) -> None:
    @virtually
    async def play() -> None:
        world, fabric = await started()
        await world.create("p1", 4)
        held = await world.acquire("p1", 4, ttl=1000.0)
        joins = fabric.calls.count("join p1")
        drift(fabric)
        await world.time.advance(SEEN_WITHIN)
        info = await world.get("p1")
        assert info.ready_state is ReadyState.ERROR
        assert "NMX-M and Podwright differ: " in info.errors[0]
        assert fabric.calls.count("join p1") == joins  # never without the holder
        assert ("Error", "p1") in await events(world)
        renewed = await world.controller.renew(ROOT, claim(held))
        assert renewed.errors == info.errors  # so the holder is told
        await world.release(held)
        await world.stop()

    play()


@pytest.mark.parametrize("drift", DRIFTS, ids=lambda drift: drift.__name__)
def test_a_partition_that_nobody_uses_is_joined_anew(drift: Callable[[ModelFabric], None]) -> None:
    @virtually
    async def play() -> None:
        world, fabric = await started()
        await world.create("p1", 4, auto_reset=False)
        before = set(fabric.partitions["p1"])
        drift(fabric)
        await world.time.advance(SEEN_WITHIN)
        info = await world.get("p1")
        if drift in BEYOND_US:
            assert info.ready_state is ReadyState.ERROR
            assert "joining it anew failed" in info.errors[0]
        else:
            assert info.ready_state is ReadyState.ACTIVE
            assert fabric.partitions["p1"] == before
            assert ("Mended", "p1") in await events(world)
        await world.stop()

    play()


@virtually
async def test_a_device_that_a_late_request_puts_back_leaves_again() -> None:
    world, fabric = await started()
    await world.create("p1", 4)
    (device, *_) = fabric.partitions["p1"]
    held = await world.acquire("p1", 4, ttl=1000.0)
    intruder = min(fabric.devices - fabric.partitions["p1"])
    fabric.partitions["p1"].add(intruder)
    await world.time.advance(SEEN_WITHIN)
    assert intruder not in fabric.partitions["p1"]
    assert device in fabric.partitions["p1"]
    assert (
        await world.get("p1")
    ).ready_state is ReadyState.ACTIVE  # its own devices were not touched
    await world.release(held)
    await world.stop()


@virtually
async def test_a_partition_that_nobody_holds_is_taken_apart() -> None:
    world, fabric = await started()
    fabric.partitions["gone"] = gpus(6, 7)
    await world.time.advance(SEEN_WITHIN)
    assert "gone" not in fabric.partitions
    assert (await world.create("p1", 8)).size == 8
    await world.stop()


@virtually
async def test_a_device_that_the_fabric_could_not_join_is_not_placed() -> None:
    world, fabric = await started()
    fabric.devices -= gpus(0)
    fabric.foreign = dict.fromkeys(gpus(1), "tenant-7")
    await world.time.advance(SEEN_WITHIN)
    with pytest.raises(NoCapacity):
        await world.create("p1", 8)
    request = ExplainRequest(spec=PartitionSpec(name="", size=8))
    explanation = await world.controller.explain(ROOT, request)
    assert (
        "device 1 of machine gpu1 cannot be joined: it is in tenant-7, which is not Podwright's"
        in explanation.lines
    )
    await world.create("p1", 4)
    assert fabric.partitions["p1"].isdisjoint(gpus(0, 1))
    await world.remove("p1")
    fabric.devices |= gpus(0)
    fabric.foreign.clear()
    await world.time.advance(SEEN_WITHIN)
    assert (await world.create("p2", 8)).size == 8
    await world.stop()


@virtually
async def test_a_silent_manager_changes_nothing_and_is_told() -> None:
    world, fabric = await started()
    await world.create("p1", 4)
    await world.time.advance(SEEN_WITHIN)
    age = world.controller.fabric_age
    assert age is not None
    assert age <= 60.0
    fabric.silent = True
    await world.time.advance(200.0)
    assert world.controller.fabric_problem == "NMX-M does not answer: connection refused"
    assert (world.controller.fabric_age or 0.0) > 190.0
    assert (await world.get("p1")).ready_state is ReadyState.ACTIVE
    await world.stop()


@virtually
async def test_a_reset_joins_what_the_fabric_has_lost() -> None:
    world, fabric = await started()
    await world.create("p1", 4)
    before = set(fabric.partitions["p1"])
    fabric.partitions.clear()
    await world.reset("p1")
    assert fabric.partitions == {"p1": before}
    await world.stop()


@virtually
async def test_a_removal_that_failed_is_tried_again_and_never_undone() -> None:
    world, fabric = await started()
    await world.create("p1", 4)
    fabric.silent = True
    with pytest.raises(WrongState):
        await world.remove("p1")
    await world.time.advance(30.0)
    assert (await world.get("p1")).ready_state is ReadyState.ERROR
    fabric.silent = False
    await world.time.advance(600.0)
    assert await world.names() == []
    await world.stop()


# -- a rack's GPUs change their clique only by a reset ---------------------------------------------


class RackTray(SimulatedMachine):
    """A tray of a rack, whose GPUs report the clique that they had at their last reset."""

    fabric: ModelFabric
    resets_work = True

    def __init__(self, machine: Machine, family: Family, **options: Any) -> None:
        super().__init__(machine, family, **options)
        self.cliques = ["32766"] * family.devices_per_machine

    def now(self, index: int) -> str:
        """The clique that the fabric's manager would give a GPU that is reset now."""
        device = FabricDevice(self.machine.name, index)
        names = [name for name, members in self.fabric.partitions.items() if device in members]
        return str(1 + sorted(self.fabric.partitions).index(names[0])) if names else "32766"

    async def reset(self, epoch: int, devices: Sequence[int]) -> None:
        await super().reset(epoch, devices)
        if self.resets_work:
            for index in devices:
                self.cliques[index] = self.now(index)

    async def release(self, epoch: int, devices: Sequence[int]) -> None:
        await super().release(epoch, devices)
        for index in devices:
            self.cliques[index] = self.now(index)

    async def describe(self) -> MachineReport:
        report = await super().describe()
        devices = tuple(
            replace(
                device,
                attributes={
                    **device.attributes,
                    "fabric guid": f"0x{device.index:016x}",
                    "fabric": f"3b7f0a1e:{self.cliques[device.index]}",
                },
            )
            for device in report.devices
        )
        return report._replace(devices=devices)


async def rack() -> tuple[World, list[RackTray]]:
    fabric = ModelFabric()
    world = World([preset("nvl72")], make_fabric=lambda _: fabric)
    trays = []
    for name, machine in world.machines.items():
        tray = RackTray(machine.machine, machine.family, sleep=world.time.sleep)
        tray.fabric = fabric
        fabric.devices |= {FabricDevice(name, index) for index in range(4)}
        world.machines[name] = tray
        trays.append(tray)
    await world.start()
    return world, trays


@virtually
async def test_a_partition_is_ready_when_its_gpus_share_a_clique_of_their_own() -> None:
    world, trays = await rack()
    await world.create("p1", 8)
    used = [tray for tray in trays if "32766" not in tray.cliques]
    assert len(used) == 2
    assert len({clique for tray in used for clique in tray.cliques}) == 1
    await world.create("p2", 4)
    cliques = {clique for tray in trays for clique in tray.cliques}
    assert len(cliques) == 3
    await world.stop()


@virtually
async def test_a_gpu_that_keeps_its_clique_leaves_the_partition_in_error() -> None:
    world, trays = await rack()
    for tray in trays:
        tray.resets_work = False
    info = await world.create("p1", 4)
    assert info.ready_state is ReadyState.ERROR
    assert "is in clique 3b7f0a1e:32766 after its reset" in info.errors[0]
    await world.stop()


@virtually
async def test_a_machine_with_two_devices_of_one_identity_serves_nobody() -> None:
    world = World([preset("hgx8")])
    await world.start()
    machine = world.machines["gpu1"]
    report = await machine.describe()
    twins = tuple(replace(device, chip_id="GPU-4a10c0de") for device in report.devices)
    registry = world.controller._services.registry
    with pytest.raises(WrongState, match="two devices that are GPU-4a10c0de"):
        registry.accept("gpu1", report._replace(devices=twins))
    await world.stop()
