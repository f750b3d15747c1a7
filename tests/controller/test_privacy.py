"""What callers see of other users' objects."""

from __future__ import annotations

import re
from typing import Any

import pytest

from podwright.agents import SimulatedMachine
from podwright.controller import Caller, Controller, Role, Visible, private_kinds
from podwright.errors import Denied, InvalidRequest, NotFound
from podwright.wire import (
    AcquireRequest,
    Empty,
    ExplainRequest,
    PartitionInfo,
    PartitionName,
    PartitionSpec,
    RemoveRequest,
    ResetRequest,
    Value,
)
from tests.controller.world import ALICE, ALL, BOB, NOBODY, ROOT, World

SCHEDULER = Caller("slurm", 64030, Role.SCHEDULER, "unix")


async def call(controller: Controller, caller: Caller, method: str, request: Value = ALL) -> Any:
    """Make a call as the fronts do."""
    caller, request = controller.admitted(caller, request)
    return controller.redacted(caller, await getattr(controller, method)(caller, request))


async def attach(controller: Controller, caller: Caller, name: str) -> None:
    """Request a partition's configuration as virmgrpc does."""
    await call(controller, caller, "get_partition", PartitionName(name=name, attach=True))


def visible(world: World, **settings: Any) -> None:
    """Return the same server with other settings of privacy."""
    controller = world.controller
    controller._services.privacy.__init__(  # type: ignore[misc]
        controller._state, Visible(**settings), controller._services.users.allocations_of
    )


@pytest.fixture
async def both(world: World) -> World:
    """Alice's partition a, leased, and Bob's b, with devices that have addresses."""
    for machine in world.machines.values():
        machine._ip = "10.9.9.9"
    await world.restart()
    await world.create("a", 4, caller=ALICE)
    await world.acquire("a", 4, caller=ALICE)
    await world.create("b", 4, caller=BOB)
    return world


def answers(info: PartitionInfo) -> set[tuple[str, int, int]]:
    return {(d.ip, d.server_port, d.rdma_port) for gcd in info.gcds for d in gcd}


async def test_end_points_are_told_to_nobody_else_whatever_is_set(both: World) -> None:
    controller = both.controller
    for caller, mine, sees_all in (
        (ALICE, "a", False), (BOB, "b", False), (NOBODY, "", False), (SCHEDULER, "", False),
        (ROOT, "", True),
    ):  # fmt: skip
        listed = (await call(controller, caller, "list_partitions")).partitions
        assert [p.name for p in listed] == ["a", "b"]
        for info in listed:
            told = sees_all or info.name == mine
            got = await call(controller, caller, "get_partition", PartitionName(name=info.name))
            assert got == info
            assert (answers(info) == {("", 0, 0)}) is not told
            if told:
                await attach(controller, caller, info.name)
            else:
                with pytest.raises(Denied, match="where its devices answer is told to"):
                    await attach(controller, caller, info.name)
        for device in (await call(controller, caller, "list_devices")).devices:
            told = sees_all or (bool(mine) and device.partition == mine)
            assert bool(device.device.ip) is told


async def test_who_holds_a_lease_or_schedules_is_told(both: World) -> None:
    controller = both.controller
    entry = controller._state.partitions["b"]
    entry.cluster.closed[entry.known.allocation] = "slurm"  # type: ignore[union-attr]
    await attach(controller, SCHEDULER, "b")
    reply = await controller.acquire(
        ROOT,
        AcquireRequest(spec=PartitionSpec(name="b"), owner="alice", owner_uid=1001),
    )
    assert reply.lease.owner == "alice"
    await attach(controller, ALICE, "b")
    with pytest.raises(Denied):
        await attach(controller, NOBODY, "b")
    visible(both, anonymous_endpoints=True)
    await attach(controller, NOBODY, "b")


@pytest.mark.parametrize("private", ["devices", "partitions", ""])
async def test_what_others_programs_do_is_private_with_their_devices(
    both: World, private: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if private:
        visible(both, private=private_kinds(private))
    controller = both.controller
    measured = {"load": "97 %", "power": "610 W", "processes": "7 alice python", "name": "G"}
    monkeypatch.setattr(SimulatedMachine, "_device_attributes", lambda *_: measured)
    for machine, cluster in controller._state.inventory.by_machine.items():
        cluster.learn(machine, await controller._state.hardware.describe(machine))
    for caller in (ALICE, BOB, ROOT):
        devices = (await call(controller, caller, "list_devices")).devices
        hidden = [device for device in devices if set(device.attributes) == {"name"}]
        shown = [device for device in devices if device.attributes == measured]
        others = 4 if private and caller is not ROOT else 0
        assert (len(hidden), len(shown)) == (others, len(devices) - others), caller.name
        assert all(device.state == "IN_USE" and not device.partition for device in hidden)


async def test_private_things_are_as_if_they_were_not_there(both: World) -> None:
    visible(both, private=private_kinds("all"))
    controller = both.controller
    for caller, mine, other in ((ALICE, "a", "b"), (BOB, "b", "a")):
        listed = (await call(controller, caller, "list_partitions")).partitions
        assert [p.name for p in listed] == [mine]
        leases = (await call(controller, caller, "list_leases")).leases
        assert {lease.partition for lease in leases} <= {mine}
        devices = (await call(controller, caller, "list_devices")).devices
        assert {d.partition for d in devices} == {"", mine}
        assert sum(d.state == "IN_USE" for d in devices) == 8  # that they are taken is not a secret
        for method, request in (
            ("get_partition", PartitionName(name=other)),
            ("reset_partition", ResetRequest(name=other)),
            ("remove_partition", RemoveRequest(name=other)),
            ("explain", ExplainRequest(name=other)),
            ("acquire", AcquireRequest(spec=PartitionSpec(name=other))),
        ):
            with pytest.raises(NotFound) as refused:
                await call(controller, caller, method, request)
            assert re.search(rf"there is no (.*or )?partition {other}\b", refused.value.message)
            assert caller.name == "alice" or "alice" not in refused.value.message
        big = ExplainRequest(spec=PartitionSpec(name="big", size=16))
        found = await call(controller, caller, "explain", big)
        assert {p.partition for p in found.partitions} == {mine}
        assert "1 other partitions have some, too" in found.lines
        assert other not in [word for line in found.lines for word in line.split()]
    everything = (await call(controller, ROOT, "list_partitions")).partitions
    assert [p.name for p in everything] == ["a", "b"]
    assert await call(
        controller, ALICE, "remove_partition", RemoveRequest(name="a", force=True)
    ) == (Empty())


def test_kinds_are_words_that_are_known() -> None:
    assert private_kinds("") == frozenset()
    assert private_kinds(" leases, waiters ") == {"leases", "waiters"}
    assert "partitions" in private_kinds("all")
    with pytest.raises(InvalidRequest, match="'jobs' cannot be private"):
        private_kinds("jobs")


def test_all_is_private_on_a_secure_server_unless_it_is_set_otherwise() -> None:
    assert Visible().settled(secure=True).private == private_kinds("all")
    assert Visible().settled(secure=False).private == frozenset()
    for secure in (True, False):
        assert Visible(private_kinds("none")).settled(secure=secure).private == frozenset()
        assert Visible(private_kinds("leases")).settled(secure=secure).private == frozenset(
            {"leases"}
        )
