"""The simulated machine: what the seam promises, and the faults it can be told to have."""

from __future__ import annotations

import asyncio

import pytest

from podwright import agents
from podwright.agents import Driver, Fault, SimulatedMachine
from podwright.errors import Fenced, Internal, Unavailable
from podwright.fabric import IPU, Machine


@pytest.fixture
def machine() -> SimulatedMachine:
    return SimulatedMachine(Machine("ag1", "10.1.2.3"), IPU, max_kept_calls=3)


async def test_it_is_a_driver_and_says_what_it_is(machine: SimulatedMachine) -> None:
    driver: Driver = machine
    report = await driver.describe()
    assert [d.index for d in report.devices] == [0, 1, 2, 3]
    assert {d.ip for d in report.devices} == {"10.1.2.3"}
    assert len({d.server_port for d in report.devices}) == 4
    assert {d.attributes["board type"] for d in report.devices} == {"SIMULATED"}
    assert all(d.healthy for d in report.devices)
    assert report.configured == {}
    assert report.software == "simulated"


async def test_configure_reset_release(machine: SimulatedMachine) -> None:
    await machine.configure("p1", 5, [0, 1])
    await machine.configure("p1", 5, [0, 1])
    assert (await machine.describe()).configured == {0: ("p1", 5), 1: ("p1", 5)}
    machine.use(5, [0])
    assert machine.devices[0].used_by == "p1"
    await machine.reset(6, [0, 1])
    assert machine.devices[0].used_by == ""
    assert (await machine.describe()).configured == {0: ("p1", 6), 1: ("p1", 6)}
    await machine.release(7, [0, 1])
    assert (await machine.describe()).configured == {}
    assert [c.kind for c in machine.calls] == ["describe", "release", "describe"]
    assert machine.violations == []


async def test_an_old_epoch_is_refused_and_changes_nothing(machine: SimulatedMachine) -> None:
    await machine.configure("p1", 5, [0])
    with pytest.raises(Fenced, match="epoch 5"):
        await machine.configure("p2", 4, [0, 1])
    for call in (machine.reset, machine.release):
        with pytest.raises(Fenced, match="epoch 5"):
            await call(4, [1, 0])
    with pytest.raises(Fenced):
        machine.use(4, [0])
    assert (await machine.describe()).configured == {0: ("p1", 5)}
    await machine.configure("p2", 1, [1])  # each device has its own fence


async def test_a_device_that_moves_unreset_is_a_violation(machine: SimulatedMachine) -> None:
    await machine.configure("p1", 1, [0])
    await machine.configure("p2", 2, [0])
    assert machine.violations == ["ag1: p1 -> p2"]


async def test_faults_come_as_often_as_they_were_ordered(machine: SimulatedMachine) -> None:
    machine.fail_next("configure", 2)
    for _ in range(2):
        with pytest.raises(Internal, match="ag1 failed to configure"):
            await machine.configure("p1", 1, [0])
    await machine.configure("p1", 1, [0])
    machine.fail_next("reset", fault=Fault.SILENT)
    with pytest.raises(Unavailable):
        await machine.reset(2, [0])
    assert machine.devices[0].epoch == 1
    machine.fail_next("release", fault=Fault.LOST_REPLY)
    with pytest.raises(Unavailable):
        await machine.release(2, [0])
    assert machine.devices[0].partition == ""
    machine.fail_next("configure", 5)
    machine.heal()
    await machine.configure("p1", 3, [0])


async def test_hang_and_down(machine: SimulatedMachine) -> None:
    machine.fail_next("configure", fault=Fault.HANG)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(machine.configure("p1", 1, [0]), 0.01)
    assert machine.devices[0].partition == ""
    machine.set_down(True)
    with pytest.raises(Unavailable, match="does not answer"):
        await machine.describe()
    with pytest.raises(Unavailable, match="does not answer"):
        await machine.release(1, [0])
    machine.set_down(False)
    await machine.describe()


async def test_unhealthy_devices_can_only_be_released(machine: SimulatedMachine) -> None:
    machine.set_healthy(1, False)
    with pytest.raises(Internal, match="unhealthy"):
        await machine.configure("p1", 1, [0, 1])
    assert machine.devices[0].partition == ""
    await machine.release(2, [0, 1])
    assert [d.healthy for d in (await machine.describe()).devices] == [True, False, True, True]


async def test_delays_pass_through_the_given_sleep() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    machine = SimulatedMachine(Machine("ag1"), IPU, ip="10.0.0.1", sleep=sleep)
    machine.delay("reset", 2.5)
    await machine.reset(1, [0])
    await machine.configure("p1", 2, [0])
    assert slept == [2.5]
    assert machine.calls == []


async def test_a_power_cut_takes_everything(machine: SimulatedMachine) -> None:
    await machine.configure("p1", 9, [0])
    machine.power_cycle()
    assert (await machine.describe()).configured == {}
    await machine.configure("p2", 1, [0])
    assert machine.violations == []


def test_the_door() -> None:
    assert set(agents.__all__) == {
        "EPOCH_LIMIT",
        "WINDOW",
        "Agent",
        "Call",
        "Driver",
        "FabricDevice",
        "FabricDriver",
        "FabricJournal",
        "FabricParts",
        "FabricReading",
        "FabricSite",
        "Fault",
        "Heard",
        "SavedMachine",
        "MachineReport",
        "MemoryFabricJournal",
        "OwnedDriver",
        "PoolDriver",
        "RemoteMachine",
        "Secret",
        "SimulatedDevice",
        "SimulatedMachine",
        "attached_name",
        "devices_of",
        "figures",
        "machine_key",
        "named_devices",
        "parts_of",
        "read_key",
        "repeated",
    }
