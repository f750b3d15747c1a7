"""Agents and clusters of an administrator: created, watched, lost, found again. Time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from podwright.agents import Driver, Fault, MachineReport, SimulatedMachine
from podwright.controller import Caller, Controller, Discovery, Machines
from podwright.controller.calls._agent_calls import let_go
from podwright.controller.hardware._heartbeats import Heartbeats
from podwright.errors import (
    AlreadyExists,
    Denied,
    InvalidRequest,
    NoCapacity,
    NotFound,
    PodwrightError,
    Unauthenticated,
    Unavailable,
    WrongState,
)
from podwright.fabric import IPU, Machine
from podwright.store import MemoryStore
from podwright.wire import (
    AgentInfo,
    AgentRequest,
    AllocationRequest,
    Announcement,
    ClusterInfo,
    ClusterRequest,
    CreateRequest,
    DiscoverRequest,
    Empty,
    EventsRequest,
    ListRequest,
    Named,
    PartitionInfo,
    PartitionName,
    PartitionSpec,
    ReadyState,
    RemoveRequest,
    UserRequest,
)
from tests.controller.world import ALICE, ROOT, Time

SILENCE = 10.0


class Site:
    """Machines that outlive their controller, an empty store, and the administrator."""

    def __init__(self) -> None:
        self.time = Time()
        self.machines: dict[str, SimulatedMachine] = {}
        self.asked: dict[str, str] = {}
        self.store = MemoryStore(wall=self.time.wall, monotonic=self.time.monotonic)
        interfaces = {"h1": "eth0", "h2": "eth1"}
        self.discovery = Discovery(("eth0",), interfaces.__getitem__, self.time.monotonic)
        self.controller: Controller

    def machine(self, name: str, **settings: object) -> SimulatedMachine:
        made = SimulatedMachine(
            Machine(name),
            IPU,
            sleep=self.time.sleep,
            max_kept_calls=100,
            **settings,  # type: ignore[arg-type]
        )
        self.machines[name] = made
        return made

    def _connect(self, name: str, host: str, port: int, *, certificate: str) -> Driver:
        self.asked[name] = certificate
        return self.machines[host]

    async def start(self) -> None:
        self.store = self.store.reopened()
        self.controller = Controller(
            self.store,
            (),
            {},
            version="test",
            machines=Machines(
                self._connect, silence=SILENCE, discovery=self.discovery, starting=0.5
            ),
            sleep=self.time.sleep,
        )
        await self.controller.start()

    async def agents(self, *names: str) -> None:
        for name in names:
            if name not in self.machines:
                self.machine(name)
            await self.controller.create_agent(ROOT, AgentRequest(name=name, host=name, port=1))

    async def cluster(self, name: str, *agents: str, **settings: object) -> ClusterInfo:
        request = ClusterRequest(name=name, agents=list(agents), **settings)  # type: ignore[arg-type]
        reply: ClusterInfo = await self.controller.create_cluster(ROOT, request)
        return reply

    async def create(self, name: str, size: int) -> PartitionInfo:
        request = CreateRequest(spec=PartitionSpec(name=name, size=size))
        reply: PartitionInfo = await self.controller.create_partition(ALICE, request)
        return reply

    async def partition(self, name: str) -> PartitionInfo:
        reply: PartitionInfo = await self.controller.get_partition(ROOT, PartitionName(name=name))
        return reply

    async def agent(self, name: str) -> AgentInfo:
        listed = await self.controller.list_agents(ROOT, ListRequest())
        reply: AgentInfo = next(info for info in listed.agents if info.name == name)
        return reply

    async def states(self) -> dict[str, str]:
        listed = await self.controller.list_devices(ROOT, ListRequest())
        return {f"{d.device.machine}/{d.device.index}": d.state for d in listed.devices}

    async def until(self, seconds: float, holds: Callable[[], object]) -> float:
        """Let time pass until something holds, at most `seconds`. Returns how long it took."""
        begin = self.time.now
        while self.time.now < begin + seconds and not holds():
            await self.time.advance(0.25)
            for _ in range(20):
                await asyncio.sleep(0)
        assert holds()
        return self.time.now - begin


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    await made.start()
    yield made
    await made.controller.close()


async def refused(call: object, kind: type[PodwrightError], words: str) -> None:
    with pytest.raises(kind, match=words):
        await call  # type: ignore[misc]


async def test_clusters_of_agents_serve_and_survive_a_restart(site: Site) -> None:
    await site.agents("ag1", "ag2", "ag3", "ag4")
    info = await site.cluster("c1", "ag1", "ag2", "ag3", "ag4", num_ilds=2)
    assert (info.size, info.free, info.ild_sizes) == (16, 16, [8, 8])
    assert (info.topology, info.ild_topology) == ("looped", "mesh")
    assert info.simulated
    await site.create("p1", 8)
    await site.controller.close()
    await site.start()
    assert (await site.partition("p1")).ready_state.value == "ACTIVE"
    assert [a.name for a in (await site.controller.list_agents(ROOT, ListRequest())).agents] == [
        "ag1", "ag2", "ag3", "ag4",
    ]  # fmt: skip


async def test_agents_are_asked_before_they_are_registered(site: Site) -> None:
    await site.agents("ag1")
    create = site.controller.create_agent
    again = AgentRequest(name="ag1", host="ag1", port=1)
    await refused(create(ROOT, again), AlreadyExists, "there is an agent ag1 already, at ag1:1")
    await refused(create(ALICE, again), Denied, "no administrator")
    other = AgentRequest(name="ag2", host="ag1", port=1)
    await refused(create(ROOT, other), AlreadyExists, "agent ag1 is at ag1:1")
    wrong = AgentRequest(name="ag2", host="ag1", port=2)
    await refused(create(ROOT, wrong), InvalidRequest, "says that it is ag1")
    site.machine("ag3").set_down(True)
    silent = AgentRequest(name="ag3", host="ag3", port=1)
    await refused(create(ROOT, silent), Unavailable, "vipu-agent --machine ag3")
    bad = AgentRequest(name="a b", host="ag3", port=1)
    await refused(create(ROOT, bad), InvalidRequest, "is not a name of an agent")
    await refused(
        create(ROOT, AgentRequest(name="ag4", host="ag3", port=70000)),
        InvalidRequest,
        "70000 is not a port",
    )
    assert len(site.controller._services.registry.agents) == 1


async def test_impossible_clusters_are_refused(site: Site) -> None:
    await site.agents("ag1", "ag2", "ag3")
    create = site.controller.create_cluster

    def request(*agents: str, **settings: object) -> ClusterRequest:
        return ClusterRequest(name="c1", agents=list(agents), **settings)  # type: ignore[arg-type]

    cases = [
        (request("ag1", "ag2", "ag1"), InvalidRequest, "agent ag1 is named 2 times"),
        (request("ag1", "ag9"), NotFound, "there is no agent ag9"),
        (request("ag1", "ag2", "ag3", num_ilds=2), InvalidRequest, "cannot be divided evenly"),
        (request("ag1", num_ilds=2), InvalidRequest, "1 agents make no 2 link domains"),
        (request("ag1", topology="ring"), InvalidRequest, "'ring' is not a topology"),
        (request(), InvalidRequest, "names no agent"),
    ]
    for asked, kind, words in cases:
        await refused(create(ROOT, asked), kind, words)
    assert site.controller.clusters == []
    await site.cluster("c1", "ag1", "ag2")
    await refused(site.cluster("c1", "ag3"), AlreadyExists, "there is a cluster c1")
    await refused(site.cluster("c2", "ag2"), WrongState, "agent ag2 is in cluster c1")
    remove_agent = site.controller.remove_agent
    await refused(remove_agent(ROOT, Named(name="ag1")), WrongState, "it is in cluster c1")
    await site.create("p1", 4)
    remove = site.controller.remove_cluster
    await refused(remove(ROOT, Named(name="c1")), WrongState, "it has p1 in it")
    await site.controller.remove_partition(ALICE, RemoveRequest(name="p1"))
    assert await remove(ROOT, Named(name="c1")) == Empty()
    assert await remove_agent(ROOT, Named(name="ag1")) == Empty()
    await refused(remove_agent(ROOT, Named(name="ag1")), NotFound, "there is no agent ag1")


async def test_devices_are_reset_before_a_cluster_serves(site: Site) -> None:
    machine = site.machine("ag1")
    await machine.configure("another's", 3, [0])
    machine.use(3, [0])
    await site.agents("ag1")
    await site.cluster("c1", "ag1")
    assert machine.devices[0].used_by == ""
    await site.create("p1", 4)
    assert machine.violations == []


async def test_machines_of_a_store_that_was_lost_are_taken_over(site: Site) -> None:
    machine = site.machine("ag1")
    await machine.configure("another's", 1 << 50, [0, 1])
    await site.agents("ag1")
    await site.cluster("c1", "ag1")
    assert (await site.create("p1", 4)).ready_state.value == "ACTIVE"
    await site.controller.close()
    await site.start()
    await site.controller.remove_partition(ALICE, RemoveRequest(name="p1"))
    assert (await site.create("p2", 4)).ready_state.value == "ACTIVE"


async def test_a_silent_machine_is_noticed_in_time_and_its_partitions_settled(site: Site) -> None:
    await site.agents("ag1", "ag2")
    await site.cluster("c1", "ag1", "ag2")
    await site.create("p1", 8)
    await site.time.advance(30)
    assert (await site.partition("p1")).ready_state.value == "ACTIVE"
    site.machines["ag2"].set_down(True)
    state = site.controller._state
    took = await site.until(
        SILENCE + 1, lambda: state.partitions["p1"].known.ready.value == "ERROR"
    )
    assert took >= SILENCE / 2
    info = await site.partition("p1")
    assert info.errors == [f"machine ag2 has been silent for {SILENCE:g} s"]
    assert {s for d, s in (await site.states()).items() if d.startswith("ag2")} == {"DOWN"}
    assert (await site.agent("ag2")).state == "DOWN"
    await site.controller.remove_partition(ALICE, RemoveRequest(name="p1", force=True))
    await refused(site.create("p2", 8), NoCapacity, "ag2")


async def test_a_server_that_stood_still_takes_nobody_for_silent(site: Site) -> None:
    """The server is stopped in the middle of a question, or between two questions."""
    await site.agents("ag1")
    await site.cluster("c1", "ag1")
    await site.create("p1", 4)
    state, machine = site.controller._state, site.machines["ag1"]
    for hangs in (0, 1) * 4:
        machine.fail_next("describe", hangs, Fault.HANG)
        site.time.now += 1000
        for _ in range(2 * int(SILENCE)):
            await site.time.advance(0.25)
            assert state.down == set()
    machine.set_down(True)
    await site.until(SILENCE * 1.5 + 1, lambda: state.partitions["p1"].known.ready.value == "ERROR")


async def test_a_fault_of_ours_in_one_look_does_not_end_the_watch(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await site.agents("ag1")
    await site.cluster("c1", "ag1")
    await site.create("p1", 4)
    compare, faults = Heartbeats._compare, [RuntimeError("a fault")]

    async def faulty(self: Heartbeats, machine: str, report: MachineReport) -> None:
        while faults:
            raise faults.pop()
        await compare(self, machine, report)

    monkeypatch.setattr(Heartbeats, "_compare", faulty)
    await site.until(SILENCE, lambda: "RuntimeError: a fault" in caplog.text)
    site.machines["ag1"].set_down(True)
    state = site.controller._state
    await site.until(SILENCE * 1.5 + 1, lambda: state.partitions["p1"].known.ready.value == "ERROR")


async def test_a_hanging_machine_does_not_hold_its_partitions(site: Site) -> None:
    """The machine's connection stays open, but it answers nothing, in the middle of a step."""
    await site.agents("ag1", "ag2")
    await site.cluster("c1", "ag1", "ag2")
    machine = site.machines["ag2"]
    machine.fail_next("configure", fault=Fault.HANG)
    creating = asyncio.ensure_future(site.create("p1", 8))
    await site.time.advance(1)
    machine.fail_next("describe", 1000, Fault.HANG)
    await site.until(SILENCE * 1.5 + 1, creating.done)
    assert (await creating).errors == [f"machine ag2 has been silent for {SILENCE:g} s"]


