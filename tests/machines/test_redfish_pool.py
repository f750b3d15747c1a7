"""A pool behind Redfish: devices without a home go to the hosts that a partition names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podwright.agents import (
    Driver,
    FabricDriver,
    FabricSite,
    MemoryFabricJournal,
    SimulatedMachine,
    attached_name,
)
from podwright.agents.fabric import (
    FabricInventory,
    FabricTiming,
    OrderedFabric,
    Redfish,
    RedfishZones,
    read_inventory,
)
from podwright.controller import Caller, Controller, Machines, Role
from podwright.errors import Internal, InvalidRequest, NotFound, WrongState
from podwright.fabric import Cluster, ClusterTopology, LinkDomain, Machine, family_named
from podwright.launcher.options._instance_environment import check_hosts
from podwright.store import MemoryStore
from podwright.testing import FABRIC_PATH, RedfishStandIn, endpoint_path, standin_inventory
from podwright.wire import (
    AcquireRequest,
    CreateRequest,
    ExplainRequest,
    LeaseRequest,
    PartitionInfo,
    PartitionSpec,
    ReadyState,
    RemoveRequest,
    ResetRequest,
)

ROOT = Caller("root", 0, Role.ADMINISTRATOR)
ALICE = Caller("alice", 1001, Role.USER)
HOSTS = ("n1", "n2", "n3")
CHASSIS = {"c1": 8, "c2": 8}


@pytest.fixture
def service() -> RedfishStandIn:
    """Two chassis of eight devices, and three hosts that may get them."""
    return RedfishStandIn(CHASSIS, hosts=HOSTS)


def driver(
    service: RedfishStandIn, inventory: FabricInventory | None = None, patience: float = 25.0
) -> OrderedFabric:
    """A driver as the server makes it, which does not sleep."""
    timing = FabricTiming(patience, sleep=lambda _: None)
    inventory = inventory or standin_inventory(CHASSIS, HOSTS)
    zones = RedfishZones(Redfish(service, timing), FABRIC_PATH, inventory)
    return OrderedFabric(zones, MemoryFabricJournal(), timing)


def paths(host: str, *devices: tuple[str, int]) -> set[str]:
    """A zone's endpoints: the host's, and these devices'."""
    return {endpoint_path(host), *(endpoint_path(machine, index) for machine, index in devices)}


# -- the driver --------------------------------------------------------------------------------


async def test_devices_are_attached_to_any_host_and_taken_back(service: RedfishStandIn) -> None:
    fabric = driver(service)
    assert fabric.hosts == HOSTS
    await fabric.join(attached_name("p", "n3"), 1, {"c1": [0, 1], "c2": [5]})
    await fabric.join(attached_name("p", "n1"), 1, {"c1": [2]})
    assert service.endpoints_by_zone() == {
        "podwright-p-n3": paths("n3", ("c1", 0), ("c1", 1), ("c2", 5)),
        "podwright-p-n1": paths("n1", ("c1", 2)),
    }
    assert {name: len(found) for name, found in (await fabric.read()).partitions.items()} == {
        "p@n3": 3,
        "p@n1": 1,
    }
    with pytest.raises(WrongState, match="device 0 of machine c1 is in partition p@n3"):
        await fabric.join(attached_name("p", "n1"), 2, {"c1": [0]})
    await fabric.leave(3, {"c1": [0, 1, 2], "c2": [5]})
    assert service.endpoints_by_zone() == {}


async def test_a_zone_of_the_same_name_at_another_host_gets_no_device(
    service: RedfishStandIn,
) -> None:
    """`podwright-a-b-c` is the zone of a-b at host c, and of a at host b-c."""
    hosts = ("c", "b-c")
    service = RedfishStandIn(CHASSIS, hosts=hosts)
    fabric = driver(service, standin_inventory(CHASSIS, hosts))
    await fabric.join(attached_name("a-b", "c"), 1, {"c1": [0]})
    await fabric.join(attached_name("a", "b-c"), 2, {"c1": [1]})
    zones = [{e["@odata.id"] for e in z["Links"]["Endpoints"]} for z in service.zones.values()]
    assert zones == [paths("c", ("c1", 0)), paths("b-c", ("c1", 1))]
    await fabric.leave(3, {"c1": [0]})
    assert service.endpoints_by_zone() == {"podwright-a-b-c": paths("b-c", ("c1", 1))}


