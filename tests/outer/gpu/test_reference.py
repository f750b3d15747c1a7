"""The examples of `podwright slurm …` in the reference, typed on hosts of a real Slurm."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.outer.gpu.site import GPUS, script_site
from tests.pages import blocks

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

PAGE = Path(__file__).parents[3] / "docs" / "examples" / "slurm.md"
DRIVER = f'gpus = {GPUS}\nname = "NVIDIA H100 80GB HBM3"\nnuma_nodes = 1\ncpus = 2\n'


def test_each_example_on_a_real_slurm_prints_what_the_reference_shows() -> None:
    with script_site() as site:
        lab = site.lab
        env = {
            "PATH": f"{Path(sys.executable).parent}:{lab.environment()['PATH']}",
            "PODWRIGHT_STANDIN_NVML": str(lab.write("driver.toml", DRIVER)),
        }
        for block in blocks(PAGE):
            done = lab.run("bash", "-c", block.typed, env=env)
            assert block.fits(done.stdout), f"{block.typed}\n{done.stdout}{done.stderr}"
