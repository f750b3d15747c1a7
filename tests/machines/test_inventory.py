"""The inventory of a machine, which every reader gets as it was written."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pynvml
import pytest

from podwright.hosts.gpus import (
    PATHS,
    BadInventory,
    Gpu,
    Inventory,
    Library,
    RackPlace,
    open_libraries,
    read_inventories,
    take_inventory,
)
from podwright.hosts.gpus._nvml import slurm_gpu_type
from podwright.hosts.gpus._nvml_rack_place import read_place
from podwright.hosts.gpus._nvml_standin import STANDIN_VARIABLE


@pytest.fixture
def node(nvml: Library, sys_root: str) -> Inventory:
    """The node's inventory."""
    return take_inventory({}, sys_root, [nvml])


def test_a_node_of_eight(node: Inventory) -> None:
    assert [gpu.index for gpu in node.gpus] == list(range(8))
    assert {gpu.type for gpu in node.gpus} == {"h100"}
    assert [gpu.node for gpu in node.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert node.gpus[0].links == (-1, *[18] * 7)
    assert node.gpus[5].files == ("/dev/nvidia5",)
    assert node.gpus[5].paths == ("SYS",) * 4 + ("PXB", "X", "NODE", "NODE")
    assert node.drivers == {"nvidia": "570.124.06"}
    assert (node.sockets, node.cores_per_socket, node.threads_per_core) == (2, 8, 2)
    assert node.memory == 2113534208 >> 10 << 20
    assert node.simulated


def test_json_has_memory_in_mib_and_values_have_it_in_bytes(node: Inventory) -> None:
    told = json.loads(node.to_json())
    assert (told["memory"], told["gpus"][0]["memory"]) == (2113534208 >> 10, 81559)
    assert {gpu.memory for gpu in node.gpus} == {81559 << 20}


def test_cores_are_counted_as_slurm_counts(nvml: Library, sys_root: str) -> None:
    # The kernel says that threads 0-7 and 16-23 are near; these are cores 0 to 7 of socket 0.
    folder = os.path.join(sys_root, "sys/bus/pci/devices/0000:10:00.0/local_cpulist")
    Path(folder).write_text("0-7,16-23\n")
    found = take_inventory({}, sys_root, [_Mute(nvml)])
    assert (found.gpus[0].cpus, found.gpus[0].cores) == ("0-7,16-23", "0-7")


class _Mute:
    """A library that leaves places to the kernel."""

    vendor, simulated = "nvidia", True

    def __init__(self, library: Library) -> None:
        self._library = library
        self.version, self.health = library.version, library.health
        self.holders, self.sample, self.close = library.holders, library.sample, library.close
        self.forget, self.condition, self.fabric = library.forget, library.condition, library.fabric

    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(
            msgspec.structs.replace(gpu, node=-1, cpus="", paths=()) for gpu in self._library.gpus()
        )


def test_the_kernel_tells_ways_where_the_library_does_not(nvml: Library, sys_root: str) -> None:
    found = take_inventory({}, sys_root, [_Mute(nvml)])
    assert found.gpus[0].paths == ("X", "NODE", "NODE", "NODE", *["SYS"] * 4)
    assert [gpu.node for gpu in found.gpus] == [0] * 4 + [1] * 4


def test_each_gpu_has_its_rail(node: Inventory) -> None:
    assert node.rails == tuple(f"mlx5_{i}" for i in range(8))
    for nic in node.nics[:8]:
        assert nic.gpus == (nic.rail,)
        assert nic.paths[nic.rail] == "PIX"
        assert (nic.kind, nic.gbps, nic.up, nic.rdma) == ("infiniband", 400, True, True)
        assert nic.interface == f"ib{nic.rail}"
    (storage,) = node.nics[8:]
    assert (storage.name, storage.rail, storage.gpus) == ("mlx5_8", -1, ())
    assert set(storage.paths) == {"NODE", "SYS"}


def test_json_says_it_all(node: Inventory) -> None:
    assert "\n" not in node.to_json()
    assert read_inventories(node.to_json()) == [node]
    noise = f"srun: job 7 queued\n{node.to_json()}\n{node.to_json()}\nlast words"
    assert read_inventories(noise) == [node, node]
    assert read_inventories(f"[{node.to_json()}]") == [node]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is none in it"),
        ("{", "line 1"),
        ('\n\n{"host": 3}', r"line 3: Expected `str`.*host"),
        ("[4]", "line 1: Expected `object`"),
    ],
)
def test_a_bad_inventory_is_named(text: str, said: str) -> None:
    with pytest.raises(BadInventory, match=said):
        read_inventories(text, "n.json")


def test_links_that_are_down_are_no_links(described: Path) -> None:
    described.write_text(described.read_text() + "[[gpu]]\nindex = 2\nlinks_down = [0, 1, 2]\n")
    (library,), _ = open_libraries({STANDIN_VARIABLE: str(described)})
    links = [gpu.links for gpu in library.gpus()]
    assert links[2][0] == links[0][2] == 15
    assert links[0][1] == 18


def test_links_without_a_switch_lead_to_their_gpu(described: Path) -> None:
    described.write_text('gpus = 4\nname = "NVIDIA A100"\nnvlinks = 12\nbridged = true\n')
    (library,), _ = open_libraries({STANDIN_VARIABLE: str(described)})
    assert [gpu.links for gpu in library.gpus()] == [
        (-1, 4, 4, 4),
        (4, -1, 4, 4),
        (4, 4, -1, 4),
        (4, 4, 4, -1),
    ]


