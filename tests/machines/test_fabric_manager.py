"""NVLink partitions through Fabric Manager's command, with a stand-in that gives its answers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from podwright.agents.gpu import (
    FabricGuard,
    FabricManager,
    FilePartitionNotes,
    GpuMachine,
    HeldPartition,
    fabric_manager_guard,
    open_machine,
)
from podwright.agents.gpu._reset import run
from podwright.errors import Internal, InvalidRequest, WrongState
from podwright.fabric import Machine
from podwright.hosts.gpus import Gpu, Library
from podwright.hosts.gpus._nvml_standin import STANDIN_VARIABLE

#: A board of 8: all, halves, quarters, single ones, as HGX boards have them.
SETS = [
    list(range(1, 9)),
    *([4 * i + k for k in range(1, 5)] for i in range(2)),
    *([2 * i + k for k in range(1, 3)] for i in range(4)),
    *([i] for i in range(1, 9)),
]

STANDIN = """\
#!{python} -IS
import json, os, sys
folder = {folder!r}
with open(folder + "/calls", "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
path = folder + "/active"
active = json.load(open(path)) if os.path.exists(path) else []
sets = json.loads({sets!r})
option, *rest = sys.argv[1:]
waiting = folder + "/waiting"  # restarted, until it is given a list
if os.path.exists(waiting) and option != "--set-activated-list" and (
    option != "-l" or open(waiting).read() == "silent"
):
    print("Failed. fmReturn: -6")
    sys.exit(250)
if option == "--set-activated-list":
    if not os.path.exists(waiting):
        print("Failed to set activated partitions. fmReturn: -2")
        sys.exit(254)
    os.remove(waiting)
    json.dump([int(word) for word in rest[0].split(",") if word], open(path, "w"))
    sys.exit(0)
if os.path.exists(folder + "/fail"):
    print("Failed to activate partition. fmReturn: -3")
    sys.exit(253)
if option == "-l":
    info = [
        {{
            "partitionId": i, "isActive": int(i in active), "numGpus": len(modules),
            "gpuInfo": [
                {{"physicalId": m, "uuid": "", "pciBusId": "", "numNvLinksAvailable": 18,
                  "maxNumNvLinks": 18, "nvlinkLineRateMBps": 25000}} for m in modules
            ],
        }}
        for i, modules in enumerate(sets)
    ]
    print(json.dumps({{"version": 1, "numPartitions": len(info), "maxNumPartitions": 15,
                      "partitionInfo": info}}))
    sys.exit(0)
number = int(rest[0])
mine = set(sets[number])
if option == "-a":
    if number in active or any(mine & set(sets[i]) for i in active):
        print("Failed to activate partition. fmReturn: -14")
        sys.exit(242)
    active.append(number)
elif option == "-d":
    if number not in active:
        print("Failed to deactivate partition. fmReturn: -14")
        sys.exit(242)
    active.remove(number)
json.dump(active, open(path, "w"))
"""


class Daemon:
    """Fabric Manager, behind its command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.command = folder / "fmpm"
        text = STANDIN.format(python=sys.executable, folder=str(folder), sets=json.dumps(SETS))
        self.command.write_text(text)
        self.command.chmod(0o755)

    @property
    def active(self) -> list[list[int]]:
        """Return the GPUs of its active partitions, counted from 0."""
        path = self.folder / "active"
        numbers = json.loads(path.read_text()) if path.exists() else []
        return sorted([module - 1 for module in SETS[i]] for i in numbers)

    def activate(self, *numbers: int) -> None:
        """Activate partitions of another party."""
        (self.folder / "active").write_text(json.dumps(numbers))

    def calls(self, option: str) -> list[str]:
        """Return the words after an option, one call after the other."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [line.partition(" ")[2] for line in lines if line.split()[0] == option]

    def restart(self, mode: str) -> None:
        """Restart, and forget the active partitions. mode: `talks` or `silent` while it waits for
        the list; `anew` if it takes none.
        """
        (self.folder / "active").unlink(missing_ok=True)
        if mode != "anew":
            (self.folder / "waiting").write_text(mode)


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    """A daemon without active partitions."""
    return Daemon(tmp_path)


@pytest.fixture
def manager(daemon: Daemon, nvml: Library) -> FabricGuard:
    """The driver of the daemon."""
    return guard(daemon, nvml.gpus())


def guard(daemon: Daemon, gpus: Sequence[Gpu]) -> FabricGuard:
    """A guard in a process of its own."""
    return fabric_manager_guard([str(daemon.command)], gpus, daemon.folder / "state", os.environ)


def test_what_it_can_make(daemon: Daemon, nvml: Library) -> None:
    def fmpm(words: Sequence[str]) -> str:
        return run([str(daemon.command), *words], os.environ)

    notes = FilePartitionNotes(daemon.folder / "state")
    found = FabricManager(fmpm, nvml.gpus(), notes).supported()
    assert [len(one.gpus) for one in found] == [8, 4, 4, 2, 2, 2, 2, *[1] * 8]
    assert found[2].gpus == {4, 5, 6, 7}
    assert not any(one.active for one in found)


def test_partitions_come_and_go(manager: FabricGuard, daemon: Daemon, nvml: Library) -> None:
    gpus = nvml.gpus()
    for _ in range(2):  # the second changes nothing
        manager.join("p1", "", gpus[4:])
        manager.join("p2", "", gpus[:2])
    assert daemon.active == [[0, 1], [4, 5, 6, 7]]
    for _ in range(2):
        manager.leave(gpus[4:])
    assert daemon.active == [[0, 1]]


def test_what_a_killed_step_left_is_cleared(
    manager: FabricGuard, daemon: Daemon, nvml: Library
) -> None:
    gpus = nvml.gpus()
    manager.join("lost", "", gpus[:4])
    assert manager.keep([]) == {}  # the machine's own record has no such partition
    manager.join("p1", "", gpus[2:4])
    assert daemon.active == [[2, 3]]
    manager.join("p2", "", gpus[:1])
    manager.leave(gpus)
    assert daemon.active == []


def test_a_set_that_it_cannot_make_is_refused_before_anything_changes(
    manager: FabricGuard, daemon: Daemon, nvml: Library
) -> None:
    gpus = nvml.gpus()
    with pytest.raises(InvalidRequest, match=r"no partition of GPUs 1, 2. .*0-1, 2-3, 4-5, 6-7"):
        manager.check(gpus[1:3])
    with pytest.raises(InvalidRequest, match="Choose another size"):
        manager.check(gpus[:3])
    assert daemon.active == []


def test_its_failure_is_told(manager: FabricGuard, daemon: Daemon, nvml: Library) -> None:
    (daemon.folder / "fail").touch()
    with pytest.raises(Internal, match=r"fmpm -l failed: Failed .* fmReturn: -3"):
        manager.join("p1", "", nvml.gpus()[:2])


async def _whole_life(machine: GpuMachine) -> None:
    await machine.configure("p1", 1, [0, 1])
    await machine.release(2, [0, 1])


@pytest.mark.parametrize("at", ["-a", "-d"])
async def test_killed_while_it_is_told(
    daemon: Daemon, described: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The command is carried out, and its caller never gets the answer."""
    from podwright.agents.gpu import _make_fabric_guards, _reset

    class Kill(BaseException):
        """Nothing after this runs."""

    real = _reset.run

    def run(command: list[str], environ: dict[str, str]) -> str:
        done = real(command, environ)
        if command[1] == at:
            raise Kill
        return done

    def machine() -> GpuMachine:
        environ = {STANDIN_VARIABLE: str(described)}
        found = open_machine(
            Machine("n1"),
            environ,
            guards=lambda gpus: [guard(daemon, gpus)],
        )
        assert found is not None
        return found

    first = machine()
    monkeypatch.setattr(_make_fabric_guards, "run", run)
    with pytest.raises(Kill):
        await _whole_life(first)
    monkeypatch.setattr(_make_fabric_guards, "run", real)
    first.close()
    second = machine()
    if at == "-a":
        await second.configure("p1", 1, [0, 1])
        assert daemon.active == [[0, 1]]
    await second.release(2, [0, 1])
    assert daemon.active == []
    second.close()


def held(nvml: Library, **partitions: slice) -> list[HeldPartition]:
    """Partitions of the machine, as it remembers them."""
    return [HeldPartition(name, "", nvml.gpus()[some]) for name, some in partitions.items()]


@pytest.mark.parametrize("mode", ["talks", "silent"])
def test_one_that_was_restarted_is_given_its_partitions(
    manager: FabricGuard, daemon: Daemon, nvml: Library, mode: str
) -> None:
    ours = held(nvml, p1=slice(0, 2), p2=slice(4, 8))
    for one in ours:
        manager.join(*one)
    assert manager.keep(ours) == {}
    assert daemon.calls("--set-activated-list") == []
    daemon.restart(mode)
    assert manager.keep(ours) == {}
    assert manager.keep(ours) == {}
    assert daemon.active == [[0, 1], [4, 5, 6, 7]]
    assert daemon.calls("--set-activated-list") == ["2,3"]


def test_one_that_forgot_them_is_told_of(
    manager: FabricGuard, daemon: Daemon, nvml: Library
) -> None:
    ours = held(nvml, p1=slice(0, 2))
    manager.join(*ours[0])
    daemon.restart("anew")
    lost = "Fabric Manager has lost partition p1: reset it"
    for _ in range(2):
        assert manager.keep(ours) == dict.fromkeys([gpu.uuid for gpu in nvml.gpus()[:2]], lost)
    assert daemon.calls("--set-activated-list") == ["3"]  # it is not asked again and again
    manager.join(*ours[0])  # as the reset does
    assert manager.keep(ours) == {}
    daemon.restart("talks")
    assert manager.keep(ours) == {}


def test_one_that_waits_for_an_empty_list(
    manager: FabricGuard, daemon: Daemon, nvml: Library
) -> None:
    daemon.restart("talks")
    manager.join("p1", "", nvml.gpus()[:2])
    assert daemon.active == [[0, 1]]


def test_a_strangers_partition_is_told_of_and_left(
    manager: FabricGuard, daemon: Daemon, nvml: Library, caplog: pytest.LogCaptureFixture
) -> None:
    ours = held(nvml, p1=slice(0, 2))
    manager.join(*ours[0])
    daemon.activate(2, 3)
    for _ in range(2):
        assert manager.keep(ours) == {}
    assert [r.getMessage() for r in caplog.records] == [
        "Fabric Manager's partition 2 is active, and nobody's here"
    ]
    assert daemon.active == [[0, 1], [4, 5, 6, 7]]
    assert daemon.calls("-d") == []


async def test_a_live_partition_outlives_its_restart(
    daemon: Daemon, described: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = open_machine(
        Machine("n1"),
        {STANDIN_VARIABLE: str(described)},
        guards=lambda gpus: [guard(daemon, gpus)],
    )
    assert machine is not None
    await machine.configure("p1", 1, [0, 1])
    daemon.restart("talks")
    said = await machine.describe()
    assert (said.configured, daemon.active) == ({0: ("p1", 1), 1: ("p1", 1)}, [[0, 1]])
    assert all(device.healthy for device in said.devices)
    assert "was restarted, and knows of its partitions again" in caplog.text
    daemon.restart("anew")
    ill = [d.index for d in (await machine.describe()).devices if not d.healthy]
    assert ill == [0, 1]
    await machine.reset(2, [0, 1])
    assert daemon.active == [[0, 1]]
    assert all(device.healthy for device in (await machine.describe()).devices)
    (daemon.folder / "fail").touch()
    for _ in range(2):  # it is down: what runs goes on, and that is said once
        assert all(device.healthy for device in (await machine.describe()).devices)
    assert caplog.text.count("fmpm -l failed") == 1
    assert caplog.text.count("takes no list") == 1
    (daemon.folder / "fail").unlink()
    await machine.release(3, [0, 1])
    assert daemon.active == []
    machine.close()


def test_a_strangers_partition_is_never_taken_apart(
    manager: FabricGuard, daemon: Daemon, nvml: Library
) -> None:
    daemon.activate(2)  # GPUs 4 to 7
    with pytest.raises(WrongState, match=r"devices 4, 5 .* is in Fabric Manager's partition 2"):
        manager.join("p1", "", nvml.gpus()[4:6])
    manager.leave(nvml.gpus()[4:6])
    assert daemon.active == [[4, 5, 6, 7]]
    assert daemon.calls("-a") == daemon.calls("-d") == []
