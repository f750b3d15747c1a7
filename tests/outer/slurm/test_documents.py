"""The five examples of docs/slurm/users.md run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.outer.lab import ALICE
from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

PAGE = Path(__file__).parents[3] / "docs/slurm/users.md"
BLOCKS = re.findall(
    r"```bash\n(.*?)```", PAGE.read_text().partition("## What the job finds")[0], re.DOTALL
)


def test_the_users_page_has_five_examples() -> None:
    assert len(BLOCKS) == 5


@pytest.mark.parametrize("at", range(5))
def test_an_example_runs(at: int, lab: NativeLab) -> None:
    out = lab.folder / "out"
    # The program of the examples is the user's own; here it says which partition it found.
    lab.write("theirs/python3", '#!/bin/sh\necho "$IPUOF_VIPU_API_PARTITION_ID"\n')
    lab.write("out/job.sh", "#!/bin/sh\nsrun python3 train.py\n")
    env = {"PATH": f"{lab.folder}/theirs:{lab.environment()['PATH']}"}
    text = BLOCKS[at]
    known = set(lab.jobs())
    if text.startswith("#!"):
        lab.write("out/lines.sh", text)
        text = "sbatch lines.sh"
    done = lab.run("sh", "-ec", text, user=ALICE, env=env)
    assert done.returncode == 0, done.stderr
    lab.wait("its end", lambda jobs: all(job.over for job in jobs.values()))
    new = {name: job for name, job in lab.jobs().items() if name not in known}
    assert {job.state for job in new.values()} == {"COMPLETED"}
    said = done.stdout + "".join(path.read_text() for path in out.glob("slurm-*.out"))
    assert all(f"slurm_{job}" in said for job in new)
