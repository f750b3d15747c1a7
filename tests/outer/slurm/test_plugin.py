"""Jobs written for Graphcore's Slurm run unchanged, as its guide has them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.outer.lab import ALICE, Release
from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

SHOW = "echo $IPUOF_VIPU_API_PARTITION_ID gcd $IPUOF_VIPU_API_GCD_ID"
SITE = """
function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end
function slurm_cli_pre_submit(options, offset)
   if options["comment"] == "bad" then slurm.log_error("the site says no"); return slurm.ERROR end
   return slurm.SUCCESS
end
function slurm_cli_post_submit(offset, job, step) return slurm.SUCCESS end
return slurm.SUCCESS
"""


@pytest.fixture(scope="module")
def lab(release: Release) -> Iterator[NativeLab]:
    conf = {"CliFilterPlugins": "lua"}
    files = {"cli_filter.lua": SITE}
    mode = ["--mode", "plugin"]
    with NativeLab(
        nodes=2, cpus=16, configure=mode, conf=conf, files=files, release=release
    ) as made:
        yield made


def ran(lab: NativeLab, job: int) -> list[str]:
    assert lab.wait_over(job)[job].state == "COMPLETED", lab.output(job)
    return sorted(lab.output(job).splitlines())


def test_job_scripts_of_graphcores_guide_run_unchanged(lab: NativeLab) -> None:
    head = "#!/bin/sh\n#SBATCH  --job-name single-gcd-job\n#SBATCH --ipus 2\n"
    rest = f"#SBATCH --time=00:30:00\n\nsrun sh -c '{SHOW}'\n"
    single = lab.batch(f"{head}#SBATCH -n 1\n{rest}")
    assert ran(lab, single) == [f"slurm_{single} gcd 0"]
    multi = lab.batch(f"{head}#SBATCH -n 2\n{rest}")
    assert ran(lab, multi) == [f"slurm_{multi} gcd {k}" for k in (0, 1)]
    options = ["--ipus=2", "--ntasks=1", "--num-replicas=1", "--gres=vipu:pod64"]
    line = lab.batch(f"srun sh -c '{SHOW}'", *options)
    assert ran(lab, line) == [f"slurm_{line} gcd 0"]


def test_srun_takes_the_kind_of_pod_itself(lab: NativeLab) -> None:
    options = ["--ipus=2", "--ntasks=1", "--num-replicas=1", "--gres=vipu:pod64"]
    done = lab.run("srun", *options, "sh", "-c", SHOW, user=ALICE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("slurm_")
    done = lab.run("srun", "--ipus=2", "--gres=vipu:pod9", "true", user=ALICE)
    assert "there is no pod of type 'pod9'" in done.stderr


def test_two_steps_that_name_their_kind_of_pod_again_run_at_once(lab: NativeLab) -> None:
    step = f"srun -n1 --exact --gres=vipu:pod64 sh -c '{SHOW}' &\n"
    job = lab.batch(f"{step}{step}wait\n", "--ipus=4", "-n2", "--gres=vipu:pod64")
    assert ran(lab, job) == [f"slurm_{job} gcd 0"] * 2


def test_the_sites_own_filter_runs_after_ours(lab: NativeLab) -> None:
    done = lab.run("srun", "--ipus=2", "--gres=vipu:pod64", "--comment=bad", "true", user=ALICE)
    assert done.returncode != 0
    assert "the site says no" in done.stderr
    lab.configure("--undo")
    assert (lab.folder / "cli_filter.lua").read_text() == SITE
    assert not (lab.folder / "cli_filter.site.lua").exists()
    lab.configure("--write")
