"""The defaults of jobs without own values: a share of memory and cores per GPU. Also parts of
GPUs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from podwright.cli.podwright import main
from podwright.errors import InvalidRequest
from podwright.gpu.command import _cluster_from_options
from podwright.gpu.configure import ConfigureOptions, check, configure, make_inventory, take_back
from podwright.slurm.site.file_changes import carry_out
from podwright.slurm.twin import InstalledSlurm
from tests.gpu.configure.test_inventory import NODE
from tests.slurm.reader import texts

BIG = {**NODE, "memory": 2_000_000}
SMALL = {
    "names": "old[1-2]",
    "sockets": 2,
    "cores_per_socket": 8,
    "threads_per_core": 2,
    "memory": 100_000,
    "gpus": {"type": "t4", "count": 4},
}


def written(tmp_path: Path, conf: str, *nodes: dict[str, Any], **more: Any) -> list[str]:
    """The lines of ours in slurm.conf, without the mark."""
    path = tmp_path / "slurm.conf"
    path.write_text(conf)
    inventory = make_inventory({"nodes": list(nodes), **more})
    plan, _ = configure(path, inventory, (24, 11), ConfigureOptions())
    text = plan.texts[path] or ""
    mark = " #podwright-gpus"
    return [line.removesuffix(mark) for line in text.splitlines() if line.endswith(mark)]


def defaults(lines: list[str]) -> dict[str, str]:
    found = dict(line.split("=", 1) for line in lines if " " not in line)
    return {key: value for key, value in found.items() if key.startswith(("Def", "SelectTypeP"))}


def test_each_gpu_has_its_share_of_the_poorest_node(tmp_path: Path) -> None:
    assert defaults(written(tmp_path, "", BIG, SMALL)) == {
        "SelectTypeParameters": "CR_Core_Memory",
        "DefCpuPerGPU": "7",
        "DefMemPerGPU": "25000",
        "DefMemPerCPU": "3125",
    }


def test_a_partition_of_richer_nodes_has_its_own_share(tmp_path: Path) -> None:
    partitions = [{"name": "big", "nodes": "gpu[01-04]"}, {"name": "small", "nodes": "old[1-2]"}]
    lines = written(tmp_path, "", BIG, SMALL, partitions=partitions)
    rows = [line for line in lines if line.startswith("PartitionName")]
    assert rows[0] == "PartitionName=big Nodes=gpu[01-04] DefMemPerGPU=250000 State=UP"
    assert rows[1] == "PartitionName=small Nodes=old[1-2] DefCpuPerGPU=8 State=UP"
    lines = written(
        tmp_path, "PartitionName=big Nodes=ALL DefMemPerCPU=9\n", BIG, SMALL, partitions=partitions
    )
    assert "PartitionName=big DefMemPerCPU=9 Nodes=gpu[01-04] State=UP" in lines


def test_cores_and_memory_of_the_system_are_not_shared_out(tmp_path: Path) -> None:
    node = {**BIG, "core_spec_count": 4, "mem_spec_limit": 80_000}
    lines = written(tmp_path, "", node)
    assert defaults(lines)["DefMemPerGPU"] == "240000"
    assert defaults(lines)["DefCpuPerGPU"] == "6"
    row = next(line for line in lines if line.startswith("NodeName"))
    assert " RealMemory=2000000 CoreSpecCount=4 MemSpecLimit=80000 " in row
    # What the site's own line says counts as well.
    lines = written(tmp_path, "NodeName=gpu[01-04] RealMemory=800000 MemSpecLimit=80000\n", NODE)
    assert defaults(lines)["DefMemPerGPU"] == "90000"
    with pytest.raises(InvalidRequest, match="core_spec_count: 56 of 56 cores"):
        written(tmp_path, "", {**BIG, "core_spec_count": 56})


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ("SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n", {"DefCpuPerGPU": "7"}),
        ("DefMemPerCPU=5\nDefCPUPerGPU=2\n", {"SelectTypeParameters": "CR_Core_Memory"}),
        (
            "JobDefaults=DefMemPerGPU=7,DefCpuPerGPU=1\n",
            {"SelectTypeParameters": "CR_Core_Memory"},
        ),
        (
            "SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU_Memory\n",
            {"DefCpuPerGPU": "7", "DefMemPerGPU": "250000", "DefMemPerCPU": "35714"},
        ),
    ],
)
def test_a_sites_own_defaults_stay(tmp_path: Path, conf: str, expected: dict[str, str]) -> None:
    assert defaults(written(tmp_path, conf, BIG)) == expected


def test_memory_that_nobody_knows_is_not_counted(tmp_path: Path) -> None:
    assert defaults(written(tmp_path, "", NODE)) == {
        "SelectTypeParameters": "CR_Core",
        "DefCpuPerGPU": "7",
    }
    path = tmp_path / "slurm.conf"
    for conf, words in (
        ("", r"nobody says how much memory gpu\[01-04\] has"),
        ("SelectType=select/cons_tres\n", "jobs without --mem take a whole node"),
        (
            "DefMemPerNode=1000\nNodeName=gpu[01-04] RealMemory=9000\n",
            "slurm.conf sets DefMemPerNode",
        ),
    ):
        path.write_text(conf)
        _, notes = configure(path, make_inventory({"nodes": [NODE]}), (24, 11), ConfigureOptions())
        assert any(re.search(words, note) for note in notes), notes


def test_shards_and_mps_are_configured_for_jobs_that_share_gpus(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text("GresTypes=nic\nNodeName=gpu[01-04] Gres=nic:2,shard:3\n")
    inventory = make_inventory({"nodes": [{**NODE, "shards": 4, "mps": 100}]})
    plan, notes = configure(path, inventory, (24, 11), ConfigureOptions())
    assert any("mps share one GPU of a node at a time, so gpu[01-04]" in note for note in notes)
    text = plan.texts[path] or ""
    assert "GresTypes=nic,gpu,mps,shard" in text
    assert "Gres=gpu:h100:8,shard:32,mps:800,nic:2 " in text
    gres = plan.texts[tmp_path / "gres.conf"] or ""
    assert "NodeName=gpu[01-04] Name=shard Count=32 " in gres
    assert "NodeName=gpu[01-04] Name=mps Count=800 " in gres


def test_health_and_imex_are_told_to_slurm(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text("NodeName=gpu[01-04] NodeAddr=10.0.0.[1-4]\n")
    inventory = make_inventory({"nodes": [{**NODE, "domain": "rack"}]})
    wishes = ConfigureOptions(imex=True, health="/usr/local/sbin/health")

    def text(version: tuple[int, int]) -> str:
        plan, _ = configure(path, inventory, version, wishes, lambda name: name)
        return plan.texts[path] or ""

    assert "HealthCheckProgram=/usr/local/sbin/health" in text((22, 5))
    assert "SwitchType" not in text((22, 5))
    assert "SwitchType=switch/nvidia_imex" in text((24, 11))


RACK = {**NODE, "names": "r1-[1-4]", "domain": "rack1"}
BOTH = """\
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - switch: leaf
        nodes: gpu[01-04]
