"""Which options pass to Slurm from strangers, and which never."""

from __future__ import annotations

import msgspec
import pytest

from podwright.errors import InvalidRequest
from podwright.slurm.twin_service import TwinAnswer, TwinQuestion


@pytest.mark.parametrize(
    "option",
    [
        *("--gpus=4", "--gres=gpu:h100:2", "--nodelist=n[1-3]", "--exclusive", "--exclusive=user"),
        *("--tasks-per-node=4", "--ntasks-per-tres=2", "--tres-per-task=gres/gpu:1"),
        *("--begin=12/24/26", "--constraint=[a|b]*2&c", "--time=1-0:30", "--mem=0"),
    ],
)
def test_options_that_decide_where_a_job_goes_pass(option: str) -> None:
    assert TwinQuestion("sbatch", (option,)).submission().options == (option,)


@pytest.mark.parametrize(
    "option",
    [
        *("--wrap=id", "--output=/tmp/x", "--chdir=/", "--export=ALL", "--uid=0", "--clusters=a"),
        *("--nodelist=/etc/shadow", "--exclude=./hosts", "--nodefile=hosts", "--container=/c"),
        *("--prolog=/bin/sh", "--get-user-env", "--bcast=/x", "--dependency=afterok:1"),
        *("-N2", "script.sh", "--", "--gpus", "--gpus=4\n--wrap=id", "--gpus=\u0664", "-"),
        "--comment=" + "x" * 2000,
    ],
)
def test_no_other_option_passes(option: str) -> None:
    with pytest.raises(InvalidRequest):
        TwinQuestion("sbatch", (option,)).submission()


def test_the_number_of_options_is_bounded() -> None:
    with pytest.raises(InvalidRequest, match="64 options"):
        TwinQuestion("srun", ("--exact",) * 65).submission()


def test_an_answer_of_an_older_service_is_read() -> None:
    old = b"""{"release": "26.05.5", "refused": {"message": "x"},
        "tasks": [{"rank": 0, "node": "n1", "variable": "0", "cpus": [1]}]}"""
    answer = msgspec.json.decode(old, type=TwinAnswer)
    assert (answer.tasks[0].node, answer.tasks[0].gpus) == ("n1", ())
