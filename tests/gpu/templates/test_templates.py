"""Every template, for every site: a shell reads it, lint finds nothing, and it says what fits."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from podwright.cli.podwright import main
from podwright.cli.slurm._template import NAMES
from podwright.errors import InvalidRequest
from podwright.gpu.configure import make_inventory
from podwright.gpu.lint import CachedSite, lint, read_script
from podwright.gpu.requests import NodeHardware
from podwright.gpu.templates import (
    TEMPLATES,
    Fit,
    TemplateOptions,
    nodes_with,
    of_inventory,
    of_slurm,
    render,
)
from podwright.slurm.reader import SlurmConfig, read_nodes, read_switches
from tests.slurm.reader import texts

INVENTORY: dict[str, Any] = {
    "nodes": [
        {
            "names": "gpu[1-4]",
            "sockets": 2,
            "cores_per_socket": 28,
            "gpus": {"type": "h100", "count": 8, "memory": 80},
            "nics": [
                {"device": "mlx5_1", "interface": "ib1", "rail": 1},
                {"device": "mlx5_0", "interface": "ib0", "rail": 0},
            ],
        },
        {
            "names": "old[1-9]",
            "sockets": 1,
            "cores_per_socket": 8,
            "gpus": {"type": "t4", "count": 2, "memory": 16},
        },
    ],
    "switches": [{"name": "leaf", "nodes": "gpu[1-4]"}],
}
SITES = {
    "unknown": Fit(),
    "tree": Fit(gpus=8, cores=56, topology="tree", slurm_version=(22, 5), adapters=("mlx5_0",)),
    "block": Fit(gpus=4, cores=72, topology="block", slurm_version=(24, 11), interface="ib0"),
    "small": Fit(gpus=1, cores=4, slurm_version=(22, 5), sizes=(40 << 30, 80 << 30)),
}
WISHES = {
    "plain": TemplateOptions(),
    "all": TemplateOptions(
        nodes=4, partition="train", type="h100", memory=40 << 30, image="a#b/c:1"
    ),
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("wish", WISHES)
def test_lint_finds_nothing_and_a_shell_reads_it(name: str, site: str, wish: str) -> None:
    fit = SITES[site]
    text = render(name, fit, WISHES[wish])
    assert lint(read_script(text), CachedSite(fit.slurm_version, fit.topology)) == []
    assert not re.search(r"@[A-Z_]+@", text)
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\n\n\n" not in text
    assert all(len(line) <= 120 for line in text.splitlines())


def test_the_inventory_names_gpus_adapters_and_switches() -> None:
    inventory = make_inventory(INVENTORY)
    wishes = TemplateOptions(nodes=4, type="h100", memory=40 << 30)
    text = render("torchrun", of_inventory(inventory, wishes), wishes)
    for line in (
        "#SBATCH --nodes=4",
        "#SBATCH --gpus-per-node=h100:8",
        "#SBATCH --cpus-per-task=56",
        "#SBATCH --switches=1@01:00:00",
        '#SBATCH --constraint="gpumem80g"',
        "export NCCL_IB_HCA==mlx5_0,mlx5_1",
        "export NCCL_NET_GDR_LEVEL=SYS",
        "export GLOO_SOCKET_IFNAME=ib1",
    ):
        assert line in text.splitlines()
    assert '[ "$size" -ge 36864 ]' in text
    # A step that slurmctld has not seen the end of is never in the way of the next.
    assert "srun --overlap --nodes=4 " in text


def network(count: int, version: tuple[int, int] | None, **site: Any) -> list[str]:
    """The lines of a script that keep its nodes together."""
    wishes = TemplateOptions(nodes=count, partition=site.pop("partition", ""))
    text = render("torchrun", of_inventory(make_inventory(site), wishes, version), wishes)
    return re.findall(r"^#SBATCH (--(?:switches|segment).*)", text, re.M)


H100: dict[str, Any] = {**INVENTORY["nodes"][0], "nics": []}


def test_a_job_asks_for_as_few_switches_as_hold_it() -> None:
    """One switch for three nodes over leaves of two would never be there."""
    leaves = [{"name": f"leaf{n}", "nodes": f"gpu{n}[1-2]"} for n in range(3)]
    nodes = [{**H100, "names": [f"gpu{n}[1-2]" for n in range(3)]}]
    for count, switches in ((2, 1), (3, 2), (4, 2), (5, 3), (6, 3)):
        found = network(count, (24, 11), nodes=nodes, switches=leaves)
        assert found == [f"--switches={switches}@01:00:00"]
    # A leaf of other nodes is of no use.
    small = {**INVENTORY["nodes"][1], "names": "old[1-9]"}
    leaves[0]["nodes"] = "old[1-9]"
    nodes = [{**H100, "names": "gpu[11-12,21-22]"}, {**small, "names": "old[1-3]"}]
    leaves = [
        {"name": "a", "nodes": "old[1-3]"},
        {"name": "b", "nodes": "gpu[11-12]"},
        {"name": "c", "nodes": "gpu[21-22]"},
    ]
    assert network(3, (22, 5), nodes=nodes, switches=leaves) == ["--switches=2@01:00:00"]


def test_segments_are_what_a_rack_holds() -> None:
    racks = [{**H100, "names": f"r{n}-[1-18]", "domain": f"rack{n}"} for n in range(4)]
    for count, segment in ((16, 16), (18, 18), (36, 18), (24, 12), (64, 16)):
        assert network(count, (24, 11), nodes=racks) == [f"--segment={segment}"]
    assert network(37, (24, 11), nodes=racks) == []  # a prime number fits in no equal parts
    assert network(4, (22, 5), nodes=racks) == []
    # A part that one rack holds alone is too large, where the others hold none.
    uneven = [{**racks[0], "names": "r0-[1-5]"}, {**racks[1], "names": "r1-[1-3]"}]
    assert network(8, (25, 11), nodes=uneven) == []
    assert network(6, (25, 11), nodes=uneven) == ["--segment=3"]
    assert network(5, (25, 11), nodes=uneven) == ["--segment=5"]
    # Before 25.11 Slurm refuses one that is larger than the base block, here of three nodes.
    assert network(5, (24, 11), nodes=uneven) == []
    assert network(4, (25, 5), nodes=uneven) == ["--segment=2"]
    # Beside other nodes only a partition of the racks alone has blocks.
    mixed = {
        "nodes": [*racks, {**H100, "names": "gpu[1-80]"}],
        "switches": [{"name": "leaf", "nodes": "gpu[1-80]"}],
        "partitions": [
            {"name": "nvl", "nodes": [rack["names"] for rack in racks]},
            {"name": "all", "nodes": "gpu[1-80]"},
        ],
    }
    assert network(36, (25, 5), partition="nvl", **mixed) == ["--segment=18"]
    assert network(36, (25, 5), partition="all", **mixed) == ["--switches=1@01:00:00"]


def test_slurms_own_leaves_are_counted() -> None:
    said = (
        "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
        "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n3\n"
        "SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-3] Switches=leaf[1-2]\n"
    )
    tree = SlurmConfig("TopologyPlugin = topology/tree\n")
    plain = read_nodes("".join(texts.node(NodeName=f"n{n}") for n in range(1, 5)))
    fit = of_slurm(None, tree, plain, read_switches(said))
    assert fit.groups == (2, 1)
    assert "--switches=2@01:00:00" in render("torchrun", fit, TemplateOptions(nodes=3))
    # Nodes without GPUs, or of another kind, are of no use to the job.
    gres = ("gpu:h100:8(S:0-1)", "(null)", "gpu:8,shard:4")
    nodes = read_nodes(
        "".join(texts.node(NodeName=f"n{n + 1}", Gres=g) for n, g in enumerate(gres))
    )
    fit = of_slurm(NodeHardware(gpus=8), tree, nodes, read_switches(said))
    assert fit.groups == (1, 1)
    assert "--switches=2@01:00:00" in render("torchrun", fit, TemplateOptions(nodes=2))
    said = "BlockName=b1 BlockIndex=0 Nodes=n[1-4] BlockSize=4\n"
    block = SlurmConfig("TopologyPlugin = topology/block\n")
    fit = of_slurm(None, block, plain, read_switches(said))
    assert fit.groups == (4,)
    assert fit.base == 4


@pytest.mark.parametrize("name", [one for one in TEMPLATES if one != "pipeline"])
def test_every_script_looks_at_the_memory_that_was_asked_for(name: str) -> None:
    text = render(name, Fit(sizes=(80 << 30,)), TemplateOptions(memory=80 << 30))
    assert "nvidia-smi --query-gpu=memory.total" in text


def test_a_type_that_is_wished_for_says_which_nodes_fit() -> None:
    rows = [f"NodeName=a{n} Sockets=2 CoresPerSocket=8 Gres=gpu:a100:4(S:0-1)" for n in range(3)]
    rows.append("NodeName=h0 Sockets=2 CoresPerSocket=48 Gres=gpu:h100:8,shard:h100:16 Weight=1")
    nodes = read_nodes("\n".join(rows))
    assert nodes_with("h100", nodes) == nodes[3:]
    assert nodes_with("a100", nodes) == nodes[:3]
    with pytest.raises(InvalidRequest, match=r"--gpu-type=b200.*The nodes have: a100, h100"):
        nodes_with("b200", nodes)


def test_more_nodes_than_there_are_is_refused() -> None:
    inventory = make_inventory(INVENTORY)
    wishes = TemplateOptions(nodes=5, type="h100")
    with pytest.raises(InvalidRequest, match=r"--nodes=5: there are 4 such nodes"):
        render("torchrun", of_inventory(inventory, wishes), wishes)
    render("sweep", of_inventory(inventory, wishes), wishes)


def test_what_no_node_has_is_refused() -> None:
    inventory = make_inventory(INVENTORY)
    with pytest.raises(InvalidRequest, match=r"There are nodes with 8 h100 of 80 GiB; .*2 t4"):
        of_inventory(inventory, TemplateOptions(memory=141 << 30))
    with pytest.raises(InvalidRequest, match="--gpu-type=v100"):
        of_inventory(inventory, TemplateOptions(type="v100"))
    assert of_inventory(inventory, TemplateOptions()).gpus == 2  # the commonest
    with pytest.raises(InvalidRequest, match="the sizes that nodes name in a feature are: 40 GiB"):
        render("torchrun", Fit(sizes=(40 << 30,)), TemplateOptions(memory=80 << 30))
    assert "--constraint" not in render(
        "torchrun", Fit(), TemplateOptions(memory=80 << 30, type="h100")
    )


def test_slurm_itself_says_what_fits() -> None:
    config = SlurmConfig("TopologyPlugin = topology/tree\n")
    features = ("ib,gpumem40g", "gpumem80g")
    nodes = read_nodes("".join(texts.node(AvailableFeatures=words) for words in features))
    fit = of_slurm(NodeHardware(gpus=4, sockets=2, cores_per_socket=16), config, nodes)
    assert (fit.gpus, fit.cores, fit.topology, fit.sizes) == (4, 32, "tree", (40 << 30, 80 << 30))
    assert '"gpumem40g|gpumem80g"' in render("inference", fit, TemplateOptions(memory=30 << 30))
    assert of_slurm(None, SlurmConfig("TopologyPlugin = topology/flat\n"), []) == Fit()


def test_the_command_lists_and_prints_templates(capsys: pytest.CaptureFixture[str]) -> None:
    assert tuple(TEMPLATES) == NAMES
    assert main(["slurm", "template", "--list"]) == 0
    listed = capsys.readouterr().out
    assert [line.split(" | ")[0].strip() for line in listed.splitlines()[2:]] == list(NAMES)
    assert main(["slurm", "template", "ray", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["script"].startswith("#!/bin/bash\n")
    assert main(["slurm", "template"]) == 2
    assert "Choose one of torchrun" in capsys.readouterr().err
    assert main(["slurm", "template", "ray", "--partition", "a;b"]) == 2


def test_a_template_is_for_the_version_that_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """From a laptop with an inventory alone: racks keep their jobs by segments from 24.05 on."""
    racks = [{**H100, "names": f"{rack}[1-18]", "domain": rack} for rack in ("a", "b")]
    file = tmp_path / "site.json"
    file.write_text(json.dumps({"nodes": racks}))
    command = ["slurm", "template", "torchrun", "--inventory", str(file), "--nodes=36"]
    for version, segment in (("24.11", True), ("22.05", False)):
        assert main([*command, "--slurm-version", version]) == 0
        assert ("#SBATCH --segment=18\n" in capsys.readouterr().out) == segment
    assert main([*command, "--slurm-version", "old"]) == 2