- topology: racks
  cluster_default: false
  block:
    block_sizes:
      - 4
    blocks:
      - block: rack1
        nodes: r1-[1-4]
"""


def test_a_rack_beside_other_nodes_has_a_topology_of_its_own(tmp_path: Path) -> None:
    """Not the whole cluster on blocks: the other nodes would be in none."""
    path = tmp_path / "slurm.conf"
    path.write_text("")
    inventory = make_inventory(
        {
            "nodes": [NODE, RACK],
            "switches": [{"name": "leaf", "nodes": "gpu[01-04]"}],
            "partitions": [{"name": "nvl", "nodes": "r1-[1-4]"}, {"name": "all", "nodes": "gpu01"}],
        }
    )
    plan, notes = configure(path, inventory, (25, 5), ConfigureOptions())
    body = (plan.texts[tmp_path / "topology.yaml"] or "").splitlines()
    assert [line.removesuffix(" #podwright-gpus") for line in body if line[0] != "#"] == (
        BOTH.splitlines()
    )
    text = plan.texts[path] or ""
    assert "PartitionName=nvl Nodes=r1-[1-4] Topology=racks State=UP" in text
    assert "PartitionName=all Nodes=gpu01 State=UP" in text
    assert "TopologyPlugin" not in text
    carry_out(plan)
    carry_out(take_back(path))
    assert [p.name for p in tmp_path.iterdir()] == ["slurm.conf"]
    # One topology for all: the switches, and a note.
    plan, notes = configure(path, inventory, (24, 11), ConfigureOptions())
    assert "TopologyPlugin=topology/tree" in (plan.texts[path] or "")
    assert any("keeps no job inside an NVLink domain of r1-[1-4] here" in note for note in notes)
    plan, notes = configure(path, inventory._replace(partitions=()), (25, 5), ConfigureOptions())
    assert any("give r1-[1-4] a partition" in note for note in notes)


def test_a_topology_that_slurm_would_not_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text("")
    inventory = make_inventory(
        {"nodes": [NODE], "switches": [{"name": "leaf", "nodes": "gpu[01-04]"}]}
    )
    (tmp_path / "topology.yaml").write_text("- topology: mine\n  flat: true\n")
    with pytest.raises(InvalidRequest, match=r"Slurm would not read topology\.conf"):
        configure(path, inventory, (25, 5), ConfigureOptions())
    configure(path, inventory, (24, 11), ConfigureOptions())


def test_another_topology_takes_the_place_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text("")
    inventory = make_inventory(
        {"nodes": [NODE], "switches": [{"name": "leaf", "nodes": "gpu[01-04]"}]}
    )
    for wish in ("tree", "none"):
        plan, _ = configure(path, inventory, (24, 11), ConfigureOptions(topology=wish))
        carry_out(plan)
        assert (tmp_path / "topology.conf").exists() == (wish == "tree")


def test_slices_without_files_of_their_own_are_for_slurmd_to_find(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text("")
    slices = [{"type": "h100_1g.10gb", "file": ""}, {"type": "h100_1g.10gb", "file": ""}]
    inventory = make_inventory({"nodes": [{**NODE, "gpus": slices}]})
    with pytest.raises(InvalidRequest, match=r"files of the GPUs of gpu\[01-04\] are not known"):
        configure(path, inventory, (24, 11), ConfigureOptions())
    plan, _ = configure(path, inventory, (24, 11), ConfigureOptions(detect="nvml"))
    assert " Gres=gpu:1g.10gb:2 " in (plan.texts[path] or "")


def test_check_asks_for_both_topologies() -> None:
    """`scontrol show topology` shows the cluster's alone, unless another is named."""
    asked = []

    def ask(argv: Sequence[str]) -> tuple[int, str]:
        asked.append(list(argv))
        if argv[:3] == ["scontrol", "show", "config"]:
            return 0, texts.config()
        if argv[:3] == ["scontrol", "show", "topology"]:
            row = "SwitchName=leaf Level=0 Nodes=n1\n"
            return 0, row if len(argv) == 3 else "BlockName=other Nodes=n1\n"
        return 0, ""

    inventory = make_inventory(
        {"nodes": [NODE, RACK], "switches": [{"name": "leaf", "nodes": "gpu[01-04]"}]}
    )
    last = list(check(inventory, ask, lambda _: None))[-1]
    assert last.problem == "rack1 not in scontrol show topology"
    assert ["scontrol", "show", "topology", "racks"] in asked