async def test_a_machine_that_comes_back_is_reset_before_it_serves(site: Site) -> None:
    await site.agents("ag1")
    await site.cluster("c1", "ag1")
    epoch = (await site.create("p1", 4)).epoch
    machine = site.machines["ag1"]
    machine.use(epoch, [0, 1])
    machine.set_down(True)
    state = site.controller._state
    await site.until(SILENCE + 1, lambda: "ag1" in state.down)
    await site.controller.remove_partition(ALICE, RemoveRequest(name="p1", force=True))
    assert machine.devices[0].used_by == "p1"
    machine.set_down(False)
    await site.until(10, lambda: "ag1" not in state.down)
    assert {device.used_by for device in machine.devices} == {""}
    assert (await site.create("p2", 4)).ready_state.value == "ACTIVE"
    assert machine.violations == []
    assert (await site.agent("ag1")).state == "UP"


async def test_a_machine_that_forgot_its_partition_is_reset_and_configured_again(
    site: Site,
) -> None:
    await site.agents("ag1")
    await site.cluster("c1", "ag1")
    await site.create("p1", 4)
    calls = site.machines["ag1"].calls
    site.machines["ag1"].power_cycle()
    state = site.controller._state
    await site.until(SILENCE, lambda: state.partitions["p1"].known.auto_resets == 1)
    await site.until(10, lambda: state.partitions["p1"].known.ready.value == "ACTIVE")
    assert [call.kind for call in calls if call.kind != "describe"][-2:] == ["reset", "configure"]