def test_a_rack_shares_its_fabric(described: Path) -> None:
    cluster = "6c0eb8e3-5b3f-4f6c-8f0e-0a4d2b1c9e77"
    described.write_text(f'gpus = 4\nnvlinks = 18\nfabric = "{cluster}:32766"\n')
    (library,), _ = open_libraries({STANDIN_VARIABLE: str(described)})
    assert {gpu.fabric for gpu in library.gpus()} == {f"{cluster}:32766"}


def test_a_gpu_of_a_rack_has_a_guid_and_a_place(described: Path) -> None:
    """A zero byte in a GUID is a part of it, and does not end it."""
    described.write_text(
        'gpus = 2\n[[gpu]]\nindex = 0\nguid = "0x034c4900ff7d1c00"\nchassis = "1820324160012"\n'
        "slot = 11\ntray = 3\n"
    )
    (library,), _ = open_libraries({STANDIN_VARIABLE: str(described)})
    place = RackPlace("0x034c4900ff7d1c00", "1820324160012", 11, 3)
    assert [gpu.place for gpu in library.gpus()] == [place, None]


def test_a_guid_is_read_as_nvidia_prints_it() -> None:
    """The bytes and the text are those of DCGM's own test (test_platform_info_fields)."""

    class FakeNvml:
        c_nvmlPlatformInfo_v2_t = pynvml.c_nvmlPlatformInfo_v2_t

        def nvmlDeviceGetPlatformInfo(self, handle: object, information: Any) -> int:
            field = pynvml.c_nvmlPlatformInfo_v2_t.ibGuid
            address = ctypes.addressof(information._obj) + field.offset
            ctypes.memmove(address, bytes.fromhex("3f26f0def26b9c79"), 8)
            return 0

    place = read_place(FakeNvml(), None, lambda call, *arguments: call(*arguments))
    assert place is not None
    assert place.guid == "0x799c6bf2def0263f"


def test_slices(described: Path) -> None:
    one = '[[gpu]]\nindex = 1\nmig = "on"\nslices = ["1g.10gb", "3g.40gb"]\n'
    described.write_text(described.read_text() + one)
    (library,), _ = open_libraries({STANDIN_VARIABLE: str(described)})
    whole, cut = library.gpus()[:2]
    assert (whole.mig, whole.slices) == ("", ())
    assert [(s.profile, s.memory) for s in cut.slices] == [
        ("1g.10gb", 10 << 30),
        ("3g.40gb", 40 << 30),
    ]
    assert len({cut.uuid, *(s.uuid for s in cut.slices)}) == 3


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA GeForce RTX 4090", "rtx_4090"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA H200", "h200"),
        ("Tesla T4", "t4"),
        ("AMD Instinct MI300X", "mi300x"),
        ("something else", "something_else"),
    ],
)
def test_what_slurm_should_call_it(name: str, word: str) -> None:
    assert slurm_gpu_type(name) == word
    assert word in name.lower().replace(" ", "_").replace("-", "_")


def test_a_library_that_cannot_read_is_noted(tmp_path: Path) -> None:
    found, notes = open_libraries({STANDIN_VARIABLE: str(tmp_path / "none.toml")})
    assert found == []
    assert notes == [f"nvidia: {tmp_path}/none.toml: No such file or directory"]


def test_the_command(described: Path) -> None:
    cut = '[[gpu]]\nindex = 1\nmig = "on"\nslices = ["1g.10gb", "1g.10gb", "1g.20gb+me"]\n'
    described.write_text(described.read_text() + cut)
    environ = {**os.environ, STANDIN_VARIABLE: str(described)}
    command = [sys.executable, "-m", "podwright.cli.podwright", "inventory"]
    done = subprocess.run([*command, "--json"], env=environ, capture_output=True, text=True)
    assert "SIMULATED" in done.stderr
    assert len(json.loads(done.stdout)["gpus"]) == 8
    shown = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
    assert shown.count("NVIDIA H100 80GB HBM3") == 8
    assert "NV18" in shown
    assert "| 2 of 1g.10gb, 1 of 1g.20gb+me | GPU-" in shown
    assert re.findall(r"^1 +\| (\S+) +\| (\d+) MiB +\| MIG-", shown, re.M) == [
        *[("1g.10gb", "10240")] * 2,
        ("1g.20gb+me", "20480"),
    ]


def test_this_machine() -> None:
    """Whatever the machine has, its inventory is consistent."""
    found = take_inventory(os.environ)
    count = len(found.gpus)
    assert len({gpu.uuid for gpu in found.gpus}) == count
    for gpu in found.gpus:
        assert len(gpu.links) == len(gpu.paths) == count
        assert gpu.links[gpu.index] == -1
        assert gpu.paths[gpu.index] == "X"
        assert all(found.gpus[i].links[gpu.index] == n for i, n in enumerate(gpu.links))
        assert gpu.memory > 0
        assert all(os.path.exists(file) for file in gpu.files)
    for nic in found.nics:
        assert set(nic.paths) <= set(PATHS)
        assert all(gpu < count for gpu in nic.gpus)
    assert read_inventories(found.to_json()) == [found]


def test_a_driver_is_sought_below_the_root_that_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's file is there, and its library does not load: a note says so."""
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "kfd").touch()
    assert any(note.startswith("amd: ") for note in take_inventory({}, str(tmp_path)).notes)
    assert not any(note.startswith("amd: ") for note in take_inventory({}, "/nowhere").notes)