@pytest.mark.parametrize(
    ("release", "whole", "shared"),
    [
        ("22.05.8", {"OverSubscribe": "EXCLUSIVE"}, False),
        ("26.05.5", {"Exclusive": "NODE"}, False),
        ("24.11.5", {"ExclusiveTopo": "YES"}, False),
        ("26.05.5", {"Exclusive": "USER"}, True),
        ("26.05.5", {"OverSubscribe": "FORCE:4"}, True),
    ],
)
def test_check_asks_in_a_partition_of_the_node(
    release: str, whole: dict[str, str], shared: bool
) -> None:
    """A rack's nodes are often in no default partition; whole nodes are not filled by jobs."""
    asked: list[list[str]] = []

    def ask(argv: Sequence[str]) -> tuple[int, str]:
        asked.append(list(argv))
        if argv[:4] == ["scontrol", "--oneliner", "show", "node"]:
            names = ["gpu01", "gpu02", "gpu03", "gpu04"]
            rows = [texts.node(NodeName=n, State="IDLE", Partitions="shut,nvl") for n in names]
            return 0, "".join(rows)
        if argv[3:4] == ["partition"]:
            states = {"shut": "DOWN", "nvl": "UP"}
            rows = [
                texts.partition(release, PartitionName=n, State=s, **whole)
                for n, s in states.items()
            ]
            return 0, "".join(rows)
        if argv[:3] == ["scontrol", "show", "config"]:
            return 0, texts.config(release)
        return 0, ""

    inventory = make_inventory({"nodes": [NODE]})
    found = [one.text for one in check(inventory, ask, lambda _: None)]
    assert any("run at once" in text for text in found) is shared
    ran = [argv for argv in asked if argv[0] in ("srun", "sbatch") and "--gres" not in argv[-1]]
    assert ran
    assert all("--partition=nvl" in argv for argv in ran)