@pytest.mark.parametrize("change", ["chips", "count"])
async def test_a_machine_that_comes_back_with_other_hardware_is_refused(
    site: Site, change: str
) -> None:
    await site.agents("ag1", "ag2")
    await site.cluster("c1", "ag1", "ag2")
    await site.create("p1", 8)
    machine = site.machines["ag2"]
    if change == "chips":
        machine.serial = "OTHER"
        said = "device 0 is OTHER-0, not SIM-ag2-0"
    else:
        machine.devices.pop()
        said = "it has 3 devices, not 4"
    state = site.controller._state
    await site.until(SILENCE, lambda: state.partitions["p1"].known.ready.value == "ERROR")
    info = await site.agent("ag2")
    assert (info.state, info.reason) == ("REFUSED", said)
    assert said in (await site.partition("p1")).errors[0]
    await site.time.advance(60)
    assert "ag2" in state.down
    replace = AgentRequest(name="ag2", host="ag2", port=1, replace=True)
    if change == "count":
        await refused(
            site.controller.create_agent(ROOT, replace),
            InvalidRequest,
            "it has 3 IPUs",
        )
        return
    await site.controller.create_agent(ROOT, replace)
    await site.until(20, lambda: "ag2" not in state.down)
    assert (await site.agent("ag2")).state == "UP"


