"""A site out of files: what is read from them, what is not known, and the options of a script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podwright.cli.podwright import main
from podwright.errors import PodwrightError
from podwright.slurm.gpus import requests
from podwright.slurm.gpus.requests import SlurmRefusal, Texts, parse_request, read_site

CONFIG = """Configuration data as of 2026-01-01T00:00:00
SelectType              = select/cons_tres
SelectTypeParameters    = CR_CORE_MEMORY
SLURM_VERSION           = 26.05.5
TaskPlugin              = task/none
TopologyPlugin          = topology/flat
"""
NODES = """NodeName=n1 Arch=x86_64 CoresPerSocket=4
   CPUAlloc=0 CPUEfctv=16 CPUTot=16 CPULoad=0.00
   AvailableFeatures=fast
   Gres=gpu:a100:4(S:0-1)
   RealMemory=8000 Sockets=2 Boards=1
   State=IDLE ThreadsPerCore=2 TmpDisk=0 Weight=1

NodeName=n2 Arch=x86_64 CoresPerSocket=4
   CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.00
   AvailableFeatures=(null)
   Gres=gpu:h100:2
   RealMemory=8000 Sockets=2 Boards=1
   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=5
"""
PARTITIONS = """PartitionName=gpu
   AllowGroups=ALL AllowAccounts=ALL Default=YES
   MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO
   Nodes=n[1-2]
   PriorityTier=1 OverSubscribe=NO State=UP
   DefMemPerCPU=100 MaxMemPerNode=UNLIMITED
"""
GRES = """NodeName=n1 Name=gpu Type=a100 File=/dev/a0 Cores=4-7
NodeName=n1 Name=gpu Type=a100 File=/dev/a1 Cores=0-3
NodeName=n1 Name=gpu Type=a100 File=/dev/a2 \\
  Cores=0-3
NodeName=n1 Name=gpu Type=a100 File=/dev/a3 Cores=4-7
NodeName=n2 Name=gpu Type=h100 File=/dev/h[0-1]
"""


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """A folder as somebody sends it: no matter what the files are called."""
    folder = tmp_path / "sent"
    (folder / "etc").mkdir(parents=True)
    (folder / "a.txt").write_text(CONFIG)
    (folder / "b.txt").write_text(NODES)
    (folder / "c.txt").write_text(PARTITIONS)
    (folder / "etc" / "gres.conf").write_text(GRES)
    (folder / "core").write_bytes(b"\xff\x00\xfe")
    return folder


def explain(*words: str) -> int:
    return main(["slurm", "explain-request", *words])


def test_kinds_threads_sockets_and_defaults_are_read(sent: Path) -> None:
    site = requests.read_site(requests.bundle(sent))
    one, two = site.shape_of("n1"), site.shape_of("n2")
    assert (one.threads, one.gpus, one.beside) == (2, 4, (1, 0, 0, 1))
    assert (two.threads, two.gpus, two.weight) == (1, 2, 5)
    assert one.features == {"fast"}
    assert site.default == "gpu"
    assert site.partitions[0].memory == (100 << 20, True)
    assert site.assumed == frozenset()


def test_gpus_out_of_socket_order_are_told_by_number(
    sent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain("--site-files", str(sent), "--gres=gpu:2", "--constraint=fast", "--json") == 0
    body = json.loads(capsys.readouterr().out)
    assert body["nodes"][0]["name"] == "n1"
    assert body["nodes"][0]["gpus"] == [1, 2]
    assert body["nodes"][0]["memory_mib"] == 200
    assert body["on"] == {"nodes": 2, "gpus": 4, "found": True}


def test_without_gres_conf_only_the_count_is_known(
    sent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sent / "etc" / "gres.conf").unlink()
    assert explain("--site-files", str(sent), "--gres=gpu:2", "-w", "n1") == 0
    assert "which GPUs these are is not known" in capsys.readouterr().out


def test_what_is_not_modelled_gets_no_answer(
    sent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--gpus=2", "--constraint=fast*1&fast")
    assert explain("--site-files", str(sent), *words) == 3
    assert "Not known: " in capsys.readouterr().out
    assert explain("--site-files", str(sent), *words, "--json") == 3
    assert json.loads(capsys.readouterr().out)["granted"] is None
    (sent / "a.txt").write_text(CONFIG.replace("topology/flat", "topology/block"))
    assert explain("--site-files", str(sent), "--gpus=2") == 3
    assert "topology/block" in capsys.readouterr().out


def test_until_when_a_job_waits_is_told(sent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain("--site-files", str(sent), "--gpus=1", "--hold") == 1
    assert "waits until `scontrol release JOB`" in capsys.readouterr().out
    (sent / "b.txt").write_text(NODES.replace("State=IDLE", "State=IDLE+DRAIN"))
    assert explain("--site-files", str(sent), "--gpus=1", "-w", "n1", "--json") == 1
    assert json.loads(capsys.readouterr().out)["until"] == "until n1 takes jobs again"
    (sent / "c.txt").write_text(PARTITIONS.replace("State=UP", "State=DOWN"))
    assert explain("--site-files", str(sent), "--gpus=1") == 1
    assert "waits until partition gpu is up again" in capsys.readouterr().out
    (sent / "c.txt").write_text(PARTITIONS.replace("State=UP", "State=DRAIN"))
    assert explain("--site-files", str(sent), "--gpus=1") == 1
    assert "refuses this: gpu takes no jobs" in capsys.readouterr().out


def test_cores_that_no_job_gets_are_read_as_each_release_numbers_them(sent: Path) -> None:
    """Four cores of two threads, CPUs=4, one core reserved: threads 6 and 7, or core 3."""
    row = "NodeName=n1 Arch=x86_64 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 CPUTot=4"
    for listed in ("6-7", "3"):
        (sent / "b.txt").write_text(f"{row} CPUSpecList={listed}\n")
        assert requests.read_site(requests.bundle(sent)).shapes[0].reserved == {3}


def test_a_script_says_the_options_and_the_line_overrides(
    sent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gres=gpu:4\n#SBATCH -n 2\nsrun x\n#SBATCH -N 9\n")
    assert explain("--site-files", str(sent), "--script", str(script)) == 0
    assert "1 node, 4 GPUs in all, for 2 tasks" in capsys.readouterr().out
    assert explain("--site-files", str(sent), "--script", str(script), "--gres=gpu:1") == 0
    assert "1 node, 1 GPU in all, for 2 tasks" in capsys.readouterr().out


def test_a_folder_without_nodes_says_what_to_send(sent: Path) -> None:
    (sent / "b.txt").unlink()
    with pytest.raises(PodwrightError, match="no output of `scontrol show node`"):
        requests.bundle(sent)


def test_limits_of_accounts_are_named(sent: Path) -> None:
    (sent / "a.txt").write_text(CONFIG + "AccountingStorageEnforce = associations,limits\n")
    site = requests.read_site(requests.bundle(sent))
    answer = requests.explain(requests.parse_request(["--gpus=1"]), site, (26, 5))
    assert isinstance(answer, requests.Grant)
    assert any("accounts and QOS" in note for note in answer.notes)


TOPOLOGIES = """\
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - switch: s1
        nodes: n[1-2]   # a rack
      - switch: s2
        nodes: "n3,n4"
      - switch: top
        children: s1,s2
