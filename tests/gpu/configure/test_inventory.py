"""An inventory is read whole, or refused with the place of its first fault."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from podwright.errors import InvalidRequest
from podwright.gpu.configure import NodeNic, make_inventory, read_inventory
from podwright.hosts.gpus import Gpu, Nic, Slice
from podwright.hosts.gpus import Inventory as Machine

NODE: dict[str, Any] = {
    "names": "gpu[01-04]",
    "sockets": 2,
    "cores_per_socket": 28,
    "gpus": {"type": "h100", "count": 8, "memory": 80},
}

TOML = """
[[nodes]]
names = "gpu[01-02]"
sockets = 2
cores_per_socket = 28
threads_per_core = 2
memory = 2063000
features = ["rack1"]
gpus = { type = "h100", count = 8, memory = 80 }
nics = [{ device = "mlx5_0", interface = "ib0", numa = 1 }]

[[nodes]]
name = "small"
sockets = 1
cores_per_socket = 8
gpus = [{ type = "a100", file = "/dev/gpu1", cores = "0-3" }, { type = "t4", memory = 16 }]
"""


def test_counted_gpus_are_spread_over_the_numa_nodes(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(TOML)
    found = read_inventory(path)
    assert list(found.nodes) == ["gpu01", "gpu02", "small"]
    kind = found.nodes["gpu02"]
    assert [gpu.numa for gpu in kind.gpus] == [0] * 4 + [1] * 4
    assert kind.gpus[7].file == "/dev/nvidia7"
    assert kind.gpus[7].cores == tuple(range(28, 56))
    assert kind.words == ("rack1", "h100", "gpumem80g")
    assert kind.nics[0].numa == 1
    assert found.nodes["small"].gres == "gpu:a100:1,gpu:t4:1"
    assert found.nodes["small"].gpus[0].cores == (0, 1, 2, 3)
    assert len(found.kinds()) == 2


@pytest.mark.parametrize("type_", ["mi300x", "MI250", "amd_instinct_mi210"])
def test_amds_gpus_have_render_nodes(type_: str) -> None:
    found = make_inventory({"nodes": [{**NODE, "gpus": {"type": type_, "count": 2}}]})
    (kind,) = set(found.nodes.values())
    assert [gpu.file for gpu in kind.gpus] == ["/dev/dri/renderD128", "/dev/dri/renderD129"]


@pytest.mark.parametrize("type_", ["1g.10gb", "3g.20gb+me", "a100_1g.5gb"])
def test_a_mig_slice_is_a_type_of_gpu(type_: str) -> None:
    found = make_inventory({"nodes": [{**NODE, "gpus": {"type": type_, "count": 7}}]})
    assert found.nodes["gpu01"].gres == f"gpu:{type_}:7"


@pytest.mark.parametrize("type_", ["4", "2k", "1G", "a:b", "", "gpu 1", "h100\n"])
def test_what_slurm_would_read_as_a_count_is_no_type(type_: str) -> None:
    with pytest.raises(InvalidRequest, match="GPU type"):
        make_inventory({"nodes": [{**NODE, "gpus": {"type": type_, "count": 7}}]})


def test_an_inventory_in_json_is_the_same_as_in_toml(tmp_path: Path) -> None:
    path = tmp_path / "site.json"
    each = [{**NODE, "names": f"gpu{n:02}"} for n in range(1, 5)]
    path.write_text(json.dumps({"nodes": each}))
    assert read_inventory(path) == make_inventory({"nodes": [NODE]})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"names": "gpu[1-"}, "nodes[0].names"),
        ({"names": "gpu[1-2],gpu2"}, "named twice"),
        ({"socket": 2}, "socket: is not a known key (of gpu[01-04]). Did you mean sockets?"),
        ({"sockets": 0}, "nodes[0].sockets: is 0, and not a number of 1 or more"),
        ({"gpus": {"type": "h100", "count": 0}}, "gpus.count: is 0"),
        ({"gpus": {"type": "h:100", "count": 1}}, "'h:100'"),
        ({"gpus": {"type": "h100", "count": 2, "numa": [0]}}, "one for each of the 2 GPUs"),
        ({"gpus": {"type": "h100", "count": 1, "numa": [2]}}, "there are 2 NUMA nodes"),
        ({"gpus": [{"type": "a", "file": "x"}]}, "gpus[0].file: is 'x', and not a device file"),
        ({"gpus": [{"type": "a", "cores": "0-99"}]}, "cores are numbers from 0 to 55"),
        ({"gpus": [{"type": "a", "links": [1, 2]}]}, "a number for each of the 1 GPUs"),
        ({"numa_nodes": 5}, "are not 5 equal NUMA nodes"),
        ({"nics": [{"device": "a b"}]}, "nics[0].device: is 'a b', and not a network card"),
        ({"nics": 5}, "nodes[0].nics: is 5"),
        ({"features": "ib"}, "nodes[0].features: is 'ib'"),
        ({"features": 5}, "nodes[0].features: is 5"),
        (
            {"gpus": {"type": "h100", "count": 2, "links": [1, 2]}},
            "links[0]: is 1, and not a list",
        ),
        (
            {"gpus": {"type": "h100", "count": 2, "files": [1, 2]}},
            "files[0]: is 1, and not a device file",
        ),
    ],
)
def test_a_fault_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        make_inventory({"nodes": [{**NODE, **change}]}, "site.toml")
    assert words in refused.value.message
    assert "site.toml" in refused.value.message


@pytest.mark.parametrize("wrong_value", [5, -1, 1.5, True, "word", [], [5], {}, {"a": 1}, [[]]])
def test_a_value_of_any_type_is_accepted_or_refused(wrong_value: object) -> None:
    gpu_table = {"type": "h100", "count": 2}
    switch_table = {"name": "leaf", "nodes": "gpu01"}
    partition_table = {"name": "batch", "nodes": "gpu01"}
    node_keys = [
        *("name", "names", "sockets", "cores_per_socket", "threads_per_core", "numa_nodes"),
        *("memory", "features", "domain", "gpus", "nics", "core_spec_count", "mem_spec_limit"),
        *("shards", "mps"),
    ]
    inventory_trees: list[Any] = [
        wrong_value,
        *({"nodes": [NODE], key: wrong_value} for key in ("nodes", "switches", "partitions")),
        *({"nodes": [{**NODE, key: wrong_value}]} for key in node_keys),
        *(
            {"nodes": [{**NODE, "gpus": gpus}]}
            for key in ("type", "count", "files", "memory", "numa", "links")
            for gpus in [{**gpu_table, key: wrong_value}]
        ),
        *(
            {"nodes": [{**NODE, "gpus": [{"type": "h100", key: wrong_value}]}]}
            for key in ("type", "file", "memory", "numa", "cores", "links", "uuid", "bus")
        ),
        *(
            {"nodes": [{**NODE, "nics": [{"device": "mlx5_0", key: wrong_value}]}]}
            for key in ("device", "interface", "numa", "rail")
        ),
        *(
            {"nodes": [NODE], "switches": [{**switch_table, key: wrong_value}]}
            for key in ("name", "nodes", "switches")
        ),
        *(
            {"nodes": [NODE], "partitions": [{**partition_table, key: wrong_value}]}
            for key in ("name", "nodes", "default", "exclusive")
        ),
    ]
    for tree in inventory_trees:
        with contextlib.suppress(InvalidRequest):
            make_inventory(tree)


def test_switches_and_partitions_name_what_is_there() -> None:
    for more in (
        {"switches": [{"name": "leaf", "nodes": "gpu09"}]},
        {"switches": [{"name": "leaf"}]},
        {"switches": [{"name": "spine", "switches": "leaf"}]},
        {"partitions": [{"name": "train", "nodes": "gpu09"}]},
        {"partitions": [{"name": "train", "nodes": "gpu01", "exclusive": 1}]},
    ):
        with pytest.raises(InvalidRequest):
            make_inventory({"nodes": [NODE], **more})


def test_a_file_that_is_no_inventory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for text in ("nodes = [", '{"nodes": [', "", "[nodes]\na=1"):
        path.write_text(text)
        with pytest.raises(InvalidRequest, match="read the inventory"):
            read_inventory(path)
    with pytest.raises(InvalidRequest, match="No such file"):
        read_inventory(tmp_path / "none")


def machine(host: str, **more: Any) -> Machine:
    gpus = tuple(
        Gpu(
            index=n,
            vendor="nvidia",
            uuid=f"GPU-{host}-{n}",
            name="NVIDIA H100 80GB HBM3",
            type="h100",
            bus=f"0000:{n}b:00.0",
            memory=81559 << 20,
            node=n // 2,
            cores="0-3" if n < 2 else "4-7",
            files=(f"/dev/nvidia{n}", "/dev/nvidiactl"),
            links=tuple(-1 if n == m else 18 for m in range(4)),
            **more,
        )
        for n in range(4)
    )
    nics = (
        Nic("mlx5_0", "ib0", "infiniband", "", rdma=True, node=0, rail=0),
        Nic("eth0", "eth0", "ethernet", ""),
    )
    return Machine(host, 2, 4, 2, 500000, gpus=gpus, nics=nics)


def test_what_machines_say_of_themselves_is_an_inventory(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    lines = [machine(f"n{n}", fabric="a:1" if n < 3 else "b:1").to_json() for n in (1, 2, 3)]
    path.write_text("\n".join([lines[0], "srun: a line between them", *lines[1:]]))
    found = read_inventory(path)
    (kind,) = found.kinds()
    assert list(found.nodes) == ["n1", "n2", "n3"]
    assert kind.gres == "gpu:h100:4"
    assert kind.words == ("h100", "gpumem80g")
    assert [(gpu.file, gpu.cores[0], gpu.links) for gpu in kind.gpus][1:3] == [
        ("/dev/nvidia1", 0, ()),
        ("/dev/nvidia2", 4, ()),
    ]
    assert kind.nics == (NodeNic("mlx5_0", "ib0", 0, 0),)
    assert found.domains == {"nvlink1": ("n1", "n2")}
    more = tmp_path / "site.toml"
    more.write_text('survey = "nodes.json"\n[[switches]]\nname = "s"\nnodes = "n[1-3]"\n')
    whole = read_inventory(more)
    assert whole.nodes == found.nodes
    assert whole.switches[0].nodes == ("n1", "n2", "n3")
    more.write_text('survey = "gone.json"\n')
    with pytest.raises(InvalidRequest, match=r"gone\.json: No such file"):
        read_inventory(more)


def test_slices_are_gpus_of_their_own(tmp_path: Path) -> None:
    whole = machine("n1")
    cut = []
    for gpu in whole.gpus:
        files = [(gpu.files[0], f"/dev/nvidia-caps/nvidia-cap{gpu.index}{n}") for n in (3, 4)]
        slices = tuple(Slice(f"MIG-{f}", "3g.40gb", 40448 << 20, f) for f in files)
        cut.append(msgspec.structs.replace(gpu, slices=slices))
    path = tmp_path / "nodes.json"
    path.write_text(msgspec.structs.replace(whole, gpus=tuple(cut)).to_json())
    kind = read_inventory(path).nodes["n1"]
    assert kind.gres == "gpu:h100_3g.40gb:8"
    assert kind.gpus[0].file == "/dev/nvidia0,/dev/nvidia-caps/nvidia-cap03"
    assert kind.words == ("h100_3g.40gb", "gpumem40g")


def test_slices_that_only_the_driver_can_tell_apart_are_counted(tmp_path: Path) -> None:
    """Without the driver's capability files each slice has its GPU's file alone."""
    whole = machine("n1")
    cut = tuple(
        msgspec.structs.replace(
            gpu,
            slices=tuple(
                Slice(f"MIG-{gpu.index}{n}", "3g.40gb", 40448 << 20, gpu.files) for n in "ab"
            ),
        )
        for gpu in whole.gpus
    )
    path = tmp_path / "nodes.json"
    path.write_text(msgspec.structs.replace(whole, gpus=cut).to_json())
    kind = read_inventory(path).nodes["n1"]
    assert kind.gres == "gpu:h100_3g.40gb:8"
    assert {gpu.file for gpu in kind.gpus} == {""}