async def test_other_hardware_is_refused_by_a_restarted_server(site: Site) -> None:
    await site.agents("ag1")
    await site.cluster("c1", "ag1")
    await site.create("p1", 4)
    await site.controller.close()
    site.machines["ag1"].serial = "OTHER"
    await site.start()
    assert (await site.partition("p1")).ready_state.value == "ERROR"
    assert (await site.agent("ag1")).state == "REFUSED"


async def test_a_test_of_a_cluster_says_what_is_wrong_and_where(site: Site) -> None:
    ring = {"ag1": "ag4 ag2", "ag2": "ag1 ag3", "ag3": "ag2 ag4", "ag4": "ag3 ag1"}
    for name, ends in ring.items():
        down, up = ends.split()
        site.machine(name, links={"down": down, "up": up})
    await site.agents(*ring)
    await site.cluster("c1", *ring, ild_topology="torus")

    async def wrong() -> list[tuple[str, str, str]]:
        found = await site.controller.test_cluster(ROOT, Named(name="c1"))
        return [(r.check, r.machine, r.problem) for r in found.results if not r.ok]

    assert await wrong() == []
    with pytest.raises(InvalidRequest, match="no cluster is named"):
        await site.controller.test_cluster(ROOT, Named(name=""))
    site.machines["ag2"].links = {"down": "ag1", "up": "ag4"}
    site.machines["ag4"].links = None
    site.machines["ag1"].set_healthy(2, False)
    site.machines["ag3"].set_down(True)
    assert await wrong() == [
        ("health", "ag1", "IPU 2 is unhealthy"),
        ("cabling", "ag2", "port up leads to ag4; it should lead to ag3"),
        ("connectivity", "ag3", "machine ag3 does not answer"),
        ("cabling", "ag4", "its agent does not say where cables lead"),
    ]
    fault = ["c1", "ag2", "port up leads to ag4; it should lead to ag3"]
    assert site.controller.conditions(0.0)["cabling"] == [fault]
    for machine in site.machines.values():
        machine.heal()
        machine.set_down(False)
    site.machines["ag1"].links = {"up": "ag2"}
    site.machines["ag2"].links = {"down": "ag1", "up": "ag3"}
    site.machines["ag4"].links = {"down": "ag3"}
    assert ("topology", "", "it is cabled as mesh and none, not as torus and none") in await wrong()
    site.machines["ag2"].links = {"down": "ag1", "up": "ag4"}
    await wrong()
    assert site.controller.conditions(0.0)["cabling"]
    await site.controller.remove_cluster(ROOT, Named(name="c1"))
    assert site.controller.conditions(0.0)["cabling"] == []  # its cables concern nobody any more


