"""The NVLink fabric of a rack follows partitions, without and with a controller."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from podwright.agents import (
    Driver,
    FabricDevice,
    FabricDriver,
    FabricSite,
    MemoryFabricJournal,
    SimulatedMachine,
)
from podwright.agents.fabric import (
    FabricInventory,
    FabricTiming,
    HttpAnswer,
    HttpManager,
    MachineIdentity,
    Nmx,
    OrderedFabric,
    Racks,
    read_inventory,
)
from podwright.controller import Caller, Controller, Machines, Role
from podwright.errors import (
    Internal,
    InvalidRequest,
    NotFound,
    PodwrightError,
    Unavailable,
    WrongState,
)
from podwright.fabric import Cluster, preset
from podwright.store import MemoryStore
from podwright.wire import (
    CreateRequest,
    ListRequest,
    PartitionInfo,
    PartitionSpec,
    ReadyState,
    RemoveRequest,
)
from tests.machines.nmx import DEFAULT_PARTITION, Rack, inventory, uid

ROOT = Caller("root", 0, Role.ADMINISTRATOR)


@pytest.fixture
def rack() -> Iterator[Rack]:
    """A rack with all its GPUs in the default partition."""
    found = Rack()
    found.add("Default Partition", [found.place(i) for i in found.trays], DEFAULT_PARTITION)
    yield found
    found.close()


@pytest.fixture
def racks(rack: Rack) -> OrderedFabric:
    """The hardware that divides it. Machine t3 is tray 3."""
    return driver(rack.url)


def driver(url: str, patience: float = 25.0) -> OrderedFabric:
    """A driver as the server makes it, which does not sleep."""
    timing = FabricTiming(patience, sleep=lambda _: None)
    nmx = Nmx(HttpManager("NMX-M", url), timing)
    return OrderedFabric(Racks(nmx, inventory()), MemoryFabricJournal(), timing)


def ids(rack: Rack, tray: int, devices: Sequence[int] = (1, 2, 3, 4)) -> set[str]:
    """The GPUs of a tray."""
    return {rack.gpu_id(tray, device) for device in devices}


async def test_gpus_leave_the_default_partition_for_their_own(
    rack: Rack, racks: OrderedFabric
) -> None:
    await racks.join("p1", 1, {"t0": [0, 1, 2, 3], "t1": [0, 1, 2, 3]})
    await racks.join("p2", 2, {"t2": [1, 2]})
    named = rack.named()
    assert named["podwright-p1"] == ids(rack, 0) | ids(rack, 1)
    assert named["podwright-p2"] == ids(rack, 2, (2, 3))
    assert len(named["Default Partition"]) == 72 - 10
    assert rack.calls == ["PUT", "POST", "PUT", "POST"]
    assert (await racks.read()).partitions == {
        "p1": {FabricDevice(f"t{tray}", index) for tray in (0, 1) for index in range(4)},
        "p2": {FabricDevice("t2", 1), FabricDevice("t2", 2)},
    }
    await racks.leave(3, {"t0": [0, 1, 2, 3], "t1": [0, 1, 2, 3]})
    assert "podwright-p1" not in rack.named()
    assert len(rack.named()["Default Partition"]) == 72 - 10


async def test_a_repeated_call_changes_nothing(rack: Rack, racks: OrderedFabric) -> None:
    for epoch in (1, 2):
        await racks.join("p1", epoch, {"t0": [0, 1]})
    assert rack.calls == ["PUT", "POST"]
    for epoch in (3, 4):
        await racks.leave(epoch, {"t0": [0, 1]})
    assert rack.calls == ["PUT", "POST", "DELETE"]


async def test_a_partition_grows_and_shrinks(rack: Rack, racks: OrderedFabric) -> None:
    await racks.join("p1", 1, {"t0": [0, 1]})
    await racks.join("p1", 2, {"t1": [3]})
    assert rack.named()["podwright-p1"] == ids(rack, 0, (1, 2)) | ids(rack, 1, (4,))
    await racks.leave(3, {"t0": [0, 1]})
    assert rack.named()["podwright-p1"] == ids(rack, 1, (4,))


@pytest.mark.parametrize("at", ["PUT", "POST", "DELETE"])
async def test_an_answer_that_is_lost_is_made_good(
    rack: Rack, racks: OrderedFabric, at: str
) -> None:
    rack.drop_next = at
    parts = {"t5": [0, 1, 2, 3], "t6": [0, 1, 2, 3]}
    for epoch in range(3):  # at most one answer is lost
        with suppress(Unavailable):
            await racks.join("p1", epoch, parts)
    for epoch in (3, 4):
        with suppress(Unavailable):
            await racks.leave(epoch, parts)
    assert rack.drop_next == ""
    assert set(rack.named()) == {"Default Partition"}
    assert rack.calls.count("POST") == 1


@pytest.mark.parametrize("name", ["podwright-lost", "tenant"])
async def test_the_gpus_of_another_partition_are_refused(
    rack: Rack, racks: OrderedFabric, name: str
) -> None:
    rack.partitions.clear()
    rack.add(name, sorted(ids(rack, 0) | ids(rack, 1)))
    with pytest.raises(WrongState, match="devices 0, 1, 2, 3 of machine t1 is in"):
        await racks.join("p1", 1, {"t1": [0, 1, 2, 3]})
    assert rack.calls == []
    await racks.leave(2, {"t1": [0, 1, 2, 3]})
    assert rack.named()[name] == (ids(rack, 0) if name != "tenant" else ids(rack, 0) | ids(rack, 1))


async def test_failures_are_reported(rack: Rack, racks: OrderedFabric) -> None:
    rack.faults.fail = "a switch is down"
    with pytest.raises(Internal, match=r"did not carry out PUT .*: a switch is down"):
        await racks.join("p1", 1, {"t0": [0]})
    with pytest.raises(NotFound, match="nothing tells which device of the fabric is device 0"):
        await racks.join("p1", 2, {"t18": [0]})
    rack.faults.slow = 1 << 30
    with pytest.raises(Unavailable, match=r"has not ended operation .*: configuring"):
        await driver(rack.url, patience=0.0).join("p1", 3, {"t0": [0]})
    with pytest.raises(Unavailable, match="does not answer"):
        await driver("http://127.0.0.1:1").join("p1", 4, {"t0": [0]})


# -- what an independent judge saw an earlier driver do ------------------------------------------


async def test_a_tray_that_is_not_listed_robs_no_other_machine(
    rack: Rack, racks: OrderedFabric
) -> None:
    await racks.join("b", 1, {"t2": [0, 1, 2, 3]})
    calls = list(rack.calls)
    rack.faults.missing_trays = {0}
    with pytest.raises(NotFound, match="lists no device that is devices 0, 1, 2, 3 of machine t0"):
        await racks.join("a", 2, {"t0": [0, 1, 2, 3]})
    await racks.join("a", 3, {"t1": [0, 1, 2, 3]})
    assert rack.named()["podwright-b"] == ids(rack, 2)
    assert rack.named()["podwright-a"] == ids(rack, 1)
    assert len(rack.calls) == len(calls) + 2


async def test_an_operation_that_lies_is_not_believed(rack: Rack, racks: OrderedFabric) -> None:
    rack.partitions.clear()
    rack.faults.lie = True
    with pytest.raises(Internal, match=r"says that it is done, but partition a has no devices"):
        await driver(rack.url, patience=0.1).join("a", 1, {"t0": [0]})
    await racks.join("a", 2, {"t0": [0]})
    assert rack.named()["podwright-a"] == ids(rack, 0, (1,))


async def test_a_call_that_was_given_up_takes_nothing_back(rack: Rack) -> None:
    """The request of a caller that gave up is on its way, and the next call waits for its end."""
    entered, go = threading.Event(), threading.Event()

    class Held(HttpManager):
        def request(self, method: str, *arguments: Any, **named: Any) -> HttpAnswer:
            if method == "PUT" and not entered.is_set():
                entered.set()
                assert go.wait(60)
            return super().request(method, *arguments, **named)

    timing = FabricTiming(sleep=lambda _: None)
    nmx = Nmx(Held("NMX-M", rack.url), timing)
    rack.partitions.clear()
    rack.add("podwright-a", sorted(ids(rack, 0)))
    racks = OrderedFabric(Racks(nmx, inventory()), MemoryFabricJournal(), timing)
    early = asyncio.create_task(racks.leave(1, {"t0": [0]}))
    assert await asyncio.to_thread(entered.wait, 60)
    early.cancel()
    later = asyncio.create_task(racks.leave(2, {"t0": [1]}))
    await asyncio.sleep(0)
    go.set()
    await later
    with suppress(asyncio.CancelledError):
        await early
    assert rack.named()["podwright-a"] == ids(rack, 0, (3, 4))


async def test_null_members_are_no_members(rack: Rack, racks: OrderedFabric) -> None:
    rack.add("tenant-without-gpus", [])
    rack.add("podwright-a", [])
    await racks.join("a", 1, {"t0": [0]})
    await racks.leave(2, {"t0": [0]})
    assert "podwright-a" not in rack.named()


async def test_a_slow_operation_is_adopted_and_not_sent_again(rack: Rack) -> None:
    rack.partitions.clear()
    rack.faults.slow = 20
    with pytest.raises(Unavailable, match="has not ended operation"):
        await driver(rack.url, patience=0.0).join("a", 1, {"t0": [0]})
    await driver(rack.url).join("a", 2, {"t0": [0]})
    assert rack.calls == ["POST"]
    assert rack.named()["podwright-a"] == ids(rack, 0, (1,))


async def test_identities_that_disagree_name_both_sides(rack: Rack) -> None:
    wrong = FabricInventory({"t0": MachineIdentity((uid(0, 1),), slot=11)})
    racks = OrderedFabric(Racks(Nmx(HttpManager("NMX-M", rack.url)), wrong), MemoryFabricJournal())
    with pytest.raises(Internal, match=r"slot 11 by its inventory, and in slot 10 by NMX-M"):
        await racks.join("a", 1, {"t0": [0]})
    assert rack.calls == []


async def test_agents_identify_gpus_too(rack: Rack) -> None:
    reported = FabricInventory({}, lambda _: [{"fabric guid": hex(uid(3, 2)), "tray": "3"}])
    timing = FabricTiming(sleep=lambda _: None)
    nmx = Nmx(HttpManager("NMX-M", rack.url), timing)
    await OrderedFabric(Racks(nmx, reported), MemoryFabricJournal(), timing).join(
        "a", 1, {"m": [0]}
    )
    assert rack.named()["podwright-a"] == ids(rack, 3, (2,))


async def test_two_agents_that_report_one_gpu_are_both_named(rack: Rack) -> None:
    listed = {"t0": MachineIdentity((uid(3, 2),))}
    inventory = FabricInventory(listed, lambda _: [{"fabric guid": hex(uid(3, 2))}])
    nmx = Nmx(HttpManager("NMX-M", rack.url))
    with pytest.raises(Internal, match="device 0 of machine t0 and device 0 of machine m are both"):
        await OrderedFabric(Racks(nmx, inventory), MemoryFabricJournal()).join("a", 1, {"m": [0]})
    assert rack.calls == []


def test_inventories_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "fabric.toml"
    path.write_text('[machines.t0]\ndevices = ["0x10", 17]\ntray = 0\n')
    assert read_inventory(path).identity(FabricDevice("t0", 1)).name == "17"
    for text, problem in (
        ("[machines.t0]\n", "missing required field"),
        ("[machines.t0]\ndevices = [1]\ncolour = 1\n", "unknown field"),
        ("[machines.t0]\ndevices = [16]\n[machines.t1]\ndevices = ['0x10']\n", "two machines"),
    ):
        path.write_text(text)
        with pytest.raises(InvalidRequest, match=problem):
            read_inventory(path)


def test_logins_and_addresses(rack: Rack, tmp_path: Path) -> None:
    rack.login = f"Basic {base64.b64encode(b'rw-user:secret').decode()}"
    with pytest.raises(Internal, match=r"401, Unauthorized.*--nmx-login"):
        Nmx(HttpManager("NMX-M", rack.url)).gpus()
    login = tmp_path / "login"
    login.write_text("rw-user:secret\n")
    login.chmod(0o644)
    with pytest.raises(InvalidRequest, match="others can read"):
        HttpManager("NMX-M", rack.url, login_file=login)
    login.chmod(0o600)
    assert len(Nmx(HttpManager("NMX-M", rack.url, login_file=login)).gpus()) == 72
    for url in ("rack1", "ftp://rack1", "http://rack1"):
        with pytest.raises(InvalidRequest):
            HttpManager("NMX-M", url)


def gpu_inventory() -> FabricInventory:
    """The preset's machines are gpu1 to gpu18: gpu3 is tray 2."""
    return FabricInventory(
        {
            f"gpu{tray + 1}": MachineIdentity(tuple(uid(tray, d) for d in range(1, 5)), tray=tray)
            for tray in range(18)
        }
    )


