"""`podwright slurm efficiency` for many jobs: what sacct is asked, and the table without names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podwright.cli.podwright import main
from podwright.gpu.efficiency._sacct_jobs import _ACCOUNT_COLUMNS
from podwright.slurm.reader import CUT, accounting_format
from tests.gpu.efficiency.test_report import write


def row(number: int, user: str, partition: str, waited: int, ran: int, comment: str = "") -> str:
    said = {
        "JobID": str(number),
        "JobIDRaw": str(number),
        "User": user,
        "Partition": partition,
        "State": "COMPLETED",
        "Submit": "1700000000",
        "Start": str(1700000000 + waited),
        "End": str(1700000000 + waited + ran),
        "ElapsedRaw": str(ran),
        "TimelimitRaw": "120",
        "AllocTRES": "cpu=8,gres/gpu=2,mem=16G,node=1",
        "NNodes": "1",
        "TotalCPU": "01:00:00",
        "AdminComment": comment,
    }
    return CUT.join(
        said.get(field, "") for field in accounting_format(*_ACCOUNT_COLUMNS).split(",")
    )


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sacct that prints three jobs, and writes down what it was asked."""
    jobs = [
        row(1, "alice", "gpu", 60, 3600, "podwright: GPUs 25 % busy, 2 of 2 used"),
        row(2, "bob", "debug", 7200, 600),
        row(3, "bob", "debug", 7200, 600),
    ]
    (tmp_path / "rows").write_text("".join(f"{job}\n" for job in jobs))
    said = tmp_path / "asked"
    sacct = tmp_path / "sacct"
    sacct.write_text(f'#!/bin/sh\necho "$@" >{said}\ncat {tmp_path}/rows\n')
    sacct.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return said


def test_a_site_without_names(asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["slurm", "efficiency", "--since", "2026-11-01", "--until", "2026-12-01"]) == 0
    words = asked.read_text().split()
    assert {"--allusers", "--starttime=2026-11-01", "--endtime=2026-12-01"} <= set(words)
    out = capsys.readouterr().out
    assert "alice" not in out
    assert "bob" not in out
    lines = {line.split()[0]: line for line in out.splitlines() if "|" in line}
    assert "25 %" in lines["gpu"]
    assert lines["debug"].startswith("debug *")
    assert "* starves: half of its jobs waited for longer" in out


def test_names_are_said_when_they_are_asked_for(
    asked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["slurm", "efficiency", "--since", "now-7days", "--names", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["jobs"]) for one in rows] == [("alice", 1), ("bob", 2), ("all", 3)]
    assert main(["slurm", "efficiency", "--user", "alice"]) == 0
    assert "--user=alice" in asked.read_text()
    assert "--allusers" not in asked.read_text()


def test_a_site_without_accounting_reports_what_a_job_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """sacct fails, as without slurmdbd; the samples lie where the job wrote them."""
    sacct = tmp_path / "sacct"
    sacct.write_text("#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n")
    sacct.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    assert main(["slurm", "efficiency", "4711"]) != 0
    assert "--samples FOLDER" in capsys.readouterr().err
    write(tmp_path / "slurm-4711.gpus", "n1", [[90, 0]] * 10)
    assert main(["slurm", "efficiency", "4711"]) == 0
    out = capsys.readouterr().out
    assert "its state, cores and memory are not known: sacct does not answer" in out
    assert "1 of 2 GPUs was never used: --gpus-per-node=1" in out
    for unknown in ("Waited", "Cores", "unknown", "JobAcctGather"):
        assert unknown not in out
    assert main(["slurm", "efficiency", "4711", "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert tree["job"]["state"] == ""
    assert tree["cores"] is None


def test_one_job_or_many(asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["slurm", "efficiency"]) == 2
    assert main(["slurm", "efficiency", "7", "--user", "alice"]) == 2
    assert "one job, or many" in capsys.readouterr().err
    assert not asked.exists()