async def test_what_was_announced_can_be_registered_by_name(site: Site) -> None:
    controller = site.controller
    site.machines["h1"] = site.machine("ag1")
    announce = controller.announce_agent
    await announce(ALICE, Announcement(name="ag1", host="h1", port=81))
    await refused(
        announce(ALICE, Announcement(name="ag2", host="h2", port=81)), WrongState, "by eth0"
    )
    await site.time.advance(3)
    (found,) = (await controller.discover_agents(ROOT, DiscoverRequest())).agents
    assert (found.name, found.host, found.port, found.interface) == ("ag1", "h1", 81, "eth0")
    assert found.seen == pytest.approx(3)
    info = await controller.create_agent(ROOT, AgentRequest(name="ag1"))
    assert (info.host, info.port) == ("h1", 81)
    assert (await controller.discover_agents(ROOT, DiscoverRequest())).agents == []
    await refused(
        controller.create_agent(ROOT, AgentRequest(name="ag7")),
        NotFound,
        "announced itself",
    )


async def test_users_have_keys_that_are_shown_once(site: Site) -> None:
    await site.agents("ag1")
    await site.cluster("c1", "ag1")
    controller = site.controller
    made = await controller.create_user(ROOT, UserRequest(name="alice", allocations=["c1"]))
    assert made.user.allocations == ["c1"]
    again = UserRequest(name="alice")
    await refused(controller.create_user(ROOT, again), AlreadyExists, "a user alice")
    for name, role, words in (
        ("bob", "king", "no role 'king'"),
        ("anonymous", "user", "somebody else"),
        ("12", "user", "somebody else"),
    ):
        bad = UserRequest(name=name, role=role)
        await refused(controller.create_user(ROOT, bad), InvalidRequest, words)
    unknown = UserRequest(name="bob", allocations=["a9"])
    await refused(controller.create_user(ROOT, unknown), NotFound, "no allocation a9")
    await refused(controller.list_users(ALICE, ListRequest()), Denied, "administrator")
    key = made.access_key
    assert not any(key.encode() in body for body in (await site.store.read()).records.values())
    await controller.close()
    await site.start()
    controller = site.controller
    for _ in range(2):
        caller = await controller.authenticate("alice", key)
        assert caller == Caller("alice", None, ALICE.role, "key")
    await refused(controller.authenticate("alice", key + "x"), Unauthenticated, "this name")
    await refused(controller.authenticate("bob", key), Unauthenticated, "this name")
    await controller.remove_user(ROOT, Named(name="alice"))
    await refused(controller.authenticate("alice", key), Unauthenticated, "this name")
    await refused(controller.remove_user(ROOT, Named(name="alice")), NotFound, "no user alice")


