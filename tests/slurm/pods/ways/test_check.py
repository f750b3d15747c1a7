"""`podwright slurm check` where promises are broken: it says so, and which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podwright.cli import podwright
from podwright.slurm.pods.service import Pod, Site, dump

POD = Pod(type="pod16", cluster="pod16", devices=16, largest=16, domain=16)
#: A Slurm on which nothing is set up: no job gets devices, and none is refused for that.
COMMANDS = {
    "scontrol": "echo 'Reservation podwright not found'; exit 1",
    "sbatch": 'case "$*" in *--test-only*) exit 0;; *) echo full >&2; exit 1;; esac',
    "srun": "echo",
    "scancel": "exit 0",
}


@pytest.mark.parametrize("mode", ["native", "shared"])
def test_a_slurm_without_us_keeps_none_of_our_promises(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, does in COMMANDS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    part = "all" if mode == "shared" else ""
    site = Site(mode=mode, pods=(POD,), server=str(tmp_path / "none"), unsaid=-1, shared=part)
    (tmp_path / "native.toml").write_text(dump(site))
    words = ["slurm", "check", "--site", str(tmp_path / "native.toml")]
    assert podwright.main([*words, "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [row["promise"] for row in rows if row["kept"]] == ["jobs without devices run as ever"]
    assert all(row["problem"] for row in rows if not row["kept"])
    assert podwright.main(words) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line[:3] for line in lines].count("NO ") == len(lines) - 1
    assert lines[0] == (
        "NO   the counts of devices are told to Slurm: Reservation podwright not found"
    )
