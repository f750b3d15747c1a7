"""The page for somebody with a GPU cluster, typed as it is printed, on hosts of a real Slurm.

The driver is a stand-in, so no host has the device files that it names: `check` says NO of those,
and of nothing else.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outer.gpu.site import GPUS, script_site
from tests.pages import blocks
from tests.release.test_gpu_half import gpu_half

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

PAGE = Path(__file__).parents[3] / "docs/slurm/gpu-quickstart.md"
DRIVER = f'gpus = {GPUS}\nname = "NVIDIA H100 80GB HBM3"\nnuma_nodes = 1\ncpus = 2\n'


@pytest.fixture(scope="module")
def wheel() -> Iterator[Path]:
    """The commands that the page installs, where all hosts see them."""
    with tempfile.TemporaryDirectory(prefix="podwright-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield gpu_half(Path(folder), "nvidia")


def test_every_line_of_the_page_runs_on_what_the_wheel_brings(wheel: Path) -> None:
    said = {}
    with script_site() as site:
        lab = site.lab
        env = {
            "PATH": f"{wheel}:{lab.environment()['PATH']}",
            "PODWRIGHT_STANDIN_NVML": str(lab.write("driver.toml", DRIVER)),
        }
        before = (lab.folder / "slurm.conf").read_bytes()
        for block in blocks(PAGE):
            done = lab.run("bash", "-ec", block.typed, env=env)
            assert block.fits(done.stdout), block.typed + done.stdout + done.stderr
            verb = re.findall(r"podwright (?:slurm )?([\w-]+)", block.typed)[-1]
            said[verb] = done.returncode, done.stdout
            assert done.returncode == (verb == "check"), done.stderr
        assert (lab.folder / "slurm.conf").read_bytes() == before
    assert "H100" in said["inventory"][1]
    lacking = [line for line in said["check"][1].splitlines() if line.startswith("NO")]
    assert lacking
    assert all("lacks /dev/nvidia0" in line for line in lacking), said["check"][1]
    assert "jobs of one GPU, without --mem, run at once" in said["check"][1]
    assert "Nothing was changed: --write does it." in said["configure"][1]
    assert f"2 nodes with {GPUS} GPUs each" in said["explain-request"][1]
    assert "no mistakes" in said["lint"][1].lower()
