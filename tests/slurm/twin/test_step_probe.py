"""What the probes of a step print, as tasks."""

from __future__ import annotations

from podwright.slurm.twin import Task
from podwright.slurm.twin._step_probe import is_step_waiting, read_tasks, topology


def test_tasks_are_read_in_the_order_of_their_ranks() -> None:
    text = "@1 1 n1 [1] <0x00FF,0xFF00>@\n@0 0 n1 [0] <0x00FF,0xFF00>@\n@2 0 n2 [unset] <>@\n"
    assert read_tasks(text) == (
        Task(0, "n1", "0", tuple(range(8))),
        Task(1, "n1", "1", tuple(range(8, 16))),
        Task(2, "n2", None),
    )


def test_masks_of_more_tasks_than_given_repeat() -> None:
    (task,) = read_tasks("@2 2 n1 [] <0x1,0x2>@")
    assert (task.cpus, task.variable) == ((0,), "")


def test_an_srun_that_waits_for_its_step_is_seen() -> None:
    assert is_step_waiting(
        "srun: Job 3 step creation temporarily disabled, retrying (Requested nodes)"
    )
    assert not is_step_waiting("srun: error: Unable to create step for job 3")


def test_a_node_is_described_to_hwloc() -> None:
    fields = {"Sockets": "2", "CoresPerSocket": "8", "ThreadsPerCore": "2"}
    assert topology(fields) == "pack:2 core:8 pu:2"
