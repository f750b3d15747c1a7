"""GPUs behind the driver seam: reports, refusals, isolation and release."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from podwright.agents import FabricDevice, SavedMachine
from podwright.agents.fabric import DeviceIdentity, FabricInventory
from podwright.agents.gpu import FileGuard, GpuMachine, Guard, open_machine
from podwright.agents.gpu._describe import attributes
from podwright.errors import Fenced, Internal, InvalidRequest
from podwright.fabric import HGX8, NVL72, Machine, family_named
from podwright.hosts.gpus import Gpu, Health, Sample
from podwright.hosts.gpus._nvml_standin import STANDIN_VARIABLE
from podwright.wire.agent import DeviceState
from tests.machines.node import HGX

Make = Callable[..., GpuMachine]


@pytest.fixture
async def make(described: Path) -> AsyncIterator[Make]:
    """Opens the described node."""
    opened: list[GpuMachine] = []

    def make(**options: object) -> GpuMachine:
        environ = {STANDIN_VARIABLE: str(described)}
        machine = open_machine(Machine("n1"), environ, release_patience=0.2, **options)  # type: ignore[arg-type]
        assert machine is not None
        opened.append(machine)
        return machine

    yield make
    for machine in opened:
        machine.close()


def add(described: Path, line: str, index: int = 3) -> None:
    """Change one GPU from now on."""
    write(described, described.read_text() + f"[[gpu]]\nindex = {index}\n{line}\n")


def write(described: Path, text: str) -> str:
    """Another description, told apart by its time. Returns the one before."""
    before, at = described.read_text(), os.stat(described).st_mtime_ns
    described.write_text(text)
    os.utime(described, ns=(0, at + 1))
    return before


async def report(machine: GpuMachine, index: int = 3) -> DeviceState:
    return (await machine.describe()).devices[index]


async def test_what_is_there(make: Make) -> None:
    said = await make().describe()
    assert (said.name, said.family, said.software) == ("n1", "hgx8", "simulated")
    assert [device.index for device in said.devices] == list(range(8))
    assert all(device.healthy for device in said.devices)
    assert len({device.chip_id for device in said.devices}) == 8
    shown = said.devices[0].attributes
    assert shown["name"] == "NVIDIA H100 80GB HBM3"
    assert (shown["links"], shown["memory"], shown["numa node"]) == ("18", "81559 MiB", "0")
    assert shown["ecc errors"] == "0 corrected, 0 uncorrected"


async def test_what_the_driver_measures(make: Make, described: Path) -> None:
    machine = make()
    add(described, "load = 97\nwatts = 610\ncelsius = 71\necc_corrected = 3")
    shown = (await report(machine)).attributes
    assert (shown["load"], shown["power"], shown["temperature"]) == ("97 %", "610 W", "71 °C")
    assert shown["memory used"].endswith(" MiB")
    assert shown["ecc errors"] == "3 corrected, 0 uncorrected"
    bare = attributes(machine.gpus[3], "1", Health(), (), Sample())
    measured = {"load", "power", "temperature", "memory used", "ecc errors"}
    assert not measured & bare.keys(), "what the driver does not report is left out"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("xid = 79", "XID 79"),
        ("ecc_uncorrected = 2", "2 memory errors that could not be corrected"),
        ('row_remap = "failed"', "replacing rows of its memory has failed"),
        ('row_remap = "pending"', "replacing rows of its memory waits for a reset"),
        ("lost = true", "has fallen off the bus"),
    ],
)
async def test_ill_health_is_seen_and_nothing_new_is_put_there(
    make: Make, described: Path, line: str, problem: str
) -> None:
    machine = make()
    assert (await report(machine)).healthy
    add(described, line)
    ill = await report(machine)
    assert not ill.healthy
    assert problem in ill.attributes["problems"]
    with pytest.raises(Internal, match=f"GPU 3 of machine n1 is unhealthy: .*{problem}"):
        await machine.configure("p1", 1, [2, 3])
    await machine.configure("p1", 1, [0, 1])
    assert (await machine.describe()).configured == {0: ("p1", 1), 1: ("p1", 1)}
    await machine.release(2, [3])


async def test_a_programs_own_error_is_no_ill_health(make: Make, described: Path) -> None:
    machine = make()
    add(described, "xid = 31\necc_corrected = 12")
    fine = await report(machine)
    assert fine.healthy
    assert fine.attributes["last xid"] == "31"


async def test_an_xid_counts_until_the_reset(make: Make, described: Path) -> None:
    resets: list[int] = []
    machine = make()
    machine._reset = lambda gpu: resets.append(gpu.index)
    add(described, "xid = 48")
    assert not (await report(machine)).healthy
    await machine.reset(1, [3])
    assert resets == [3]
    assert (await report(machine)).healthy


async def test_who_holds_it(make: Make, described: Path) -> None:
    machine = make()
    add(described, f"processes = [{{ pid = {os.getpid()}, memory = 512 }}]")
    shown = (await report(machine)).attributes["processes"]
    assert shown.startswith(f"{os.getpid()} ")
    assert shown.endswith(" 512 MiB")
    with pytest.raises(Internal, match=f"GPU 3 of machine n1 is held by process {os.getpid()} of"):
        await machine.configure("p1", 1, [3])
    with pytest.raises(Internal, match="is held by"):
        await machine.release(1, [3])


async def test_devices_change_hands_only_when_let_go(make: Make, described: Path) -> None:
    machine = make()
    await machine.configure("p1", 1, [3])
    before = write(described, f"{HGX}[[gpu]]\nindex = 3\nprocesses = [{{ pid = 1, memory = 5 }}]\n")
    await machine.configure("p1", 2, [3])  # its own program: nothing to wait for
    with pytest.raises(Internal, match="is held by process 1"):
        await machine.reset(3, [3])
    write(described, before)
    await machine.release(4, [3])
    assert (await machine.describe()).configured == {}


async def test_a_machine_answers_while_it_changes(make: Make, described: Path) -> None:
    machine = make()
    machine._patience = 60.0
    before = await machine.describe()
    write(described, f"{HGX}[[gpu]]\nindex = 3\nprocesses = [{{ pid = 1, memory = 5 }}]\n")
    waiting = asyncio.create_task(machine.reset(1, [3]))
    await asyncio.sleep(0)
    assert (await machine.describe()).devices == before.devices
    write(described, HGX)
    await waiting
    assert (await machine.describe()).devices == before.devices


async def test_an_old_epoch_is_refused(make: Make) -> None:
    machine = make()
    await machine.configure("p1", 5, [0])
    for call in (machine.reset(4, [0]), machine.release(4, [0]), machine.configure("p2", 4, [0])):
        with pytest.raises(Fenced, match="has seen epoch 5"):
            await call
    assert (await machine.describe()).fence == 5


async def test_what_a_killed_agent_knew_is_known(make: Make, tmp_path: Path) -> None:
    kept = SavedMachine(make(), tmp_path / "state")
    await kept.configure_for("", "p1", 7, [1, 2])
    kept.let_go()
    again = SavedMachine(make(), tmp_path / "state")
    assert (await again.describe()).configured == {1: ("p1", 7), 2: ("p1", 7)}
    with pytest.raises(Fenced):
        await again.reset(6, [1])
    again.let_go()


async def test_the_file_of_real_gpus_tells_nothing_that_only_simulated_ones_have(
    make: Make, tmp_path: Path
) -> None:
    path = tmp_path / "state"
    kept = SavedMachine(make(), path)
    await kept.configure_for("u1", "p1", 7, [1])
    kept.let_go()
    content = json.loads(path.read_text())
    assert content["devices"][1] == {"partition": "p1", "epoch": 7, "seen": 7, "owner": "u1"}
    for device in content["devices"]:
        device.update(used_by="p0", healthy=False)  # as agents before this one wrote
    path.write_text(json.dumps(content))
    again = SavedMachine(make(), path)
    assert (await again.describe()).configured == {1: ("p1", 7)}
    again.let_go()


async def test_what_they_look_like(make: Make, described: Path) -> None:
    assert make().family is HGX8
    with pytest.raises(InvalidRequest, match=r"has 8 GPUs, and one of family nvl72 has 4.*hgx8"):
        make(family=NVL72)
    write(described, "gpus = 2\n")
    assert make().family == family_named("gpu2")
    fabric = "6c0eb8e3-5b3f-4f6c-8f0e-0a4d2b1c9e77:1"
    write(described, f'gpus = 4\nfabric = "{fabric}"\n')
    assert make().family is NVL72
    write(described, "gpus = 0\n")
    assert open_machine(Machine("n1"), {STANDIN_VARIABLE: str(described)}) is None


async def test_a_rack_knows_a_gpu_by_what_its_agent_reports(make: Make, described: Path) -> None:
    domain = "3b7f0a1e-9a53-4f4e-8d6b-6f7f2f9d4c10"
    write(
        described,
        f'gpus = 2\nfabric = "{domain}:7"\nchassis = "1820324160012"\nslot = 11\ntray = 3\n'
        '[[gpu]]\nindex = 0\nguid = "0x034c4931ff7d1c4f"\n'
        '[[gpu]]\nindex = 1\nguid = "0x955bdb0e73dbd4cf"\n',
    )
    reports = (await make().describe()).devices
    inventory = FabricInventory({}, lambda _: [report.attributes for report in reports])
    assert [inventory.identity(FabricDevice("t0", index)) for index in range(2)] == [
        DeviceIdentity(str(guid), domain, "1820324160012", 11, 3)
        for guid in (0x034C4931FF7D1C4F, 0x955BDB0E73DBD4CF)
    ]


class Step:
    """A guard that keeps its state outside, as hardware does, and can end the process's work."""

    def __init__(self, name: str, world: dict[str, set[int]], die: list[str]) -> None:
        self.name, self.world, self.die = name, world, die

    def check(self, gpus: Sequence[Gpu]) -> None:
        self._step("check")

    def join(self, partition: str, owner: str, gpus: Sequence[Gpu]) -> None:
        self._step("before join")
        self.world[self.name] |= {gpu.index for gpu in gpus}
        self._step("after join")

    def leave(self, gpus: Sequence[Gpu]) -> None:
        self._step("before leave")
        self.world[self.name] -= {gpu.index for gpu in gpus}
        self._step("after leave")

    def _step(self, what: str) -> None:
        if self.die and self.die[0] == f"{self.name} {what}":
            self.die.pop()
            raise _Killed