class World:
    """A simulated rack whose fabric NMX-M divides, and controllers over it."""

    def __init__(self, rack: Rack) -> None:
        self.rack = rack
        self.cluster: Cluster = preset("nvl72")
        self.drivers: dict[str, Driver] = {
            m.name: SimulatedMachine(m, self.cluster.family)
            for domain in self.cluster.domains
            for m in domain.machines
        }
        self.store = MemoryStore()

    async def controller(self, sleep: Callable[[float], None] = lambda _: None) -> Controller:
        """A new one over what there is."""
        timing = FabricTiming(sleep=sleep)
        nmx = Nmx(HttpManager("NMX-M", self.rack.url), timing)

        def fabric(site: FabricSite) -> FabricDriver:
            return OrderedFabric(Racks(nmx, gpu_inventory()), site.journal, timing)

        made = Controller(
            self.store,
            [self.cluster],
            self.drivers,
            version="1",
            machines=Machines(fabric=fabric),
        )
        await made.start()
        return made


async def test_partitions_of_a_rack_are_partitions_of_its_fabric(rack: Rack) -> None:
    controller = await World(rack).controller()

    async def create(name: str, size: int) -> PartitionInfo:
        spec = PartitionSpec(name=name, size=size)
        reply: PartitionInfo = await controller.create_partition(ROOT, CreateRequest(spec=spec))
        return reply

    assert (await create("p1", 8)).ready_state is ReadyState.ACTIVE
    assert (await create("p2", 2)).ready_state is ReadyState.ACTIVE
    named = rack.named()
    assert named["podwright-p1"] == ids(rack, 0) | ids(rack, 1)
    assert len(named["podwright-p2"]) == 2
    rack.faults.fail = "a switch is down"
    broken = await create("p3", 4)
    assert broken.ready_state is ReadyState.ERROR
    assert "a switch is down" in broken.errors[0]
    for name in ("p1", "p3"):
        await controller.remove_partition(ROOT, RemoveRequest(name=name))
    await controller.close()
    assert set(rack.named()) == {"Default Partition", "podwright-p2"}


