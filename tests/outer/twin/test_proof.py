"""`configure --gpus` proves its files with the slurmctld that would read them, before it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright.cli.podwright import main
from tests.outer.lab import release

pytestmark = pytest.mark.twin

INVENTORY = """\
[[nodes]]
names = "gpu[01-12]"
sockets = 2
cores_per_socket = 16
memory = 256000
gpus = { type = "h100", count = 4, memory = 80 }
"""


def configure(
    folder: Path, name: str, lines: str, *words: str, inventory: str = ""
) -> tuple[int, Path]:
    conf = folder / "slurm.conf"
    conf.write_text(f"ClusterName=site\nSlurmctldHost=head\n{lines}")
    (folder / "site.toml").write_text(INVENTORY + inventory)
    lab = release(name)
    version = "{}.{:02}".format(*lab.version)
    command = ["slurm", "configure", "--gpus", str(folder / "site.toml")]
    command += ["--slurm-conf", str(conf), "--slurm-version", version]
    command += ["--slurm", str(lab.root)] if lab.root else []
    return main([*command, *words]), conf


@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_good_files_are_proved_and_written(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, conf = configure(tmp_path, name, "", "--write")
    proofs = [row for row in capsys.readouterr().out.splitlines() if row[:3] in ("yes", "NO ")]
    assert code == 0
    assert not [row for row in proofs if row.startswith("NO")]
    assert any("one-GPU jobs fill gpu[01-12] in partition gpu" in row for row in proofs)
    assert any("template torchrun on 12 nodes starts" in row for row in proofs)
    assert "gpu:h100:4" in conf.read_text()


@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_files_that_leave_gpus_idle_are_not_written(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A job of one GPU gets eight of the sixteen CPUs that jobs of the partition may have on a node.
    lines = "PartitionName=gpu Nodes=ALL Default=YES MaxCPUsPerNode=16\n"
    code, conf = configure(tmp_path, name, lines, "--write")
    out = capsys.readouterr().out
    assert code == 1
    (row,) = (row for row in out.splitlines() if row.startswith("NO   one-GPU"))
    assert "2 of 4 GPUs of gpu01 are in use by 2 jobs" in row
    assert "16 of 32 CPUs" in row
    assert "Slurm: the next job waits (Resources)" in row
    assert "Nothing was changed" in out
    assert "gpu:h100" not in conf.read_text()
    assert configure(tmp_path, name, lines, "--write", "--unproven")[0] == 0
    assert "gpu:h100:4" in conf.read_text()


def test_files_that_slurmctld_refuses_are_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "PreemptType=preempt/partition_prio\nPreemptMode=OFF\n"
    code, _ = configure(tmp_path, "oldest", lines)
    assert code == 1
    (row,) = (r for r in capsys.readouterr().out.splitlines() if r.startswith("NO "))
    assert "slurmctld 22.05" in row
    assert "PreemptType and PreemptMode values incompatible" in row


#: Inputs on which the files were wrong, or on which the proof was: the inventory's end, lines of
#: gres.conf that the site has, and what must be said.
CASES = {
    "shares that the site has already": (
        "mps = 100\n",
        "NodeName=gpu01 Name=mps Count=400\n",
        "yes  slurmd of gpu01 reads gres.conf",
    ),
    "partitions without a default": (
        '[[partitions]]\nname = "a"\nnodes = "gpu[01-12]"\n',
        "",
        "yes  one-GPU jobs fill gpu[01-12] in partition a",
    ),
    "a node without GPUs": (
        '[[nodes]]\nname = "c1"\nsockets = 1\ncores_per_socket = 8\nmemory = 64000\n',
        "",
        "yes  one-GPU jobs fill gpu[01-12] in partition gpu",
    ),
    "several NUMA nodes on a socket": (
        "numa_nodes = 4\n",
        "",
        "yes  one-GPU jobs fill gpu[01-12] in partition gpu",
    ),
    "cores that no job gets": (
        "core_spec_count = 4\nthreads_per_core = 2\n",
        "",
        "yes  one-GPU jobs fill gpu[01-12] in partition gpu",
    ),
}


@pytest.mark.parametrize("name", ["oldest", "newest"])
@pytest.mark.parametrize("case", CASES)
def test_files_for_a_site_of_any_kind_are_proved(
    case: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory, gres, said = CASES[case]
    if gres:
        (tmp_path / "gres.conf").write_text(gres)
    code, _ = configure(tmp_path, name, "", "--write", inventory=inventory)
    out = capsys.readouterr()
    assert code == 0, out
    assert said in out.out
    assert "\nNO " not in out.out
    differs = case == "cores that no job gets" and name == "oldest"
    assert ("not known whether template torchrun" in out.err) == differs


def test_slurmd_refuses_a_file_with_a_key_that_it_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gres.conf").write_text("NodeName=other Name=nic Fle=/dev/nic0\n")
    assert configure(tmp_path, "newest", "")[0] == 1
    assert "NO   slurmd of gpu01 reads gres.conf" in capsys.readouterr().out
