"""Ten planted changes of a site's files: rehearse finds the jobs that each concerns, no other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from podwright.cli.podwright import main
from tests.outer.lab import release

pytestmark = pytest.mark.twin

SLURM_CONF = """\
ClusterName=site
SlurmctldHost=head
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
EnforcePartLimits=ANY
TopologyPlugin=topology/tree
NodeName=DEFAULT Sockets=2 CoresPerSocket=8 ThreadsPerCore=1
NodeName=h[1-4] RealMemory=256000 Gres=gpu:h100:4 Weight=20 Feature=nvlink
NodeName=a[1-2] RealMemory=128000 Gres=gpu:a100:2 Weight=50 Feature=pcie
NodeName=c[1-4] RealMemory=64000 Weight=10
PartitionName=gpu Nodes=h[1-4],a[1-2] Default=YES MaxTime=2-0 DefaultTime=60 DefMemPerGPU=8000
PartitionName=cpu Nodes=c[1-4] MaxTime=7-0 DefaultTime=60 DefMemPerCPU=1000
PartitionName=debug Nodes=c4 MaxTime=30 DefaultTime=10 DefMemPerCPU=1000
"""
GRES_CONF = """\
NodeName=h[1-4] Name=gpu Type=h100 File=/dev/nvidia[0-3]
NodeName=a[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-1]
"""
TOPOLOGY = "SwitchName=s1 Nodes=h[1-2],a1,c[1-2]\nSwitchName=s2 Nodes=h[3-4],a2,c[3-4]\n"
TOPOLOGY += "SwitchName=top Switches=s[1-2]\n"

JOBS = {
    "default-memory": "--gres=gpu:1",
    "own-memory": "--gres=gpu:h100:1 --mem=10000",
    "a100": "--gres=gpu:a100:1 --mem=5000",
    "pcie": "--gres=gpu:1 --constraint=pcie --mem=5000",
    "four": "--gres=gpu:h100:4 --mem=10000 --time=1-12",
    "pair": "--nodes=2 --exclude=h1 --gres=gpu:h100:1 --mem=1000",
    "large": "--partition=cpu --mem=60000",
    "small": "--partition=cpu --mem=1000 --ntasks=2",
    "wide": "--partition=cpu --nodes=3 --mem=1000",
    "long": "--partition=cpu --mem=1000 --time=5-0",
    "debug": "--partition=debug --mem=1000",
}
#: The file, its change (before and after), and what differs of which jobs, with words of Slurm's.
CHANGES = {
    "DefMemPerGPU": (
        "slurm.conf",
        ("DefMemPerGPU=8000", "DefMemPerGPU=16000"),
        {"default-memory": ("memory", "16000 MiB")},
    ),
    "MaxTime": (
        "slurm.conf",
        ("MaxTime=2-0", "MaxTime=1-0"),
        {"four": ("refused", "time limit")},
    ),
    "MaxNodes": (
        "slurm.conf",
        ("MaxTime=7-0", "MaxTime=7-0 MaxNodes=2"),
        {"wide": ("refused", "Node count")},
    ),
    "Weight": (
        "slurm.conf",
        ("Weight=50", "Weight=1"),
        {"default-memory": ("nodes", "a1")},
    ),
    "a renamed feature": (
        "slurm.conf",
        ("Feature=pcie", "Feature=pci5"),
        {"pcie": ("refused", "feature")},
    ),
    "RealMemory": (
        "slurm.conf",
        ("RealMemory=64000", "RealMemory=50000"),
        {"large": ("refused", "node configuration is not available")},
    ),
    "a partition that goes": (
        "slurm.conf",
        ("PartitionName=debug", "PartitionName=quick"),
        {"debug": ("refused", "Invalid partition name")},
    ),
    "fewer GPUs": (
        "both",
        ("gpu:h100:4", "gpu:h100:2", "nvidia[0-3]", "nvidia[0-1]"),
        {"four": ("refused", "node configuration is not available")},
    ),
    "a renamed GRES type": (
        "both",
        ("gpu:a100:2", "gpu:a100_80:2", "Type=a100", "Type=a100_80"),
        {"a100": ("refused", "node configuration is not available")},
    ),
    "topology": (
        "topology.conf",
        ("h[1-2],a1", "h[1,3],a1", "h[3-4],a2", "h[2,4],a2"),
        {"pair": ("nodes", "h2,h4")},
    ),
}


def site(folder: Path, changed: str = "", words: tuple[str, ...] = ()) -> Path:
    """The site's files in a folder, some with a change; slurm.conf's path."""
    folder.mkdir()
    texts = {"slurm.conf": SLURM_CONF, "gres.conf": GRES_CONF, "topology.conf": TOPOLOGY}
    for name, text in texts.items():
        if changed in (name, "both"):
            for old, new in zip(words[::2], words[1::2], strict=True):
                text = text.replace(old, new)
        (folder / name).write_text(text)
    return folder / "slurm.conf"


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    folder = tmp_path / "scripts"
    folder.mkdir()
    for name, options in JOBS.items():
        rows = "".join(f"#SBATCH {word}\n" for word in options.split())
        (folder / name).write_text(f"#!/bin/sh\n{rows}echo never run\n")
    return folder


@pytest.mark.parametrize("name", ["nothing", *CHANGES])
def test_a_planted_change_is_found_with_its_jobs_and_reason(
    name: str, tmp_path: Path, scripts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed, words, expected = CHANGES.get(name, ("", (), {}))
    today, new = site(tmp_path / "today"), site(tmp_path / "new", changed, words)
    for file in ("slurm.conf", "gres.conf") if changed == "both" else filter(None, (changed,)):
        assert (today.parent / file).read_text() != (new.parent / file).read_text()
    root = release("newest").root
    code = main(
        [
            *("slurm", "rehearse", "--today", str(today), "--slurm-conf", str(new), "--json"),
            *("--slurm-today", str(root) if root else "/usr", "--scripts", str(scripts)),
        ]
    )
    body = json.loads(capsys.readouterr().out)
    assert (body["jobs"], body["not_looked_at"]) == (len(JOBS), {})
    found = {job: row for row in body["differences"] for job in row["jobs"]}
    shown = {job: (row["kind"], row["reason"]) for job, row in found.items()}
    assert shown.keys() == expected.keys(), shown
    assert code == (1 if expected else 0)
    for job, (kind, reason) in expected.items():
        assert found[job]["kind"] == kind, shown
        assert reason in found[job]["reason"], shown


def unchanged(folder: Path, jobs: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """A change that concerns no job, with twins that have to answer: a partition nobody names."""
    today = site(folder / "today", "slurm.conf", ("MaxTime=7-0 DefaultTime=60 ", ""))
    new = site(folder / "new", "slurm.conf", ("MaxTime=7-0 DefaultTime=60 ", ""))
    new.write_text(f"{new.read_text()}PartitionName=unused Nodes=c1\n")
    root = release("newest").root
    code = main(
        [
            *("slurm", "rehearse", "--today", str(today), "--slurm-conf", str(new), "--json"),
            *("--slurm-today", str(root) if root else "/usr", "--scripts", str(jobs)),
        ]
    )
    body: dict[str, object] = json.loads(capsys.readouterr().out)
    assert (code, body["differences"], body["not_settled"]) == (0, [], []), body
    return body


def test_a_change_that_concerns_no_job_names_none(
    tmp_path: Path, scripts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert unchanged(tmp_path, scripts, capsys)["equal_twins"] is False


def test_a_comment_starts_no_twin(
    tmp_path: Path, scripts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    today, new = site(tmp_path / "today"), site(tmp_path / "new")
    new.write_text(f"# a comment\n{new.read_text()}")
    words = ("--today", str(today), "--slurm-conf", str(new), "--scripts", str(scripts))
    assert main(["slurm", "rehearse", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["equal_twins"] is True


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_ten_rehearsals_of_such_a_change_under_load_name_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    for number, (name, options) in enumerate(sorted(JOBS.items()) * 9):
        rows = "".join(f"#SBATCH {word}\n" for word in (*options.split(), f"--nice={number}"))
        (jobs / f"{name}-{number}").write_text(f"#!/bin/sh\n{rows}echo never run\n")
    burn = "import time\nend = time.time() + 3600\nwhile time.time() < end: pass"
    burners = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(6)]
    try:
        for run in range(10):
            (tmp_path / str(run)).mkdir()
            unchanged(tmp_path / str(run), jobs, capsys)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
