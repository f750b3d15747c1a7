"""One question, one answer: whoever says what is free, or whether a size fits, says the same.

In random states of a pod (partitions, machines that are drained, silent or resumed, devices that
fall ill and recover, devices that wait for a reset) `explain`, `create`, the lists of devices,
clusters and allocations, the page, the blocks by which guests count licences, and `doctor` are
compared.
"""

from __future__ import annotations

import contextlib
import random
import re
from typing import Any

import pytest

from podwright.client import Client, FakeTransport
from podwright.controller import Controller
from podwright.doctor._doctor_machine import _agents
from podwright.errors import InvalidRequest, NoCapacity, PodwrightError
from podwright.fabric import preset
from podwright.guests.shared._device_positions import PodPlaces
from podwright.hosts import OK
from podwright.page._still_fits import fragments
from podwright.placement.buddy_blocks import BuddyBlocks
from podwright.wire import (
    ClusterList,
    CreateRequest,
    DeviceInfo,
    DeviceList,
    DrainRequest,
    ExplainRequest,
    ListRequest,
    MachineName,
    PartitionSpec,
    Value,
)
from tests.controller.world import ROOT, World, virtually

PRESETS = ("pod16", "pod64", "pod128", "hgx8x4")


class Pod:
    """A world whose machines fall ill, and the questions that are asked about it."""

    def __init__(self, kind: str, numbers: random.Random) -> None:
        self.world, self.numbers, self.made = World([preset(kind)]), numbers, 0
        self.aligned = self.world.clusters[0].family.block_rule.aligned

    @property
    def controller(self) -> Controller:
        return self.world.controller

    async def step(self) -> None:
        """Do one thing that may change what is free."""
        numbers, controller = self.numbers, self.controller
        machine = numbers.choice(list(self.world.machines))
        choice = numbers.choice(("create", "create", "remove", "drain", "resume", "ill", "well"))
        names = await self.world.names()
        if choice == "create":
            self.made += 1
            spec = PartitionSpec(name=f"p{self.made}", size=1 << numbers.randrange(6))
            with contextlib.suppress(PodwrightError):
                await controller.create_partition(ROOT, CreateRequest(spec=spec))
        elif choice == "remove" and names:
            await self.world.remove(numbers.choice(names), force=True)
        elif choice == "drain":
            await controller.drain_machine(ROOT, DrainRequest(name=machine))
        elif choice == "resume":
            await controller.resume_machine(ROOT, MachineName(name=machine))
        elif choice in ("ill", "well"):
            simulated = self.world.machines[machine]
            simulated.set_healthy(numbers.randrange(len(simulated.devices)), choice == "well")
            index = controller._state.inventory.by_machine[machine]
            index.learn(machine, await simulated.describe())

    async def refused(self, size: int, gcds: int) -> str:
        """Create a partition; return what would work in place of this shape, or nothing."""
        spec = PartitionSpec(name="asked", size=size, num_gcds=gcds)
        try:
            await self.controller.create_partition(ROOT, CreateRequest(spec=spec))
        except InvalidRequest as error:
            return error.would_work
        return ""

    async def devices(self) -> list[DeviceInfo]:
        devices: list[DeviceInfo] = (await self.world.every("list_devices")).devices
        return devices

    async def compare(self) -> None:
        """Ask everybody, and compare."""
        devices = await self.devices()
        (cluster,) = (await self.world.every("list_clusters")).clusters
        (allocation,) = (await self.world.every("list_allocations")).allocations
        free = sum(device.state == "FREE" for device in devices)
        shown = fragments([cluster], devices)[cluster.name]
        assert (cluster.free, allocation.free, shown["free"]) == (free, free, free)
        sizes = {size: count for size, count, _ in shown["sizes"]}
        for size in sorted({*sizes, 3, 2 * max(sizes)}):
            await self._compare_size(size, free, sizes)
        if self.aligned:
            self._compare_licences(devices, sizes)
        self._compare_doctor(devices, cluster)

    async def _compare_size(self, size: int, free: int, sizes: dict[int, int]) -> None:
        spec = PartitionSpec(name="asked", size=size)
        try:
            told = await self.controller.explain(ROOT, ExplainRequest(spec=spec))
        except InvalidRequest:
            told = None
        try:
            await self.controller.create_partition(ROOT, CreateRequest(spec=spec))
            made = True
        except (InvalidRequest, NoCapacity):
            made = False
        if made:
            assert (await self.world.get("asked")).errors == [], size  # no device of it is ill
            await self.world.remove("asked")
        assert made == (told is not None and told.starts_now), size
        if told is None:
            return
        assert told.free == free, (size, told)
        if size in sizes:
            assert made == (sizes[size] > 0), (size, sizes)
        if size in sizes and told.largest in sizes:  # larger ones may span link domains
            assert sizes[told.largest] > 0, (told, sizes)
        assert told.starts_now == (told.largest >= size) or not self.aligned, (size, told)

    def _compare_licences(self, devices: list[DeviceInfo], sizes: dict[int, int]) -> None:
        places = PodPlaces(devices)
        blocks = BuddyBlocks(places.capacity)
        blocks.free = sum(1 << places.place(one) for one in devices if one.state == "FREE")
        counted = [whole >> order for order, whole in enumerate(blocks.whole_counts_by_order())]
        for size, count in sizes.items():
            assert counted[size.bit_length() - 1] == count, (size, counted, sizes)

    def _compare_doctor(self, devices: list[DeviceInfo], cluster: Any) -> None:
        def answer(name: str, request: Value) -> Value:
            if name == "ListDevices":
                return DeviceList(devices=devices)
            assert (name, request) == ("ListClusters", ListRequest())
            return ClusterList(clusters=[cluster])

        finding = _agents(Client(FakeTransport(answer)))
        down = [device for device in devices if device.state == "DOWN"]
        assert (finding.level == OK) == (not down)
        assert ("do not answer" in finding.found) == bool(cluster.down)
        if down and not cluster.down:
            assert f"{len(down)} of {len(devices)} devices are ill" in finding.found