@pytest.mark.parametrize("at", ["PUT", "POST", "DELETE"])
async def test_a_server_that_is_lost_while_the_fabric_changes_leaks_nothing(
    rack: Rack, at: str
) -> None:
    """The fabric carried out a request whose sender hangs, and another server takes over."""
    world, stuck, go = World(rack), threading.Event(), threading.Event()

    def hang(_: float) -> None:
        if rack.calls[-1] == at:
            stuck.set()
            go.wait(300)

    first = await world.controller(hang)
    life = asyncio.create_task(_create_and_remove(first))
    assert await asyncio.to_thread(stuck.wait, 60)
    second = await world.controller()
    left = (await second.list_partitions(ROOT, ListRequest())).partitions
    assert [info.name for info in left] == ([] if at == "DELETE" else ["p1"])
    for info in left:
        assert info.ready_state is ReadyState.ACTIVE
        assert rack.named()["podwright-p1"] == ids(rack, 0) | ids(rack, 1)
        await second.remove_partition(ROOT, RemoveRequest(name="p1"))
    assert set(rack.named()) == {"Default Partition"}
    rack.login = "nobody gets in"  # what the first still tries does not count
    go.set()
    with suppress(PodwrightError):
        await life
    await second.close()
    with suppress(PodwrightError):
        await first.close()