async def test_the_two_rack_cluster_of_a_real_site(site: Site) -> None:
    names = [f"ag.{rack}.{place}" for rack in (13, 14) for place in range(1, 17)]
    await site.agents(*names)
    racks = {"num_ilds": 2, "ild_topology": "torus", "topology": "looped"}
    typo = [*names[:-1], "ag.14.14"]
    await refused(
        site.cluster("cl128", *typo, **racks), InvalidRequest, "agent ag.14.14 is named 2 times"
    )
    info = await site.cluster("cl128", *names, **racks)
    assert (info.size, info.ild_sizes, info.topology) == (128, [64, 64], "looped")
    spec = PartitionSpec(name="p1", size=128, num_gcds=32, num_replicas=32)
    made = await site.controller.create_partition(ALICE, CreateRequest(spec=spec))
    assert (made.ready_state.value, made.num_ilds, made.routing.value) == ("ACTIVE", 2, "RINGSWNC")


async def test_allocations_set_machines_apart(site: Site) -> None:
    names = ["ag1", "ag2", "ag3", "ag4"]
    await site.agents(*names)
    await site.cluster("c1", *names)
    create, remove = site.controller.create_allocation, site.controller.remove_allocation

    def request(name: str, **settings: object) -> AllocationRequest:
        return AllocationRequest(name=name, **settings)  # type: ignore[arg-type]

    await site.create("p0", 4)
    outside = "p0 of cluster c1 lie outside any allocation"
    await refused(create(ROOT, request("a1", size=8)), WrongState, outside)
    await site.controller.remove_partition(ALICE, RemoveRequest(name="p0"))
    made = await create(ROOT, request("a1", size=8))
    assert (made.name, made.cluster, made.agents) == ("a1", "c1", ["ag1", "ag2"])
    cases = [
        (request("a1", size=4), AlreadyExists, "an allocation a1"),
        (request("a2", size=12), InvalidRequest, "cannot have 12 IPUs"),
        (request("a2", agents=["ag2"]), WrongState, "agent ag2 is in allocation a1"),
        (request("a2", agents=["ag3", "ag3"]), InvalidRequest, "named 2 times"),
        (request("a2", agents=["ag9"]), NotFound, "no agent ag9"),
        (request("a2", size=16), NoCapacity, "no 16 IPUs side by side"),
        (request("a2"), InvalidRequest, "either agents or a size"),
        (request("a2", size=4, users=["bob"]), NotFound, "no user bob"),
        (request("a2", size=4, cluster="c9"), NotFound, "no cluster c9"),
    ]
    for asked, kind, words in cases:
        await refused(create(ROOT, asked), kind, words)
    await refused(create(ALICE, request("a2", size=4)), Denied, "no administrator")
    assert (await create(ROOT, request("a2", agents=["ag4"]))).agents == ["ag4"]
    await refused(site.create("p1", 16), PodwrightError, "16")
    spec = PartitionSpec(name="p1", size=4, allocation="a2")
    await site.controller.create_partition(ALICE, CreateRequest(spec=spec))
    await site.controller.close()
    await site.start()
    listed = (await site.controller.list_allocations(ROOT, ListRequest())).allocations
    assert [(a.name, a.agents) for a in listed] == [("a1", ["ag1", "ag2"]), ("a2", ["ag4"])]
    create, remove = site.controller.create_allocation, site.controller.remove_allocation
    await refused(remove(ROOT, Named(name="a2")), WrongState, "it has p1 in it")
    await site.controller.remove_partition(ALICE, RemoveRequest(name="p1"))
    for name in ("a2", "a1"):
        assert await remove(ROOT, Named(name=name)) == Empty()
    listed = (await site.controller.list_allocations(ROOT, ListRequest())).allocations
    assert [(a.name, a.size) for a in listed] == [("c1", 16)]
    await refused(remove(ROOT, Named(name="c1")), WrongState, "stands for all of cluster c1")
    assert (await site.create("p2", 16)).ready_state.value == "ACTIVE"