async def test_what_has_a_home_is_not_attached_and_a_pool_is_not_joined_without_a_host(
    service: RedfishStandIn,
) -> None:
    with pytest.raises(NotFound, match="names no host of machine c1"):
        await driver(service).join("p", 1, {"c1": [0]})
    with pytest.raises(NotFound, match="names no host of machine n9"):
        await driver(service).join(attached_name("p", "n9"), 1, {"c1": [0]})
    at_home = RedfishStandIn(CHASSIS)
    fabric = driver(at_home, standin_inventory(CHASSIS))
    assert fabric.hosts == ()
    with pytest.raises(Internal, match="device 0 of machine c1 has a home"):
        await fabric.join(attached_name("p", "c2"), 1, {"c1": [0]})
    assert service.calls == at_home.calls == []


async def test_a_zone_that_got_a_second_host_is_not_believed(service: RedfishStandIn) -> None:
    fabric = driver(service, patience=0.0)
    await fabric.join(attached_name("p", "n3"), 1, {"c1": [0]})
    (zone,) = service.zones.values()
    zone["Links"]["Endpoints"].append({"@odata.id": endpoint_path("n1")})
    with pytest.raises(Internal, match=r"has the unknown member .*n1-Host"):
        await fabric.join(attached_name("p", "n3"), 2, {"c1": [0]})


def test_an_inventory_names_hosts(tmp_path: Path) -> None:
    path = tmp_path / "fabric.toml"
    path.write_text('[machines.c1]\ndevices = ["/d"]\n[hosts]\nn3 = "/h3"\n')
    inventory = read_inventory(path)
    assert (inventory.hosts(), inventory.host("n3")) == (("n3",), "/h3")
    assert inventory.pooled("c1")
    for hosts, problem in (
        ('c1 = "/h3"', "c1 is a machine and a host"),
        ('n3 = "/h3"\nn4 = "/h3"', "two hosts of the fabric's inventory have the endpoint '/h3'"),
    ):
        path.write_text(f'[machines.c1]\ndevices = ["/d"]\n[hosts]\n{hosts}\n')
        with pytest.raises(InvalidRequest, match=problem):
            read_inventory(path)


# -- the controller ----------------------------------------------------------------------------


class Pool:
    """Two simulated chassis whose devices a fabric attaches, and controllers over them."""

    def __init__(self, service: RedfishStandIn, *, fabric: bool = True) -> None:
        self.service, self._fabric = service, fabric
        family = family_named("pool8")
        assert family is not None
        domains = tuple(LinkDomain(name, (Machine(name),)) for name in CHASSIS)
        self.cluster = Cluster(
            "pool", family, domains, topology=ClusterTopology.SWITCHED, simulated=True
        )
        self.drivers: dict[str, Driver] = {
            name: SimulatedMachine(Machine(name), family) for name in CHASSIS
        }
        self.store = MemoryStore()

    async def controller(self) -> Controller:
        """A new one over what there is."""

        def fabric(site: FabricSite) -> FabricDriver:
            timing = FabricTiming(sleep=lambda _: None)
            inventory = standin_inventory(CHASSIS, HOSTS)
            zones = RedfishZones(Redfish(self.service, timing), FABRIC_PATH, inventory)
            return OrderedFabric(zones, site.journal, timing)

        machines = Machines(fabric=fabric) if self._fabric else Machines()
        made = Controller(self.store, [self.cluster], self.drivers, version="1", machines=machines)
        await made.start()
        return made


async def create(
    controller: Controller,
    name: str,
    size: int,
    *hosts: str,
    caller: Caller = ROOT,
    **more: Any,
) -> PartitionInfo:
    """Create a partition attached to these hosts."""
    spec = PartitionSpec(name=name, size=size, hosts=list(hosts), **more)
    reply: PartitionInfo = await controller.create_partition(caller, CreateRequest(spec=spec))
    return reply


async def test_a_partition_is_attached_where_it_says(service: RedfishStandIn) -> None:
    pool = Pool(service)
    controller = await pool.controller()
    info = await create(controller, "p", 3, "n3.example.org")
    assert (info.ready_state, info.hosts) == (ReadyState.ACTIVE, ["n3"])
    assert {name: len(found) for name, found in service.endpoints_by_zone().items()} == {
        "podwright-p-n3": 4
    }
    info = await create(controller, "wide", 8, "n1", "n2")
    assert (info.num_gcds, info.hosts) == (2, ["n1", "n2"])
    for place, host in enumerate(info.hosts):
        devices = [(device.machine, device.index) for device in info.gcds[place]]
        assert service.endpoints_by_zone()[f"podwright-wide-{host}"] == paths(host, *devices)
    await controller.reset_partition(ROOT, ResetRequest(name="wide"))
    for name in ("p", "wide"):
        await controller.remove_partition(ROOT, RemoveRequest(name=name))
    assert service.endpoints_by_zone() == {}
    await controller.close()


