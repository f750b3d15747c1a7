"""Rehearsed on a cluster as it stands: which jobs would start later after a change."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from podwright.cli.podwright import main
from tests.outer.gpu.truth import gpu_lab
from tests.outer.lab import poll, release, written_at
from tests.outer.twin.test_present import submit

pytestmark = [pytest.mark.twin, pytest.mark.outer, pytest.mark.slurm]


@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_a_job_whose_partition_loses_the_nodes_that_are_free_first_waits_longer(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with gpu_lab(release(name)) as lab:
        state = lab.folder / "state"
        submit(lab, "--nodelist=n[1-2] --nodes=2 --exclusive --time=30")
        submit(lab, "--nodelist=n[3-4] --nodes=2 --exclusive --time=600")
        changed = time.time()
        poll("the state", lambda: written_at(state / "job_state") >= changed - 1)
        today = (lab.folder / "slurm.conf").read_text()
        new = tmp_path / "slurm.conf"
        new.write_text(
            today.replace("PartitionName=main Nodes=ALL", "PartitionName=main Nodes=n[3-4]")
        )
        assert new.read_text() != today
        scripts = tmp_path / "scripts"
        scripts.mkdir()
        (scripts / "one").write_text("#!/bin/sh\n#SBATCH --gpus=1 --time=20\n")
        root = release(name).root
        code = main(
            [
                *("slurm", "rehearse", "--today", f"{lab.folder}/slurm.conf"),
                *("--slurm-conf", str(new), "--scripts", str(scripts), "--state", str(state)),
                *("--slurm-today", str(root) if root else "/usr", "--json"),
            ]
        )
        body = json.loads(capsys.readouterr().out)
    assert body["nodes"] == "as the cluster stands"
    assert [(row["kind"], row["jobs"]) for row in body["differences"]] == [("later", ["one"])]
    assert code == 1