class _Killed(BaseException):
    """Nothing after this runs, as after kill -9."""


@pytest.mark.parametrize("first", ["join", "leave"])
@pytest.mark.parametrize("at", range(6))
async def test_a_kill_between_two_guards_leaks_nothing(
    make: Make, tmp_path: Path, first: str, at: int
) -> None:
    world: dict[str, set[int]] = {"a": set(), "b": set()}
    names = [f"{name} {what} {first}" for name in "ab" for what in ("before", "after")]
    die = [(["a check", "b check", *names])[at]]
    guards: list[Guard] = [Step("a", world, die), Step("b", world, die)]
    kept = SavedMachine(make(guards=lambda gpus: guards), tmp_path / "state")
    try:
        await kept.configure("p1", 1, [2, 3])
        await kept.release(2, [2, 3])
    except _Killed:
        pass
    assert die == []
    kept.let_go()
    again = SavedMachine(make(guards=lambda gpus: guards), tmp_path / "state")
    if first == "join":  # the controller finishes the step, and then ends the partition
        await again.configure("p1", 1, [2, 3])
        assert world == {"a": {2, 3}, "b": {2, 3}}
    await again.release(2, [2, 3])
    assert world == {"a": set(), "b": set()}
    assert (await again.describe()).configured == {}
    again.let_go()


