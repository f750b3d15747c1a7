"""The output of `configure --gpus`, and the restoration of every file byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from podwright.errors import InvalidRequest
from podwright.gpu.configure import (
    ConfigureOptions,
    SiteInventory,
    configure,
    make_inventory,
    take_back,
)
from podwright.gpu.configure._edit_conf_lines import folded_in_order
from podwright.hosts import expand, fold_names
from podwright.slurm.site.file_changes import carry_out
from tests.gpu.configure.test_inventory import NODE

LINES = st.lists(
    st.sampled_from(
        [
            "ClusterName=x\n",
            "# NodeName=gpu01 CPUs=1\n",
            "NodeName=DEFAULT State=UNKNOWN\n",
            "NodeName=gpu[00-02] NodeAddr=10.0.0.[7-9] Port=[70-72] CPUs=4 Gres=nic:2\n",
            'nodename=gpu04,login Procs=4 \\\n   Reason="a b"  # old\n',
            "NodeName=gpu03 Feature=fast  Boards=1\n",
            "PartitionName=main Nodes=ALL Default=YES\n",
            "GresTypes = nic\n",
            "SelectType=select/cons_tres\r\n",
            "\n",
        ]
    ),
    unique=True,
)
GRES = st.lists(
    st.sampled_from(
        [
            "AutoDetect=nvml\n",
            "Name=gpu File=/dev/nvidia[0-7]\n",
            "NodeName=gpu[00-03] Name=gpu File=/dev/nvidia0\n",
            "NodeName=login Name=gpu File=/dev/nvidia0\n",
            "Name=nic Count=2\n",
            "# nothing\n",
        ]
    ),
    unique=True,
)


def site(**more: Any) -> SiteInventory:
    return make_inventory({"nodes": [NODE], **more})


def write(conf: Path, inventory: SiteInventory, *, version: tuple[int, int] = (24, 11)) -> str:
    plan, _ = configure(conf, inventory, version, ConfigureOptions(confine=True))
    carry_out(plan)
    return conf.read_text()


@hypothesis_settings(max_examples=25, deadline=None)
@given(LINES, st.one_of(st.none(), GRES), st.booleans())
def test_undo_gives_every_byte_of_any_file_back(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], gres: list[str] | None, cut: bool
) -> None:
    etc = tmp_path_factory.mktemp("etc")
    conf = etc / "slurm.conf"

    def text(parts: list[str]) -> bytes:
        return ("".join(parts).rstrip("\n") if cut else "".join(parts)).encode()

    conf.write_bytes(text(lines))
    if gres is not None:
        (etc / "gres.conf").write_bytes(text(gres))
    before = {path.name: path.read_bytes() for path in etc.iterdir()}
    inventory = site(switches=[{"name": "leaf", "nodes": "gpu[01-04]"}])
    write(conf, inventory)
    once = {path.name: path.read_bytes() for path in etc.iterdir()}
    write(conf, inventory)
    assert {path.name: path.read_bytes() for path in etc.iterdir()} == once
    carry_out(take_back(conf))
    assert {path.name: path.read_bytes() for path in etc.iterdir()} == before


def test_a_line_is_cut_where_its_nodes_differ(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "NodeName=gpu[00-02],gpu05 NodeAddr=10.0.0.[3-6] Port=7001 Weight=5 CPUs=4 "
        "Gres=gpu:1,nic:2 Feature=fast\nPartitionName=all Nodes=ALL\n"
    )
    lines = [line for line in write(conf, site()).splitlines() if line.startswith("NodeName")]
    assert lines == [
        "NodeName=gpu[01-02] NodeAddr=10.0.0.[4-5] Port=7001 Weight=5 Sockets=2 CoresPerSocket=28 "
        "ThreadsPerCore=1 Gres=gpu:h100:8,nic:2 Feature=fast,h100,gpumem80g State=UNKNOWN "
        "#podwright-gpus",
        "NodeName=gpu[00,05] NodeAddr=10.0.0.[3,6] Port=7001 Weight=5 CPUs=4 Gres=gpu:1,nic:2 "
        "Feature=fast #podwright-gpus",
        "NodeName=gpu[03-04] Sockets=2 CoresPerSocket=28 ThreadsPerCore=1 Gres=gpu:h100:8 "
        "Feature=h100,gpumem80g State=UNKNOWN #podwright-gpus",
    ]


def test_addresses_keep_their_nodes(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("NodeName=gpu[01-04] NodeAddr=d,c,b,a Port=[9,8,7,6]\n")
    inventory = make_inventory({"nodes": [{**NODE, "names": "gpu[02-03]"}]})
    lines = [line for line in write(conf, inventory).splitlines() if line.startswith("NodeName")]
    assert lines[0].startswith("NodeName=gpu[02-03] NodeAddr=c,b Port=[8,7] ")
    assert lines[1].startswith("NodeName=gpu[01,04] NodeAddr=d,a Port=[9,6] ")


def test_partitions_are_those_of_the_inventory(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"

    def partitions(text: str, *tables: dict[str, Any]) -> list[str]:
        conf.write_text(text)
        after = write(conf, site(partitions=list(tables))).splitlines()
        return [line for line in after if line.startswith("PartitionName")]

    end = " #podwright-gpus"
    assert partitions("") == [f"PartitionName=gpu Nodes=gpu[01-04] Default=YES State=UP{end}"]
    assert partitions("PartitionName=a Nodes=x\n")[1] == (
        f"PartitionName=gpu Nodes=gpu[01-04] State=UP{end}"
    )
    assert partitions("PartitionName=a Nodes=gpu[01-09]\n") == ["PartitionName=a Nodes=gpu[01-09]"]
    train = {"name": "train", "nodes": "gpu[01-02]", "exclusive": True}
    assert partitions("PartitionName=train Nodes=ALL MaxTime=9 State=DRAIN\n", train) == [
        f"PartitionName=train MaxTime=9 Nodes=gpu[01-02] OverSubscribe=EXCLUSIVE State=DRAIN{end}"
    ]


def topology(
    tmp_path: Path, inventory: SiteInventory, *, version: tuple[int, int], wish: str
) -> str:
    conf = tmp_path / "slurm.conf"
    conf.write_text("")
    plan, _ = configure(conf, inventory, version, ConfigureOptions(topology=wish))
    text = plan.texts.get(tmp_path / "topology.conf") or ""
    return "\n".join(
        line.removesuffix(" #podwright-gpus")
        for line in text.splitlines()
        if not line.startswith("#")
    )


def test_switches_of_rails_are_one_to_slurm(tmp_path: Path) -> None:
    rails = [
        {"name": f"leaf{unit}r{rail}", "nodes": "gpu[01-02]" if unit == 0 else "gpu[03-04]"}
        for unit in (0, 1)
        for rail in range(8)
    ]
    spines = [{"name": f"spine{r}", "switches": [f"leaf0r{r}", f"leaf1r{r}"]} for r in range(8)]
    found = topology(tmp_path, site(switches=rails + spines), version=(22, 5), wish="auto")
    assert found.splitlines() == [
        "SwitchName=leaf0r0 Nodes=gpu[01-02]",
        "SwitchName=leaf1r0 Nodes=gpu[03-04]",
        "SwitchName=spine0 Switches=leaf0r0,leaf1r0",
    ]


@given(
    st.lists(st.from_regex(r"(gpu|r1-n)[0-9]{1,3}|login", fullmatch=True), min_size=1, unique=True)
)
def test_folded_names_are_the_names(names: list[str]) -> None:
    assert sorted(expand(fold_names(names))) == sorted(names)
    assert list(expand(folded_in_order(names))) == names


def test_a_tree_of_several_roots_gets_no_other_root(tmp_path: Path) -> None:
    two = [{"name": "a", "nodes": "gpu[01-02]"}, {"name": "b", "nodes": "gpu[03-04]"}]
    found = topology(tmp_path, site(switches=two), version=(22, 5), wish="tree")
    assert found.splitlines() == ["SwitchName=a Nodes=gpu[01-02]", "SwitchName=b Nodes=gpu[03-04]"]


def test_what_is_no_tree_is_refused(tmp_path: Path) -> None:
    crossed = [{"name": "a", "nodes": "gpu[01-02]"}, {"name": "b", "nodes": "gpu[02-03]"}]
    circle = [{"name": "a", "switches": "b"}, {"name": "b", "switches": "a"}]
    with pytest.raises(InvalidRequest, match="gpu02 hangs on the switches a and b"):
        topology(tmp_path, site(switches=crossed), version=(22, 5), wish="tree")
    with pytest.raises(InvalidRequest, match="circle"):
        topology(tmp_path, site(switches=circle), version=(22, 5), wish="tree")


def test_blocks_are_for_slurms_that_have_them(tmp_path: Path) -> None:
    racks = [{**NODE, "names": f"r{rack}-[1-18]", "domain": f"rack{rack}"} for rack in range(4)]
    inventory = make_inventory(
        {"nodes": racks, "switches": [{"name": "s", "nodes": [r["names"] for r in racks]}]}
    )
    found = topology(tmp_path, inventory, version=(24, 11), wish="auto")
    assert found.splitlines() == [
        *(f"BlockName=rack{rack} Nodes=r{rack}-[1-18]" for rack in range(4)),
        "BlockSizes=18,36,72",
    ]
    older = topology(tmp_path, inventory, version=(22, 5), wish="auto")
    assert older == "SwitchName=s Nodes=r0-[1-18],r1-[1-18],r2-[1-18],r3-[1-18]"
    with pytest.raises(InvalidRequest, match=r"Slurm 22\.05 has no block topology"):
        topology(tmp_path, inventory, version=(22, 5), wish="block")


def test_what_others_said_of_other_nodes_stays(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("")
    (tmp_path / "gres.conf").write_text(
        "AutoDetect=nvml\nName=nic Count=2\nNodeName=gpu[04-05] Name=gpu File=/dev/x0\n"
    )
    write(conf, site())
    lines = (tmp_path / "gres.conf").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "AutoDetect=nvml",
        "Name=nic Count=2",
        "NodeName=gpu05 Name=gpu File=/dev/x0 #podwright-gpus",
        "NodeName=gpu[01-04] AutoDetect=off #podwright-gpus",
        "NodeName=gpu[01-04] Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-27 #podwright-gpus",
        "NodeName=gpu[01-04] Name=gpu Type=h100 File=/dev/nvidia[4-7] Cores=28-55 #podwright-gpus",
    ]


def test_a_sites_line_about_shares_goes_where_the_inventory_has_them(tmp_path: Path) -> None:
    """slurmd ends where gres.conf has two lines about the mps of a node."""
    conf = tmp_path / "slurm.conf"
    conf.write_text("NodeName=gpu[01-04],v1 CPUs=4\nPartitionName=all Nodes=ALL\n")
    (tmp_path / "gres.conf").write_text(
        "NodeName=gpu[01-04],v1 Name=mps Count=400\nNodeName=gpu[01-04] Name=nic Count=1\n"
    )
    write(conf, make_inventory({"nodes": [{**NODE, "mps": 100}]}))
    lines = (tmp_path / "gres.conf").read_text().splitlines()
    mps = [line.split(" #")[0] for line in lines if "Name=mps" in line and line[0] != "#"]
    assert mps == ["NodeName=v1 Name=mps Count=400", "NodeName=gpu[01-04] Name=mps Count=800"]
    assert "NodeName=gpu[01-04] Name=nic Count=1" in lines
    carry_out(take_back(conf))
    write(conf, site())
    kept = (tmp_path / "gres.conf").read_text()
    assert "\nNodeName=gpu[01-04],v1 Name=mps Count=400\n" in kept


def test_a_way_to_detect_that_no_slurm_has_is_refused(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("PartitionName=all Nodes=ALL\n")
    (tmp_path / "gres.conf").write_text("NodeName=v[1-9] AutoDetect=nvlm\n")
    with pytest.raises(InvalidRequest, match="AutoDetect=nvlm is no way to detect GPUs"):
        write(conf, site())


@pytest.mark.parametrize(("version", "cores"), [((22, 5), ["0-13", "14-27"]), ((24, 11), ["0-27"])])
def test_a_gpu_near_one_numa_node_of_a_socket_has_the_cores_that_slurm_takes(
    version: tuple[int, int], cores: list[str], tmp_path: Path
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("PartitionName=all Nodes=ALL\n")
    node = {**NODE, "numa_nodes": 4}
    write(conf, make_inventory({"nodes": [node]}), version=version)
    lines = (tmp_path / "gres.conf").read_text().splitlines()
    found = [line.split("Cores=")[1].split()[0] for line in lines if "Cores=" in line]
    assert found[: len(found) // 2] == cores


def test_a_node_without_gpus_is_a_node(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n")
    cpus = {"names": "c[1-2]", "sockets": 2, "cores_per_socket": 32, "memory": 64000}
    text = write(conf, make_inventory({"nodes": [{**NODE, "memory": 512000}, cpus]}))
    (row,) = (line for line in text.splitlines() if line.startswith("NodeName=c"))
    assert "Gres=" not in row
    assert "RealMemory=64000" in row
    assert "PartitionName=cpu Nodes=c[1-2]" in text
    assert "PartitionName=gpu Nodes=gpu[01-04]" in text
    assert "DefMemPerCPU=1000" in text  # what a CPU of the poorest node has
    assert "c[1-2]" not in (tmp_path / "gres.conf").read_text()
    with pytest.raises(InvalidRequest, match="none has a GPU"):
        make_inventory({"nodes": [cpus]})


def test_an_included_node_is_refused(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("Include nodes.conf\n")
    (tmp_path / "nodes.conf").write_text("NodeName=gpu[03-09] CPUs=4\n")
    with pytest.raises(InvalidRequest, match=r"nodes\.conf"):
        write(conf, site())


def test_native_mode_and_gpus_stand_in_one_file(tmp_path: Path) -> None:
    from podwright.slurm.site.edit import changed, undone

    conf = tmp_path / "slurm.conf"
    conf.write_text("GresTypes=nic\nLicenses=a:1\n")
    before = conf.read_bytes()
    conf.write_text(changed(conf.read_text(), {"Licenses": "a:1,ipu:4"}, "slurm.conf"))
    native = conf.read_bytes()
    text = write(conf, site())
    assert "GresTypes=nic,gpu" in text
    assert "Licenses=a:1,ipu:4" in text
    carry_out(take_back(conf))
    assert conf.read_bytes() == native
    assert undone(conf.read_text()).encode() == before
    write(conf, site())
    conf.write_text(undone(conf.read_text()))
    carry_out(take_back(conf))
    assert conf.read_bytes() == before
    write(conf, site())
    conf.write_text(changed(conf.read_text(), {"GresTypes": "nic,gpu,vipu"}, "slurm.conf"))
    with pytest.raises(InvalidRequest, match="--undo first"):
        take_back(conf)


def test_notes_say_what_slurm_would_lose(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("SelectType=select/linear\n")
    other = {**NODE, "names": "old[1-2]", "gpus": {"type": "v100", "count": 2}, "numa_nodes": 4}
    inventory = make_inventory(
        {
            "nodes": [NODE, other],
            "switches": [{"name": "leaf", "nodes": "gpu[01-04]"}],
            "partitions": [{"name": "all", "nodes": "gpu[01-04],old1", "exclusive": True}],
        }
    )
    _, notes = configure(conf, inventory, (24, 11), ConfigureOptions())
    for word in ("old[1-2]: on no switch", "mixes", "select/linear", "NUMA", "--confine"):
        assert any(word in note for note in notes), (word, notes)
    _, notes = configure(
        conf, inventory._replace(switches=()), (24, 11), ConfigureOptions(confine=True)
    )
    assert any("no switches are known" in note for note in notes)


def test_slices_are_named_as_slurmd_finds_them(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("")
    gpus = [
        {"type": "h100_1g.10gb", "file": "/dev/nvidia0,/dev/nvidia-caps/nvidia-cap3"},
        {"type": "h100", "file": "/dev/nvidia1"},
    ]
    inventory = make_inventory({"nodes": [{**NODE, "gpus": gpus}]})

    def written(detect: str) -> tuple[str, str]:
        plan, _ = configure(conf, inventory, (24, 11), ConfigureOptions(detect=detect))
        return plan.texts[conf] or "", plan.texts[tmp_path / "gres.conf"] or ""

    nodes, gres = written("off")
    assert " Gres=gpu:h100_1g.10gb:1,gpu:h100:1 " in nodes
    assert " Type=h100_1g.10gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap3 " in gres
    nodes, gres = written("nvml")
    assert " Gres=gpu:1g.10gb:1,gpu:h100:1 " in nodes
    assert "MultipleFiles" not in gres


RACK = {**NODE, "names": "r1-[1-3]", "domain": "rack1"}
ADDRESSES = {"r1-1": "10.0.1.1", "r1-2": "fd00::2", "ten": "10.0.0.10", "alone": "127.0.1.1"}


def rack(conf: Path, *, imex: bool = True, nodes: tuple[dict[str, Any], ...] = (RACK,)) -> None:
    inventory = make_inventory({"nodes": list(nodes)})
    plan, _ = configure(
        conf, inventory, (24, 11), ConfigureOptions(imex=imex), lambda name: ADDRESSES.get(name, "")
    )
    carry_out(plan)


def test_imex_is_told_the_nodes_of_each_domain(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("NodeName=r1-[2-3] NodeAddr=r1-2,ten CPUs=4\n")
    before = conf.read_bytes()
    for _ in range(2):
        rack(conf, nodes=(RACK, {**NODE, "names": "apart", "domain": "alone"}))
        assert (tmp_path / "imex-rack1.cfg").read_text() == "10.0.1.1\nfd00::2\n10.0.0.10\n"
    assert not (tmp_path / "imex-alone.cfg").exists()
    rack(conf, imex=False)
    assert not (tmp_path / "imex-rack1.cfg").exists()
    rack(conf)
    carry_out(take_back(conf))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"slurm.conf": before}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "node r1-3 has no address.* NodeAddr"),
        ("NodeName=r1-[1-3] NodeAddr=alone\n", r"node r1-1 is 127\.0\.1\.1 to this machine alone"),
    ],
)
def test_imex_needs_addresses_that_all_reach(tmp_path: Path, line: str, problem: str) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(line)
    with pytest.raises(InvalidRequest, match=problem):
        rack(conf)
    assert [path.name for path in tmp_path.iterdir()] == ["slurm.conf"]


def test_a_sites_own_file_for_imex_stays(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("NodeName=r1-3 NodeAddr=ten\n")
    (tmp_path / "imex-rack1.cfg").write_text("mine\n")
    with pytest.raises(InvalidRequest, match=r"imex-rack1\.cfg is there, and not ours"):
        rack(conf)
    with pytest.raises(InvalidRequest, match="names no NVLink domain of several nodes"):
        rack(conf, nodes=(NODE,))
    carry_out(take_back(conf))
    assert (tmp_path / "imex-rack1.cfg").read_text() == "mine\n"