async def _create_and_remove(controller: Controller) -> None:
    await controller.create_partition(ROOT, CreateRequest(spec=PartitionSpec(name="p1", size=8)))
    await controller.remove_partition(ROOT, RemoveRequest(name="p1"))


# -- calls side by side ----------------------------------------------------------------------------


async def test_a_slow_change_of_one_tray_holds_up_no_other(rack: Rack) -> None:
    entered, go = threading.Event(), threading.Event()

    class Slow(HttpManager):
        def request(self, method: str, *arguments: Any, **named: Any) -> HttpAnswer:
            if method == "POST" and not entered.is_set():
                entered.set()
                assert go.wait(60)
            return super().request(method, *arguments, **named)

    timing = FabricTiming(sleep=lambda _: None)
    rack.partitions.clear()
    racks = OrderedFabric(
        Racks(Nmx(Slow("NMX-M", rack.url), timing), inventory()), MemoryFabricJournal(), timing
    )
    await racks.recover()
    slow = asyncio.create_task(racks.join("a", 1, {"t0": [0, 1]}))
    assert await asyncio.to_thread(entered.wait, 60)
    await racks.join("b", 2, {"t1": [0, 1]})
    assert not slow.done()
    assert set(rack.named()) == {"podwright-b"}
    overlapping = asyncio.create_task(racks.leave(3, {"t0": [1]}))
    go.set()
    await asyncio.gather(slow, overlapping)
    assert rack.named()["podwright-a"] == ids(rack, 0, (1,))


