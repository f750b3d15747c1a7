"""A site from files: what is read from them, what is not known, and the options of a script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podwright.cli.podwright import main
from podwright.errors import PodwrightError
from podwright.gpu import requests
from tests.slurm.reader import texts

CONFIG = texts.config(SelectTypeParameters="CR_CORE_MEMORY", GresTypes="gpu")
NODES = """NodeName=n1 Arch=x86_64 CoresPerSocket=4
   CPUAlloc=0 CPUEfctv=16 CPUTot=16 CPULoad=0.00
   AvailableFeatures=fast
   Gres=gpu:a100:4(S:0-1)
   RealMemory=8000 AllocMem=0 Sockets=2 Boards=1
   State=IDLE ThreadsPerCore=2 TmpDisk=0 Weight=1

NodeName=n2 Arch=x86_64 CoresPerSocket=4
   CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.00
   AvailableFeatures=(null)
   Gres=gpu:h100:2
   RealMemory=8000 AllocMem=0 Sockets=2 Boards=1
   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=5
"""
PARTITIONS = """PartitionName=gpu
   AllowGroups=ALL AllowAccounts=ALL Default=YES QoS=N/A DefaultTime=NONE Exclusive=NO
   MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED
   MaxCPUsPerSocket=UNLIMITED Nodes=n[1-2] SelectTypeParameters=NONE JobDefaults=(null)
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


def test_nodes_and_partitions_are_read(sent: Path) -> None:
    site = requests.read_site(requests.bundle(sent))
    one, two = site.shape_of("n1"), site.shape_of("n2")
    assert (one.threads, one.gpus, one.types, one.memory >> 20) == (2, 4, (("a100", 4),), 8000)
    assert (two.threads, two.gpus, two.types) == (1, 2, (("h100", 2),))
    assert site.default == "gpu"
    assert site.partitions[0].nodes == {"n1", "n2"}
    assert (site.unplaced, site.not_known, site.down) == (frozenset(), (), frozenset())


def test_gpus_beside_several_sockets_need_a_gres_conf(sent: Path) -> None:
    (sent / "etc" / "gres.conf").unlink()
    assert requests.read_site(requests.bundle(sent)).unplaced == {"n1"}


def test_the_counts_of_a_site_are_told(sent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain("--site-files", str(sent), "--gres=gpu:2", "-w", "n1", "--json") == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["stage"], body["total_gpus"], body["counts"]["nodes"]) == ("counted", 2, 1)
    assert body["on"] == {"nodes": 2, "gpus": 4, "found": True}
    assert explain("--site-files", str(sent), "--gres=gpu:2") == 0
    assert "The site has 2 nodes." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--gpus-per-node=5", "no node of partition gpu has 5 GPUs and 1 CPU"),
        (
            "--gpus-per-node=2 -c 20 --mem=1G",
            "no node of partition gpu has 2 GPUs, 20 CPUs and 1 GiB of memory",
        ),
        ("--gpus=h100:3 --nodes=1", "the job needs 3 GPUs of type h100, and partition gpu has 2"),
        ("--gpus=7", "the job needs 7 GPUs, and partition gpu has 6"),
        ("--gpus-per-node=3 --nodes=2", "the job needs 2 nodes with 3 GPUs and 1 CPU each, and"),
        ("--gpus=v100:1", "no node has GPUs of type v100"),
        ("--gpus=1 --partition=x", "there is no partition x"),
        ("--gpus=1 --mem=1G --mem-per-cpu=1G", "--mem and --mem-per-cpu exclude each other"),
    ],
)
def test_what_no_node_holds_is_refused_with_all_that_was_asked(
    options: str, reason: str, sent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain("--site-files", str(sent), *options.split()) == 1
    assert f"Slurm refuses this: {reason}" in capsys.readouterr().out


@pytest.mark.parametrize("options", ["--time=0", "--time=61"])
def test_a_time_beyond_the_partitions_waits_or_is_refused(
    options: str, sent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sent / "c.txt").write_text(PARTITIONS.replace("MaxTime=UNLIMITED", "MaxTime=01:00:00"))
    assert explain("--site-files", str(sent), "--gpus=1", "--time=60") == 0
    capsys.readouterr()
    assert explain("--site-files", str(sent), "--gpus=1", options) == 1
    assert "partition gpu allows 60 minutes (PartitionTimeLimit)" in capsys.readouterr().out
    (sent / "a.txt").write_text(texts.config(GresTypes="gpu", EnforcePartLimits="ALL"))
    assert explain("--site-files", str(sent), "--gpus=1", options) == 1
    assert "Slurm refuses this" in capsys.readouterr().out


def test_until_when_a_job_waits_is_told(sent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain("--site-files", str(sent), "--gpus=1", "--hold") == 1
    assert "waits until `scontrol release JOB`" in capsys.readouterr().out
    (sent / "c.txt").write_text(PARTITIONS.replace("State=UP", "State=DOWN"))
    assert explain("--site-files", str(sent), "--gpus=1") == 1
    assert "waits until partition gpu is up" in capsys.readouterr().out
    (sent / "c.txt").write_text(PARTITIONS.replace("State=UP", "State=DRAIN"))
    assert explain("--site-files", str(sent), "--gpus=1") == 1
    assert "refuses this: gpu takes no jobs" in capsys.readouterr().out


def test_cores_that_no_job_gets_are_read_as_each_release_numbers_them(sent: Path) -> None:
    """Four cores of two threads, CPUs=4, one core reserved: threads 6 and 7, or core 3."""
    for listed in ("6-7", "3"):
        row = texts.node(Sockets="1", CoresPerSocket="4", ThreadsPerCore="2", CPUTot="4")
        (sent / "b.txt").write_text(row.rstrip() + f" CPUSpecList={listed}\n")
        assert requests.read_site(requests.bundle(sent)).shapes[0].reserved == 2


def test_a_script_says_the_options_and_the_line_overrides(
    sent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gres=gpu:4\n#SBATCH -n 2\nsrun x\n#SBATCH -N 9\n")
    assert explain("--site-files", str(sent), "--script", str(script)) == 0
    assert (
        "1 node or more with 4 GPUs each, 4 GPUs or more in all, for 2 tasks"
        in capsys.readouterr().out
    )
    assert explain("--site-files", str(sent), "--script", str(script), "--gres=gpu:1") == 0
    assert (
        "1 node or more with 1 GPU each, 1 GPU or more in all, for 2 tasks"
        in capsys.readouterr().out
    )


def test_a_folder_without_nodes_says_what_to_send(sent: Path) -> None:
    (sent / "b.txt").unlink()
    with pytest.raises(PodwrightError, match="no output of `scontrol show node`"):
        requests.bundle(sent)


def test_limits_of_accounts_are_named(sent: Path) -> None:
    (sent / "a.txt").write_text(texts.config(AccountingStorageEnforce="associations,limits"))
    site = requests.read_site(requests.bundle(sent))
    answer = requests.count_request(requests.parse_request(["--gpus=1"]), site, (26, 5)).answer
    assert isinstance(answer, requests.CountedJob)
    assert any("accounts and QOS" in note for note in answer.notes)