async def test_a_grant_widens_what_a_user_may_use(site: Site) -> None:
    await site.agents("ag1", "ag2")
    await site.cluster("c1", "ag1", "ag2")
    controller = site.controller
    await controller.create_allocation(ROOT, AllocationRequest(name="a1", size=4))
    await controller.create_user(ROOT, UserRequest(name="alice", allocations=["a1"]))
    await controller.create_user(ROOT, UserRequest(name="bob"))
    both = AllocationRequest(name="a2", size=4, users=["alice", "bob"])
    await controller.create_allocation(ROOT, both)
    users = (await controller.list_users(ROOT, ListRequest())).users
    assert [(u.name, u.allocations) for u in users] == [("alice", ["a1", "a2"]), ("bob", [])]


async def test_a_relocatable_partition_moves_when_its_machine_falls_silent(site: Site) -> None:
    await site.agents("ag1", "ag2")
    await site.cluster("c1", "ag1", "ag2")
    spec = PartitionSpec(name="p1", size=4, relocatable=True)
    made = await site.controller.create_partition(ALICE, CreateRequest(spec=spec))
    (here,) = {device.machine for gcd in made.gcds for device in gcd}
    (other,) = {"ag1", "ag2"} - {here}
    site.machines[here].set_down(True)

    def moved() -> bool:
        record = site.controller._state.partitions["p1"].known
        return record.ready.value == "ACTIVE" and record.operation.value == "IDLE"

    await site.until(SILENCE + 1, lambda: here in site.controller._state.down)
    await site.until(10, moved)
    info = await site.partition("p1")
    assert {device.machine for gcd in info.gcds for device in gcd} == {other}
    site.machines[here].set_down(False)
    await site.until(10, lambda: here not in site.controller._state.down)
    assert site.machines[here].devices[0].partition == ""


async def test_an_agent_may_take_over_the_servers_own_devices() -> None:
    closed: list[int] = []

    class Own(SimulatedMachine):
        def close(self) -> None:
            closed.append(1)

    await let_go(Own(Machine("vm"), IPU))
    await let_go(SimulatedMachine(Machine("vm"), IPU))
    assert closed == [1]


async def test_events_of_machines_are_news(site: Site) -> None:
    """A machine that joins was not down before. One that comes back is an event, and so are its
    resets.
    """
    await site.agents("ag1", "ag2")
    await site.cluster("c1", "ag1", "ag2")
    await site.create("p1", 4)
    (home,) = {ref.machine for gcd in (await site.partition("p1")).gcds for ref in gcd}
    state = site.controller._state
    for down, expected in ((True, "ERROR"), (False, "ACTIVE")):
        site.machines[home].set_down(down)
        await site.until(60, lambda e=expected: state.partitions["p1"].known.ready.value == e)  # type: ignore[misc]
    listed = await site.controller.list_events(ROOT, EventsRequest())
    told = [(e.what, e.about) for e in listed.events if e.who == "server"]
    assert told == [("MachineDown", home), ("Error", "p1"), ("MachineUp", home), ("Reset", "p1")]


async def test_a_cluster_with_allocations_goes_by_force_alone(site: Site) -> None:
    """The allocations are removed with it, so a later cluster of the same name does not get
    them.
    """
    await site.agents("ag1", "ag2")
    await site.cluster("c1", "ag1", "ag2")
    request = AllocationRequest(name="a1", cluster="c1", agents=["ag1"])
    await site.controller.create_allocation(ROOT, request)
    remove = site.controller.remove_cluster
    await refused(remove(ROOT, Named(name="c1")), WrongState, "the allocations a1 are in it")
    await remove(ROOT, Named(name="c1", force=True))
    await site.cluster("c1", "ag1", "ag2")
    for _ in range(2):
        listed = (await site.controller.list_allocations(ROOT, ListRequest())).allocations
        assert [a.name for a in listed] == ["c1"]
        await site.controller.close()
        await site.start()