async def test_changes_that_share_the_default_partition_lose_no_member(
    rack: Rack, racks: OrderedFabric
) -> None:
    """Each takes its GPUs out of the default partition by a PUT of all remaining members."""
    await racks.recover()
    await asyncio.gather(
        *(racks.join(f"p{tray}", tray + 1, {f"t{tray}": [0, 1]}) for tray in range(6))
    )
    assert len(rack.named()["Default Partition"]) == 72 - 12
    assert all(len(rack.named()[f"podwright-p{tray}"]) == 2 for tray in range(6))


async def test_a_site_names_partitions_whose_gpus_are_free(rack: Rack) -> None:
    rack.partitions.clear()
    rack.add("tray_partition_0", sorted(ids(rack, 0)))
    rack.add("tenant", sorted(ids(rack, 1)))
    known = FabricInventory(
        {name: inventory()._machines[name] for name in ("t0", "t1")},
        free_partitions=["tray_partition_*"],
    )
    racks = OrderedFabric(Racks(Nmx(HttpManager("NMX-M", rack.url)), known), MemoryFabricJournal())
    reading = await racks.read(["t0", "t1"])
    assert {device.machine for device in reading.free} == {"t0"}
    assert (
        reading.why_not_free(FabricDevice("t1", 0)) == "it is in tenant, which is not Podwright's"
    )
    await racks.join("a", 1, {"t0": [0]})
    assert rack.named()["podwright-a"] == ids(rack, 0, (1,))
    assert rack.named()["tray_partition_0"] == ids(rack, 0, (2, 3, 4))