async def test_device_files_belong_to_the_partitions_owner(make: Make, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "dev").mkdir(parents=True)
    for i in range(8):
        (root / f"dev/nvidia{i}").touch()
        (root / f"dev/nvidia{i}").chmod(0o666)
    machine = make(guards=lambda gpus: [FileGuard(f"{root}/")])
    me = str(os.getuid())

    def modes() -> list[int]:
        return [stat.S_IMODE((root / f"dev/nvidia{i}").stat().st_mode) for i in range(4)]

    await machine.configure_for(me, "p1", 1, [1, 2])
    assert modes() == [0o666, 0o600, 0o600, 0o666]
    with pytest.raises(InvalidRequest, match="no user nobody-of-that-name"):
        await machine.configure_for("nobody-of-that-name", "p2", 1, [3])
    assert modes()[3] == 0o666
    (root / "dev/nvidia3").unlink()
    with pytest.raises(Internal, match=r"there is no device file .*nvidia3"):
        await machine.configure_for(me, "p2", 2, [0, 3])
    (root / "dev/nvidia3").touch()
    assert modes()[0] == 0o666
    await machine.release(3, [1, 2])
    assert modes()[:3] == [0o666, 0o600, 0o600]
    if os.getuid() == 0:
        await machine.configure_for("12345", "p3", 4, [1])
        assert (root / "dev/nvidia1").stat().st_uid == 12345
        await machine.release(5, [1])
        assert (root / "dev/nvidia1").stat().st_uid == 0