async def test_requests_that_cannot_be_are_refused_and_change_nothing(
    service: RedfishStandIn,
) -> None:
    controller = await Pool(service).controller()
    for size, hosts, problem in (
        (2, (), "cluster pool is a pool, and no host is named.*--host HOST"),
        (
            2,
            ("n9",),
            "nothing attaches devices of cluster pool to host n9.*Choose one of n1, n2, n3",
        ),
        (2, ("n1", "n1.example.org"), "a host is named twice"),
        (3, ("n1", "n2"), "3 devices do not divide evenly over 2 hosts"),
    ):
        with pytest.raises(InvalidRequest, match=problem):
            await create(controller, "p", size, *hosts)
    with pytest.raises(InvalidRequest, match="a GCD lies at one host: 1 do not divide over 2"):
        await create(controller, "p", 2, "n1", "n2", num_gcds=1)
    await create(controller, "p", 2, "n1")
    with pytest.raises(WrongState, match="host n1 has devices of another user"):
        await create(controller, "q", 2, "n1", caller=ALICE)
    assert (await create(controller, "q", 2, "n2", caller=ALICE)).hosts == ["n2"]
    assert set(service.endpoints_by_zone()) == {"podwright-p-n1", "podwright-q-n2"}
    await controller.close()


async def test_without_a_fabric_nothing_is_attached(service: RedfishStandIn) -> None:
    controller = await Pool(service, fabric=False).controller()
    with pytest.raises(InvalidRequest, match=r"to host n1.*a fabric whose inventory names hosts"):
        await create(controller, "p", 2, "n1")
    await controller.close()


async def test_a_launch_gets_devices_at_its_own_hosts(service: RedfishStandIn) -> None:
    controller = await Pool(service).controller()
    spec = PartitionSpec(name="run", size=4, num_gcds=2)
    wanted = AcquireRequest(spec=spec, create=True, hosts=["n2", "n1"])
    explanation = await controller.explain(ROOT, ExplainRequest(acquire=wanted))
    assert explanation.starts_now, explanation.lines
    reply = await controller.acquire(ROOT, wanted)
    assert reply.partition.hosts == ["n2", "n1"]
    assert set(service.endpoints_by_zone()) == {"podwright-run-n2", "podwright-run-n1"}
    check_hosts(reply.partition, ["n2", "n1"])
    with pytest.raises(InvalidRequest, match=r"instance 0 is to run on n1, .* attached to n2"):
        check_hosts(reply.partition, ["n1", "n2"])
    lease = LeaseRequest(id=reply.lease.id, epoch=reply.lease.epoch)
    await controller.release(ROOT, lease)
    assert service.endpoints_by_zone() == {}
    await create(controller, "mine", 4, "n3")
    elsewhere = AcquireRequest(spec=PartitionSpec(name="mine"), hosts=["n1"])
    with pytest.raises(WrongState, match="hosts n3 instead of n1"):
        await controller.acquire(ROOT, elsewhere)
    here = AcquireRequest(spec=PartitionSpec(name="mine"), hosts=["n3.example.org"])
    assert (await controller.acquire(ROOT, here)).partition.hosts == ["n3"]
    await controller.close()


async def test_a_server_that_takes_over_attaches_again_what_was_lost(
    service: RedfishStandIn,
) -> None:
    pool = Pool(service)
    first = await pool.controller()
    await create(first, "p", 4, "n1", "n2")
    await first.close()
    before = service.endpoints_by_zone()
    service.zones.clear()  # the fabric was set up anew, and the chassis lost power
    for machine in pool.drivers.values():
        assert isinstance(machine, SimulatedMachine)
        machine.power_cycle()
    second = await pool.controller()
    assert service.endpoints_by_zone() == before
    await second.remove_partition(ROOT, RemoveRequest(name="p"))
    assert service.endpoints_by_zone() == {}
    await second.close()
