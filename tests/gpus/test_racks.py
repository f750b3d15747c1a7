"""The NVLink fabric of a rack follows partitions: by themselves, and under a controller."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from podwright.agents import Driver, SimulatedMachine
from podwright.agents.gpu import Nmx, Racks
from podwright.controller import Caller, Controller, Machines, Role
from podwright.errors import Internal, InvalidRequest, PodwrightError, Unavailable
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
from tests.gpus.nmx import Rack

ROOT = Caller("root", 0, Role.ADMINISTRATOR)


@pytest.fixture
def rack() -> Iterator[Rack]:
    """One, with everything in the partition that it comes with."""
    found = Rack()
    found.add("Default Partition", [found.location(gpu) for gpu in found.gpus])
    yield found
    found.close()


@pytest.fixture
def racks(rack: Rack) -> Racks:
    """What divides it. Machine t3 is tray 3."""
    nmx = Nmx(rack.url, sleep=lambda _: None)
    return Racks(nmx, lambda name: (0, int(name.removeprefix("t"))))


def ids(tray: int, devices: Sequence[int] = (1, 2, 3, 4)) -> set[str]:
    """The GPUs of a tray."""
    return {f"gpu-{tray:02d}-{device}" for device in devices}


async def test_gpus_leave_the_common_partition_for_their_own(rack: Rack, racks: Racks) -> None:
    await racks.join("p1", {"t0": [0, 1, 2, 3], "t1": [0, 1, 2, 3]})
    await racks.join("p2", {"t2": [1, 2]})
    named = rack.named()
    assert named["podwright-p1"] == ids(0) | ids(1)
    assert named["podwright-p2"] == ids(2, (2, 3))
    assert len(named["Default Partition"]) == 72 - 10
    assert rack.calls == ["PUT", "POST", "PUT", "POST"]
    await racks.leave({"t0": [0, 1, 2, 3], "t1": [0, 1, 2, 3]})
    assert "podwright-p1" not in rack.named()
    assert len(rack.named()["Default Partition"]) == 72 - 10


async def test_a_call_again_changes_nothing(rack: Rack, racks: Racks) -> None:
    for _ in range(2):
        await racks.join("p1", {"t0": [0, 1]})
    assert rack.calls == ["PUT", "POST"]
    for _ in range(2):
        await racks.leave({"t0": [0, 1]})
    assert rack.calls == ["PUT", "POST", "DELETE"]


async def test_a_partition_grows_and_shrinks(rack: Rack, racks: Racks) -> None:
    await racks.join("p1", {"t0": [0, 1]})
    await racks.join("p1", {"t1": [3]})
    assert rack.named()["podwright-p1"] == ids(0, (1, 2)) | ids(1, (4,))
    await racks.leave({"t0": [0, 1]})
    assert rack.named()["podwright-p1"] == ids(1, (4,))


@pytest.mark.parametrize("at", ["PUT", "POST", "DELETE"])
async def test_an_answer_that_is_lost_is_made_good(rack: Rack, racks: Racks, at: str) -> None:
    rack.drop_next = at
    parts = {"t5": [0, 1, 2, 3], "t6": [0, 1, 2, 3]}
    for _ in range(3):  # at most one answer is lost
        with suppress(Unavailable):
            await racks.join("p1", parts)
    for _ in range(2):
        with suppress(Unavailable):
            await racks.leave(parts)
    assert rack.drop_next == ""
    assert set(rack.named()) == {"Default Partition"}


async def test_what_another_left_behind_does_not_keep_its_gpus(rack: Rack, racks: Racks) -> None:
    rack.partitions.clear()
    rack.add("podwright-lost", sorted(ids(0) | ids(1)))
    await racks.join("p1", {"t1": [0, 1, 2, 3]})
    assert rack.named() == {"podwright-lost": ids(0), "podwright-p1": ids(1)}


async def test_its_failures_are_told(rack: Rack, racks: Racks) -> None:
    rack.fail_next = "a switch is down"
    with pytest.raises(Internal, match=r"did not carry out PUT .*: a switch is down"):
        await racks.join("p1", {"t0": [0]})
    with pytest.raises(Internal, match="NMX-M knows no GPUs of machine t18"):
        await racks.join("p1", {"t18": [0]})
    rack.polls = 1 << 30
    slow = Racks(Nmx(rack.url, patience=0.0, sleep=lambda _: None), lambda _: (0, 0))
    with pytest.raises(Unavailable, match=r"has not ended operation .*: configuring"):
        await slow.join("p1", {"t0": [0]})
    with pytest.raises(Unavailable, match="does not answer"):
        await Racks(Nmx("http://127.0.0.1:1"), lambda _: (0, 0)).join("p1", {"t0": [0]})


def test_who_we_are(rack: Rack, tmp_path: Path) -> None:
    rack.login = f"Basic {base64.b64encode(b'rw-user:secret').decode()}"
    with pytest.raises(Internal, match=r"401, Unauthorized.*--nmx-login"):
        Nmx(rack.url).gpus()
    login = tmp_path / "login"
    login.write_text("rw-user:secret\n")
    login.chmod(0o644)
    with pytest.raises(InvalidRequest, match="others can read"):
        Nmx(rack.url, login=login)
    login.chmod(0o600)
    assert len(Nmx(rack.url, login=login).gpus()) == 72
    for url in ("rack1", "ftp://rack1", "http://rack1"):
        with pytest.raises(InvalidRequest):
            Nmx(url)


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
        nmx = Nmx(self.rack.url, sleep=sleep)
        made = Controller(
            self.store,
            [self.cluster],
            self.drivers,
            version="1",
            machines=Machines(fabric=lambda place: Racks(nmx, place)),
        )
        await made.start()
        return made


async def test_partitions_of_a_rack_are_partitions_of_its_fabric(rack: Rack) -> None:
    controller = await World(rack).controller()

    async def create(name: str, size: int) -> PartitionInfo:
        spec = PartitionSpec(name=name, size=size)
        return await controller.create_partition(ROOT, CreateRequest(spec=spec))

    assert (await create("p1", 8)).ready_state is ReadyState.ACTIVE
    assert (await create("p2", 2)).ready_state is ReadyState.ACTIVE
    named = rack.named()
    assert named["podwright-p1"] == ids(0) | ids(1)
    assert len(named["podwright-p2"]) == 2
    rack.fail_next = "a switch is down"
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
    """The fabric did what it was told, and who told it hangs; another server takes over."""
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
        assert rack.named()["podwright-p1"] == ids(0) | ids(1)
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