def test_check_looks_at_each_file_of_a_slice() -> None:
    slices = [
        {"type": "a30_1g.6gb", "file": f"/dev/nvidia0,/dev/nvidia-caps/nvidia-cap{n}"}
        for n in (3, 4, 5)
    ]
    asked: list[str] = []

    def ask(argv: Sequence[str]) -> tuple[int, str]:
        asked.append(argv[-1])
        if argv[:3] == ["scontrol", "show", "config"]:
            return 0, texts.config(ConstrainDevices="yes")
        return 0, "Operation not permitted\n" * 2 if "(: <" in argv[-1] else "@0,1,2@"

    found = {
        one.text: one.problem
        for one in check(
            make_inventory({"nodes": [{**NODE, "names": "n1", "gpus": slices}]}),
            ask,
            lambda _: None,
        )
    }
    assert found["n1: a job finds 3 GPUs and their device files"] == ""
    assert found["n1: a job opens its own GPUs alone"] == ""
    looks = next(text for text in asked if "lacks" in text)
    assert " /dev/nvidia-caps/nvidia-cap5 /dev/nvidia0; do" in looks


@pytest.mark.parametrize("there", [True, False])
def test_a_controller_that_is_down_is_not_a_slurm_that_is_not_there(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    if there:
        scontrol = programs / "scontrol"
        scontrol.write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n")
        scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin" if there else str(programs))
    monkeypatch.setattr(_cluster_from_options, "find_slurm", lambda *, path: None)
    (tmp_path / "slurm.conf").write_text("ClusterName=one\n")
    (tmp_path / "gpus.json").write_text(json.dumps({"nodes": [SMALL]}))
    conf = f"--slurm-conf={tmp_path}/slurm.conf"
    code = main(["slurm", "configure", conf, "--gpus", str(tmp_path / "gpus.json")])
    said = capsys.readouterr().err
    assert code == 2
    assert ("slurmctld may be down" in said, "there is no scontrol" in said) == (there, not there)
    assert "--slurm-version=24.11" in said


def test_where_scontrol_does_not_answer_slurmctld_says_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    slurm = InstalledSlurm((24, 11), release="24.11.5")
    places: list[str] = []

    def found(*, path: str) -> InstalledSlurm:
        places.append(path)
        return slurm

    monkeypatch.setattr(_cluster_from_options, "find_slurm", found)
    assert _cluster_from_options.chosen_version(None, "/opt/slurm") == (24, 11)
    assert places == ["/opt/slurm"]
    assert _cluster_from_options.chosen_version("25.05") == (25, 5)