@pytest.mark.parametrize("kind", PRESETS)
@pytest.mark.parametrize(
    "seeds", [range(10), pytest.param(range(10, 300), marks=pytest.mark.soak)], ids=["10", "soak"]
)
def test_all_who_are_asked_say_the_same(kind: str, seeds: range) -> None:
    for seed in seeds:
        _walk(kind, seed)


@virtually
async def _walk(kind: str, seed: int) -> None:
    pod = Pod(kind, random.Random(seed))
    await pod.world.start()
    await pod.compare()
    for _ in range(8):
        for _ in range(3):
            await pod.step()
        await pod.compare()
    await pod.world.stop()


@virtually
async def test_an_explanation_of_an_empty_pod_says_what_it_has() -> None:
    pod = Pod("pod64", random.Random(0))
    await pod.world.start()
    spec = PartitionSpec(name="", size=16)
    told = await pod.controller.explain(ROOT, ExplainRequest(spec=spec))
    assert (told.starts_now, told.free, told.largest) == (True, 64, 64)
    await pod.world.stop()


@virtually
async def test_a_refusal_names_the_ill_device() -> None:
    pod = Pod("pod16", random.Random(0))
    await pod.world.start()
    machine = pod.world.machines["ag1"]
    machine.set_healthy(2, False)
    pod.controller._state.inventory.by_machine["ag1"].learn("ag1", await machine.describe())
    spec = PartitionSpec(name="", size=16)
    told = await pod.controller.explain(ROOT, ExplainRequest(spec=spec))
    assert (told.starts_now, told.free, told.largest) == (False, 15, 8)
    assert "device 2 of machine ag1 is unhealthy" in told.lines
    await pod.world.stop()


@pytest.mark.parametrize("kind", ["pod16", "pod128", "hgx8x4"])
@virtually
async def test_a_shape_that_cannot_be_is_refused_with_one_that_can(kind: str) -> None:
    pod, named = Pod(kind, random.Random(0)), 0
    await pod.world.start()
    for size in (3, 5, 6, 7, 12, 24, 33, 96, 300):
        for gcds in (size, 1, 3):
            work = await pod.refused(size, gcds)
            found = re.search(r"size of (\d+)(?: in (\d+) GCD)?", work)
            if found is not None:
                named += 1
                assert await pod.refused(int(found[1]), int(found[2] or 1)) == ""
            elif work:
                assert "GCDs" in work, (size, gcds)  # another number of these makes it work
                continue
            await pod.world.remove("asked")
    assert named
    await pod.world.stop()