async def test_a_topology_that_nobody_sees_is_unknown(site: Site) -> None:
    """Regression: the topology was reported as OK, although no agent could tell where its cables
    lead.
    """
    await site.agents("ag1", "ag2")
    await site.cluster("c1", "ag1", "ag2")
    tested = await site.controller.test_cluster(ROOT, Named(name="c1"))
    states = {(r.check, r.machine): (r.ok, r.problem) for r in tested.results}
    assert states["topology", ""] == (None, "no agent says where cables lead")
    assert {states["cabling", name][0] for name in ("ag1", "ag2")} == {None}
    site.machines["ag1"].links = {"up": "ag2"}
    tested = await site.controller.test_cluster(ROOT, Named(name="c1"))
    assert tested.results[-1].problem == "1 agents do not say where cables lead"
    site.machines["ag2"].links = {"down": "ag1"}
    tested = await site.controller.test_cluster(ROOT, Named(name="c1"))
    assert all(r.ok for r in tested.results)
    for name in ("ag1", "ag2"):
        site.machines[name].links = {}
    tested = await site.controller.test_cluster(ROOT, Named(name="c1"))
    assert tested.results[-1].ok is False, "cables that are not there are no topology"


async def test_one_certificate_of_an_agent_is_believed_until_another_is_named(site: Site) -> None:
    """A restarted server believes it too, and so does a server when only the agent's address
    changes.
    """
    site.machine("ag1")
    first = AgentRequest(name="ag1", host="ag1", port=1, certificate="0a1b")
    await site.controller.create_agent(ROOT, first)
    assert site.asked == {"ag1": "0a1b"}
    moved = AgentRequest(name="ag1", host="ag1", port=2, replace=True)
    await site.controller.create_agent(ROOT, moved)
    site.asked.clear()
    await site.controller.close()
    await site.start()
    assert site.asked == {"ag1": "0a1b"}
    assert (await site.agent("ag1")).certificate == "0a1b"
    renewed = AgentRequest(name="ag1", host="ag1", port=2, replace=True, certificate="2c3d")
    assert (await site.controller.create_agent(ROOT, renewed)).certificate == "2c3d"
    assert site.asked == {"ag1": "2c3d"}
    for number in ("a.b", "*", "-a", "x" * 64):
        bad = AgentRequest(name="ag1", host="ag1", port=2, replace=True, certificate=number)
        await refused(
            site.controller.create_agent(ROOT, bad),
            InvalidRequest,
            "is not the number of a certificate",
        )


async def test_an_agent_of_another_build_is_left_alone_under_a_running_program() -> None:
    """Nothing is placed there, and nothing that runs there turns to ERROR, also after restarts."""
    site = Site()
    await site.start()
    await site.agents("ag1", "ag2")
    await site.cluster("c1", "ag1", "ag2")
    await site.create("p1", 4)
    (place,) = {m for m, machine in site.machines.items() if (await machine.describe()).configured}
    machine = site.machines[place]
    describe = machine.describe

    async def refuse() -> MachineReport:
        raise WrongState("its agent is too new", incompatible=True)

    machine.describe = refuse  # type: ignore[method-assign]
    await site.time.advance(3 * SILENCE)
    for _ in range(2):
        info = await site.agent(place)
        assert (info.state, info.reason) == ("REFUSED", "its agent is too new")
        assert (await site.partition("p1")).ready_state is ReadyState.ACTIVE
        with pytest.raises(NoCapacity):
            await site.create("p2", 8)
        await site.controller.close()
        await site.start()
    machine.describe = describe  # type: ignore[method-assign]
    await site.time.advance(3 * SILENCE)
    assert (await site.agent(place)).state == "UP"
    assert (await site.partition("p1")).ready_state is ReadyState.ACTIVE
    assert [call for call in machine.calls if call.kind == "reset"] == []
    await site.controller.close()
