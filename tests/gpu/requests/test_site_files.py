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
    assert (site.unplaced, site.not_known, site.down) == (frozenset(), (), frozenset())


def test_gpus_beside_several_sockets_need_a_gres_conf(sent: Path) -> None:
    (sent / "etc" / "gres.conf").unlink()
    assert requests.read_site(requests.bundle(sent)).unplaced == {"n1"}


def test_without_a_slurm_nodes_tasks_and_gpus_are_counted_and_no_more_is_known(
    sent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--site-files", str(sent), "--gres=gpu:2", "--mem=1T", "-w", "n1", "--json")
    assert explain(*words) == 3
    body = json.loads(capsys.readouterr().out)
    assert (body["stage"], body["total_gpus"], body["counts"]["nodes"]) == ("counted", 2, 1)
    assert body["on"] == {"nodes": 2, "gpus": 4, "found": True}
    assert body["judgement"]["says"] == "not known"
    assert body["judgement"]["left_out"] == ["--mem, --nodelist (counts do not look at it)"]
    assert explain("--site-files", str(sent), "--gres=gpu:2") == 3
    assert "The site has 2 nodes." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--gpus=3 --gpus-per-node=2", "--gpus=3 is not a multiple of the 2 GPUs per node"),
        ("--gpus-per-task=1", "--gpus-per-task needs to know how many tasks"),
        ("--gpus-per-node=1 --gres=gpu:a100:1", "--gpus-per-node and --gres=gpu exclude"),
        ("--gpus=1 --power=x", "sbatch of Slurm 26.05 has no --power"),
    ],
)
def test_counts_that_contradict_each_other_are_refused_by_the_manual_page(
    options: str, reason: str, sent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--site-files", str(sent), "--slurm-version=26.05", *options.split())
    assert explain(*words) == 1
    out = capsys.readouterr().out
    assert f"Slurm refuses this: {reason}" in out
    assert out.startswith("Counted by sbatch's manual page.")


def test_a_request_that_is_not_one_job_of_its_own_is_not_known(
    sent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--site-files", str(sent), "--for=srun", "--jobid=5", "-n1", "hostname")
    assert explain(*words) == 3
    assert "Not known: --jobid does not ask for a job of its own." in capsys.readouterr().out


def test_cores_that_no_job_gets_are_read_as_each_release_numbers_them(sent: Path) -> None:
    """Four cores of two threads, CPUs=4, one core reserved: threads 6 and 7, or core 3."""
    for listed in ("6-7", "3"):
        row = texts.node(Sockets="1", CoresPerSocket="4", ThreadsPerCore="2", CPUTot="4")
        (sent / "b.txt").write_text(row.rstrip() + f" CPUSpecList={listed}\n")
        assert requests.read_site(requests.bundle(sent)).shapes[0].reserved == 2


def test_a_script_says_the_options_and_those_before_it_override(
    sent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gres=gpu:4\n#SBATCH -n 2\nsrun x\n#SBATCH -N 9\n")
    assert explain("--site-files", str(sent), str(script)) == 3
    assert "1 node or more, 4 GPUs or more, for 2 tasks" in capsys.readouterr().out
    assert explain("--site-files", str(sent), "--gres=gpu:1", str(script), "--lr=1") == 3
    shown = capsys.readouterr()
    assert "1 node or more, 1 GPU or more, for 2 tasks" in shown.out
    assert f"sbatch gives the words after {script} to it: --lr=1" in shown.err
    assert explain("--site-files", str(sent), str(tmp_path / "none.sh")) == 2
    assert "none.sh: No such file" in capsys.readouterr().err


def test_an_error_in_a_folder_with_slurm_conf_says_what_can_read_it(sent: Path) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (sent / name).unlink()
    (sent / "etc" / "slurm.conf").write_text("ClusterName=c\n")
    with pytest.raises(PodwrightError, match="no slurmctld on this machine that could read"):
        requests.bundle(sent)


def test_a_folder_without_nodes_says_what_to_send(sent: Path) -> None:
    (sent / "b.txt").unlink()
    with pytest.raises(PodwrightError, match="no output of `scontrol show node`"):
        requests.bundle(sent)


def test_limits_of_accounts_are_named(sent: Path) -> None:
    (sent / "a.txt").write_text(texts.config(AccountingStorageEnforce="associations,limits"))
    site = requests.read_site(requests.bundle(sent))
    assert any("accounts and QOS" in caution for caution in site.cautions)
