"""GPUs in MIG mode: their slices are the devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from podwright.agents.gpu import (
    Cgroups,
    FileGuard,
    GpuMachine,
    Guard,
    fabric_manager_guard,
    open_machine,
)
from podwright.errors import Internal, Unavailable
from podwright.fabric import Machine
from podwright.hosts import RecordedCgroups
from podwright.hosts.gpus import Gpu, Slice, divided
from podwright.hosts.gpus._nvml_standin import STANDIN_VARIABLE
from tests.machines.node import HGX

MIG = (
    HGX.replace("gpus = 8", "gpus = 3")
    + """
[[gpu]]
index = 1
mig = "on"
slices = ["1g.10gb", "2g.20gb"]
processes = [{ pid = 1, memory = 512, slice = 2 }]
"""
)


@pytest.fixture
def make(described: Path) -> Iterator[Callable[..., GpuMachine]]:
    """Opens a node whose GPU 1 is cut in two."""
    described.write_text(MIG)
    opened: list[GpuMachine] = []

    def make(guards: Callable[[Sequence[Gpu]], Sequence[Guard]] = lambda gpus: ()) -> GpuMachine:
        environ = {STANDIN_VARIABLE: str(described)}
        machine = open_machine(Machine("n1"), environ, guards=guards, release_patience=0.0)
        assert machine is not None
        opened.append(machine)
        return machine

    yield make
    for machine in opened:
        machine.close()


async def test_slices_are_devices(make: Callable[..., GpuMachine]) -> None:
    machine = make()
    assert (machine.family.name, machine.family.devices_per_machine) == ("gpu4", 4)
    devices = (await machine.describe()).devices
    assert [d.index for d in devices] == [0, 1, 2, 3]
    assert [d.chip_id[:4] for d in devices] == ["GPU-", "GPU-", "MIG-", "MIG-"]
    shown = [d.attributes for d in devices]
    assert [one.get("profile") for one in shown] == [None, None, "1g.10gb", "2g.20gb"]
    assert [one["memory"] for one in shown[2:]] == ["10240 MiB", "20480 MiB"]
    assert [one["pci bus"] for one in shown] == [
        *("0000:10:00.0", "0000:30:00.0", "0000:20:00.0", "0000:20:00.0")
    ]


async def test_only_the_slice_that_is_used_is_held(make: Callable[..., GpuMachine]) -> None:
    machine = make()
    resets: list[str] = []
    machine._reset = lambda gpu: resets.append(gpu.uuid)
    await machine.configure("p1", 1, [2])
    with pytest.raises(Internal, match="GPU 3 of machine n1 is held by process 1"):
        await machine.configure("p2", 1, [3])
    await machine.reset(2, [2])
    await machine.release(3, [2])
    assert resets == []  # its neighbour would have gone with it
    await machine.reset(4, [1])
    assert resets == [machine.gpus[1].uuid]


CAPS = [
    Slice("MIG-a", "1g.10gb", 10240, ("/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap3"), 7),
    Slice("MIG-b", "1g.10gb", 10240, ("/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap5"), 8),
]


def cut(tmp_path: Path) -> list[Gpu]:
    """The devices of a machine of two GPUs, one of them cut, with files that all are made."""
    import stat

    whole = Gpu(0, "nvidia", "GPU-0", "H100", "h100", "0000:10:00.0", 8, files=("/dev/nvidia0",))
    parent = Gpu(
        1,
        *("nvidia", "GPU-1", "H100", "h100", "0000:20:00.0", 8),
        files=("/dev/nvidia1",),
        mig="on",
        slices=tuple(CAPS),
    )
    (tmp_path / "dev/nvidia-caps").mkdir(parents=True)
    for name in ("nvidia0", "nvidia1", "nvidia-caps/nvidia-cap3", "nvidia-caps/nvidia-cap5"):
        (tmp_path / "dev" / name).touch()
        (tmp_path / "dev" / name).chmod(0o666)
    assert stat.S_IMODE((tmp_path / "dev/nvidia1").stat().st_mode) == 0o666
    return [device.gpu for device in divided([whole, parent])]


def test_owners_get_the_files_that_are_the_slices_own(tmp_path: Path) -> None:
    gpus = cut(tmp_path)
    files = FileGuard(f"{tmp_path}/")
    files.check(gpus)
    files.join("p1", str(os.getuid()), gpus[1:2])
    modes = {
        name: (tmp_path / "dev" / name).stat().st_mode & 0o777
        for name in ("nvidia1", "nvidia-caps/nvidia-cap3", "nvidia-caps/nvidia-cap5")
    }
    assert modes == {
        "nvidia1": 0o666,
        "nvidia-caps/nvidia-cap3": 0o600,
        "nvidia-caps/nvidia-cap5": 0o666,
    }


async def test_a_slice_without_files_of_its_own_cannot_be_owned(
    make: Callable[..., GpuMachine], tmp_path: Path
) -> None:
    machine = make(lambda gpus: [FileGuard(f"{tmp_path}/")])
    with pytest.raises(Internal, match=r"MIG 1g.10gb MIG-.* has no device file of its own"):
        await machine.configure("p1", 1, [2])


def test_a_slices_programs_open_its_gpu_and_its_own_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {"nvidia0": 0, "nvidia1": 1, "nvidia-cap3": 3, "nvidia-cap5": 5}
    monkeypatch.setattr(Cgroups, "_number", lambda self, file: (195, numbers[Path(file).name]))
    gpus, groups = cut(tmp_path), RecordedCgroups()
    guard = Cgroups(groups, gpus)
    guard.join("p1", "", gpus[1:2])
    assert groups.denied["p1"] == {(195, 0), (195, 5)}
    guard.join("p2", "", gpus[:1])
    assert groups.denied["p2"] == {(195, 1), (195, 3), (195, 5)}


async def test_fabric_manager_is_not_asked_for_slices(
    make: Callable[..., GpuMachine], tmp_path: Path
) -> None:
    command = ["/no/such/command"]
    machine = make(lambda gpus: [fabric_manager_guard(command, gpus, tmp_path / "notes", {})])
    await machine.configure("p1", 1, [2])
    await machine.release(2, [2])
    with pytest.raises(Internal, match="cannot be run"):
        await machine.configure("p2", 3, [0])


def test_one_that_is_cut_into_nothing(described: Path) -> None:
    described.write_text('gpus = 1\nmig = "on"\n')
    with pytest.raises(Unavailable, match="in MIG mode, and cut into nothing"):
        open_machine(Machine("n1"), {STANDIN_VARIABLE: str(described)})
