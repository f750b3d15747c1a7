"""The answer to job_submit: mistakes, and silence where the job is not what its script says."""

from __future__ import annotations

import pytest

from podwright.gpu.lint import CachedSite
from podwright.gpu.submission import answer

FEW = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
srun torchrun --nnodes=4 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=$HEAD:29500 t.py
"""
ASKED = "min_nodes=2\nnum_tasks=2\ntres_per_node=gres/gpu:4\n"


def asked(head: str, script: str = FEW) -> str:
    return answer(f"{head}\n{script}", CachedSite())


def test_a_mistake_is_told_with_its_line_its_rule_and_the_way_out() -> None:
    level, *lines = asked(ASKED).splitlines()
    assert level == "mistake"
    assert lines[0].startswith("podwright lint: line 4: ")
    comment = lines[-1][lines[-1].index("# podwright: ignore") :]
    assert asked(ASKED, f"{FEW}  {comment}\n") == "clean\n"


def test_a_script_without_mistakes_is_clean() -> None:
    assert asked("min_nodes=1\nnum_tasks=1\n", "#!/bin/bash\nsrun hostname\n") == "clean\n"


@pytest.mark.parametrize("old", ["gres:gpu:4", "gres/gpu:4", "gpu:4", "gres/gpu=4"])
def test_gpus_are_read_as_every_release_hands_them_over(old: str) -> None:
    assert asked(f"min_nodes=2\ntres_per_node={old}\n").startswith("mistake\n")


@pytest.mark.parametrize(
    "head",
    [
        "min_nodes=4\ntres_per_node=gres/gpu:4\n",  # sbatch --nodes=4
        "min_nodes=2\ntres_per_node=gres/gpu:8\n",  # sbatch --gpus-per-node=8
        "min_nodes=2\nntasks_per_node=4\ntres_per_node=gres/gpu:4\n",
        "min_nodes=2\ntres_per_node=gres/gpu:4\ntres_per_job=gres/gpu:8\n",
        "min_nodes=2\ntres_per_node=gres/gpu:a:b:c\n",  # nothing that could be read
    ],
)
def test_counts_are_left_alone_where_the_job_has_others_than_its_script(head: str) -> None:
    assert asked(head) == "clean\n"


def test_many_mistakes_are_told_in_few_words() -> None:
    late = "".join(f"#SBATCH --mem={n}\n" for n in range(9))
    lines = asked("\n", f"#!/bin/bash\nhostname\n{late}").splitlines()
    assert len(lines) == 1 + 5 + 2
    assert "and 4 more" in lines[6]
    assert len(asked("\n", f"#!/bin/bash\nhostname\n{'#SBATCH --mem=1' + 'x' * 9999}\n")) < 4096
