"""The tasks of a job in a twin see what they saw on the recorded cluster: GPUs, nodes and CPUs."""

from __future__ import annotations

import shlex

import pytest

from podwright.errors import WrongState
from podwright.slurm.twin import Submission, Task, Twin
from tests.outer.lab import release
from tests.outer.twin.test_ask import RECORDED, installed
from tests.slurm.twin.recorded import SEEN, read_cluster

pytestmark = pytest.mark.twin

#: Recorded clusters: one whose tasks are free, one where they are bound to CPUs, and one of srun.
CLUSTERS = {"oldest": ("1", "6363", "208"), "newest": ("1", "6459")}
EACH = 4  # requests of a cluster


def line(tasks: tuple[Task, ...]) -> str:
    """The tasks in the words of the records."""
    return " ".join(
        f"{task.node}[{'unset' if task.variable is None else task.variable}]"
        + (f"@{','.join(map(str, task.cpus))}" if task.cpus else "")
        for task in tasks
    )


@pytest.mark.parametrize("name", RECORDED)
def test_tasks_see_what_they_saw_on_the_recorded_cluster(name: str) -> None:
    wrong, total, bound = {}, 0, 0
    for seed in CLUSTERS[name]:
        path = SEEN / RECORDED[name] / f"{seed}.txt"
        site, _ = read_cluster(path)
        rows = [row.split(" | ", 1) for row in path.read_text().splitlines()[1:]]
        rows = [row for row in rows if "[" in row[1]][:EACH]
        with Twin(site, installed(release(name))) as twin:
            for options, outcome in rows:
                lone = options.startswith("srun ")
                words = tuple(shlex.split(options.removeprefix("srun ")))
                tasks = twin.tasks(Submission("srun" if lone else "sbatch", words))
                expected = outcome.rpartition("; ")[2]
                total += 1
                bound += "@" in expected
                if line(tasks) != expected:
                    wrong[options] = (line(tasks), expected)
    assert wrong == {}
    assert total >= 2 * EACH
    assert bound


def test_a_job_that_does_not_start_has_no_tasks() -> None:
    site, _ = read_cluster(SEEN / "22.05.8" / "1.txt")
    with Twin(site, installed(release("oldest"))) as twin:
        assert twin.tasks(Submission("sbatch", ("--gpus=1", "--partition=nowhere"))) == ()


def test_a_step_that_cannot_start_is_named_with_sruns_line() -> None:
    path = SEEN / "22.05.8" / "115.txt"
    site, _ = read_cluster(path)
    failing = [
        row.split(" | ", 1)[0]
        for row in path.read_text().splitlines()[1:]
        if row.endswith(" | step")
    ]
    with Twin(site, installed(release("oldest"))) as twin:
        assert failing
        with pytest.raises(WrongState, match=r"the job starts, but .*: srun"):
            twin.tasks(Submission("sbatch", tuple(shlex.split(failing[0]))))
