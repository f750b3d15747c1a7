"""AMD's GPUs behind the same seam, by a stand-in of its package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from podwright.agents.gpu import open_machine
from podwright.agents.gpu._guards import FileGuard
from podwright.errors import Internal, InvalidRequest, Unavailable
from podwright.fabric import HGX8, Machine
from podwright.hosts.gpus import LibraryError, open_libraries, take_inventory
from podwright.hosts.gpus._amd_standin import STANDIN_VARIABLE
from podwright.hosts.gpus._nvml_standin import STANDIN_VARIABLE as NVML
from tests.machines.node import HGX

OAM = """\
gpus = 8
name = "AMD Instinct MI300X"
memory = 196592
xgmi = true
numa_nodes = 2
"""


@pytest.fixture
def oam(tmp_path: Path) -> Path:
    """The file that describes a node of 8."""
    path = tmp_path / "amd.toml"
    path.write_text(OAM)
    return path


def test_a_node_of_eight(oam: Path) -> None:
    found = take_inventory({STANDIN_VARIABLE: str(oam)})
    assert found.simulated
    assert found.drivers == {"amd": "6.12.12"}
    assert {gpu.type for gpu in found.gpus} == {"mi300x"}
    assert found.gpus[0].links == (-1, *[1] * 7)
    assert found.gpus[2].files == ("/dev/dri/renderD130",)
    assert found.gpus[2].uuid == "GPU-4a10c0de00000002"
    assert [gpu.node for gpu in found.gpus] == [0] * 4 + [1] * 4


def test_both_vendors_in_one_machine(oam: Path, described: Path) -> None:
    described.write_text(HGX.replace("gpus = 8", "gpus = 2"))
    found = take_inventory({STANDIN_VARIABLE: str(oam), NVML: str(described)})
    assert [gpu.vendor for gpu in found.gpus] == ["nvidia"] * 2 + ["amd"] * 8
    assert [gpu.index for gpu in found.gpus] == list(range(10))
    assert found.gpus[0].links == (-1, 18, *[0] * 8)
    assert found.gpus[9].links == (0, 0, *[1] * 7, -1)
    assert all(len(gpu.paths) == 10 for gpu in found.gpus)


def test_a_stand_in_is_not_mixed_with_real_gpus(oam: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_real(environ: Mapping[str, str], root: str) -> None:
        raise LibraryError("a real library was opened")

    monkeypatch.setattr("podwright.hosts.gpus._nvml.open_nvml", open_real)
    assert take_inventory({STANDIN_VARIABLE: str(oam)}).notes == ()
    assert take_inventory({}).notes == ("nvidia: a real library was opened",)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("ecc_uncorrected = 1", "1 memory errors that could not be corrected"),
        ('bad_pages = "pending"', "replacing pages of its memory waits for a reset"),
        ("lost = true", "does not answer"),
    ],
)
async def test_ill_health(oam: Path, line: str, problem: str) -> None:
    machine = open_machine(Machine("n1"), {STANDIN_VARIABLE: str(oam)})
    assert machine is not None
    assert machine.family is HGX8
    assert all(device.healthy for device in (await machine.describe()).devices)
    _write(oam, f"{OAM}[[gpu]]\nindex = 3\n{line}\n")
    ill = (await machine.describe()).devices[3]
    assert not ill.healthy
    assert ill.attributes["problems"] == problem
    with pytest.raises(Internal, match=problem):
        await machine.configure("p1", 1, [3])
    machine.close()


def test_who_holds_it_and_what_it_does(oam: Path) -> None:
    me = f"processes = [{{ pid = {os.getpid()}, memory = 512 }}]\nload = 97\nwatts = 710\n"
    _write(oam, f"{OAM}[[gpu]]\nindex = 3\n{me}")
    ((library,), notes) = open_libraries({STANDIN_VARIABLE: str(oam)})
    assert notes == []
    (holder,) = library.holders(3)
    assert (holder.pid, holder.memory) == (os.getpid(), 512 << 20)
    assert library.holders(2) == ()
    assert library.sample(3) == (97, 512 << 20, 710, None, None)
    assert library.sample(2).load is None


def test_what_cannot_be_read_is_noted(tmp_path: Path) -> None:
    found, notes = open_libraries({STANDIN_VARIABLE: str(tmp_path / "none")})
    assert (found, notes) == ([], [f"amd: {tmp_path}/none: No such file or directory"])


def _write(path: Path, text: str) -> None:
    at = os.stat(path).st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(0, at + 1))


# -- a socket as several devices -------------------------------------------------------------------

CPX = OAM.replace("gpus = 8", 'gpus = 16\nmode = "CPX"\nparts = 8')


async def test_the_parts_of_a_socket_are_devices_of_their_own(oam: Path) -> None:
    _write(oam, CPX)
    machine = open_machine(Machine("n1"), {STANDIN_VARIABLE: str(oam)})
    assert machine is not None
    assert [gpu.uuid for gpu in machine.gpus[6:10]] == [
        "GPU-4a10c0de00000000.6",
        "GPU-4a10c0de00000000.7",
        "GPU-4a10c0de00000001.0",
        "GPU-4a10c0de00000001.1",
    ]
    assert {gpu.memory for gpu in machine.gpus} == {(196592 << 20) // 8}
    assert {gpu.bus for gpu in machine.gpus} == {"0000:05:00.0", "0000:25:00.0"}
    reports = (await machine.describe()).devices
    assert {report.attributes["profile"] for report in reports} == {"cpx"}


async def test_a_part_is_released_without_a_reset_of_its_socket(oam: Path) -> None:
    _write(oam, CPX)
    machine = open_machine(Machine("n1"), {STANDIN_VARIABLE: str(oam)})
    assert machine is not None
    resets: list[str] = []
    machine._reset = lambda gpu: resets.append(gpu.uuid)
    await machine.configure("a", 1, [0])
    await machine.configure("b", 2, [1])
    await machine.release(3, [0])
    assert resets == []
    assert (await machine.describe()).configured == {1: ("b", 2)}


def test_guards_are_refused_where_they_would_change_the_numbers(oam: Path) -> None:
    _write(oam, CPX)
    with pytest.raises(InvalidRequest, match="in mode CPX: ROCm selects such devices by number"):
        open_machine(Machine("n1"), {STANDIN_VARIABLE: str(oam)}, guards=lambda gpus: [FileGuard()])


def test_two_gpus_of_one_identity_are_refused(oam: Path) -> None:
    _write(oam, OAM.replace("gpus = 8", "gpus = 8\nparts = 2"))
    with pytest.raises(Unavailable, match="two GPUs of this machine are GPU-4a10c0de00000000"):
        open_machine(Machine("n1"), {STANDIN_VARIABLE: str(oam)})