- topology: plain
  flat: true
- topology: racks
  cluster_default: false
  block:
    block_sizes:
      - 2
    blocks:
      - block: b1
        nodes: n1,n2
"""
SHOWN = """\
%YAML 1.1
---
- topology: fabric
  cluster_default: true
  block: {}
  flat: {}
  tree:
    switches:
    - switch: s1
      children:
      nodes: n1,n2
    - switch: s2
      children:
      nodes: n3,n4
    - switch: top
      children: s1,s2
      nodes:
- topology: plain
  cluster_default: false
  flat: true
  tree: {}
- topology: racks
  cluster_default: false
  block:
    block_sizes: []
  tree: {}
"""


@pytest.mark.parametrize("text", [TOPOLOGIES, SHOWN])
def test_each_partition_has_its_topology(text: str) -> None:
    node = "NodeName={} Arch=x CoresPerSocket=4 CPUTot=4 Sockets=1 ThreadsPerCore=1 RealMemory=1000"
    one = "PartitionName={} Default={} Nodes=n[1-4] MaxNodes=UNLIMITED State=UP {}"
    lines = [
        one.format("main", "YES", ""),
        one.format("any", "NO", "Topology=plain"),
        one.format("rack", "NO", "Topology=racks"),
    ]
    known = read_site(
        Texts(
            config="TopologyPlugin = topology/flat\nSLURM_VERSION = 26.05.5",
            nodes="\n".join(node.format(f"n{n}") for n in range(1, 5)),
            partitions="\n".join(lines),
            topology_yaml=text,
        )
    )

    def stage(options: str) -> str:
        answer = requests.explain(parse_request(options.split(), "sbatch"), known, (26, 5))
        return answer.stage if isinstance(answer, SlurmRefusal) else "starts"

    assert stage("--nodes=2 --switches=1") == "starts"
    assert stage("--nodes=3 --switches=1") == "waits"
    assert stage("--nodes=3 --switches=1 --partition=any") == "starts"
    assert stage("--nodes=2 --partition=rack") == "unknown"


def test_a_topology_file_of_another_form_is_not_known() -> None:
    known = read_site(
        Texts(
            config="SLURM_VERSION = 26.05.5",
            nodes="NodeName=n1 CoresPerSocket=4 CPUTot=4 Sockets=1 RealMemory=1000",
            topology_yaml="- topology: a\n  tree: {switches: [{switch: s, nodes: n1}]}\n",
        )
    )
    answer = requests.explain(parse_request(["--nodes=1"], "sbatch"), known, (26, 5))
    assert isinstance(answer, SlurmRefusal)
    assert answer.stage == "unknown"
