"""Repair of what a killed slurmctld leaves behind, and of nothing else, by Slurm's own commands."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from podwright.errors import FieldNotKnown, Unavailable
from podwright.guests.slurm.setup import StepResult, ask_for_plan, carry_out, recovery_plan
from podwright.slurm.site.command_result import CommandResult
from podwright.testing import FakeSlurm
from tests.slurm.reader import texts

BY_SLURM = "Duplicate jobid [slurm@2026-11-24T10:00:00]"
HELD = {"JobState": "PENDING", "Priority": "0", "Reason": "launch_failed_requeued_held"}
IDLE = texts.node(State="IDLE")


def node(state: str = "IDLE+DRAIN", reason: str = BY_SLURM, **fields: str) -> str:
    return texts.node(State=state, Reason=reason, **fields)


def job(**fields: str) -> str:
    return texts.job("PENDING", **{**HELD, **fields})


def commands(nodes: str, jobs: str) -> list[str]:
    return [" ".join(step.command) for step in recovery_plan(nodes, jobs).steps]


@pytest.mark.parametrize("release", texts.RELEASES)
def test_nodes_are_resumed_before_held_jobs_are_released(release: str) -> None:
    drained = texts.node(release, NodeName="n1", State="IDLE+DRAIN", Reason=BY_SLURM)
    waits = texts.job("PENDING", release, **{**HELD, "JobId": "7"})
    assert commands(drained, waits) == [
        "scontrol update NodeName=n1 State=RESUME",
        "scontrol release 7",
    ]


@pytest.mark.parametrize("release", texts.RELEASES)
def test_a_cluster_that_nobody_killed_needs_nothing(release: str) -> None:
    plan = recovery_plan(texts.recorded(release, "nodes"), texts.recorded(release, "jobs"))
    assert plan == ((), ())


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("IDLE+DRAIN", "disk is broken [root@2026-11-24T10:00:00]"),
        ("IDLE+DRAIN", "Duplicate jobid and a broken disk [root@2026-11-24T10:00:00]"),
        ("IDLE+DRAIN", "Prolog error [slurm@2026-11-24T10:00:00]"),
        ("IDLE", BY_SLURM),
        ("DOWN", BY_SLURM),
    ],
)
def test_other_nodes_are_not_touched(state: str, reason: str) -> None:
    assert recovery_plan(node(state, reason), "") == ((), ())


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "MIXED+DRAIN", "ALLOCATED+DRAIN"])
def test_a_drained_node_is_resumed_whatever_runs_there(state: str) -> None:
    assert len(commands(node(state), "")) == 1


@pytest.mark.parametrize("state", ["DOWN+DRAIN", "IDLE+DRAIN+NOT_RESPONDING", "DOWN*+DRAIN"])
def test_a_node_with_another_fault_is_named_and_left_alone(state: str) -> None:
    plan = recovery_plan(node(state, NodeName="n3"), "")
    assert plan.steps == ()
    assert [one.target for one in plan.left_alone] == ["node n3"]


@pytest.mark.parametrize(
    "fields",
    [
        {"Reason": "JobHeldUser"},
        {"Reason": "JobHeldAdmin"},
        {"Reason": "job_requeued_in_held_state"},
        {"Priority": "5"},
        {"JobState": "RUNNING"},
    ],
)
def test_other_jobs_are_not_touched(fields: dict[str, str]) -> None:
    assert recovery_plan(IDLE, job(**fields)) == ((), ())


def test_a_task_of_an_array_is_released_alone() -> None:
    """The array's number alone would also release tasks that their user holds."""
    assert commands(IDLE, job(JobId="9", ArrayJobId="9", ArrayTaskId="3")) == [
        "scontrol release 9_3"
    ]
    plan = recovery_plan(IDLE, job(JobId="9", ArrayJobId="9", ArrayTaskId="3-5"))
    assert plan.steps == ()
    assert [one.target for one in plan.left_alone] == ["job 9"]


def test_a_heterogeneous_job_is_released_once() -> None:
    both = job(JobId="4", HetJobId="4") + job(JobId="5", HetJobId="4")
    assert commands(IDLE, both) == ["scontrol release 4"]


def test_no_user_has_a_job_released_by_its_name() -> None:
    """The name contains the field that decides, so Slurm's own field is not known."""
    forged = job(JobId="8", Reason="JobHeldAdmin", JobName="x Reason=launch_failed_requeued_held")
    plan = recovery_plan(IDLE, forged)
    assert plan.steps == ()
    assert [one.target for one in plan.left_alone] == ["job 8"]


def test_output_of_another_kind_is_no_empty_plan() -> None:
    with pytest.raises(FieldNotKnown):
        recovery_plan(texts.partition(), "")


class Cluster:
    """A fake Slurm with a drained node and a held job. refused: a command that fails."""

    def __init__(self, refused: str = "") -> None:
        self.commands: list[str] = []
        self._refused = refused

    def answer(self, argv: Sequence[str]) -> CommandResult | str:
        words = " ".join(argv)
        if self._refused and self._refused in words:
            return CommandResult(1, "", "Access/permission denied\n")
        if "show node" in words:
            return node(NodeName="n1")
        if "show job" in words:
            return job(JobId="7")
        self.commands.append(words)
        return ""


async def test_a_step_that_fails_does_not_stop_the_others() -> None:
    cluster = Cluster(refused="NodeName=n1")
    slurm = FakeSlurm(cluster.answer)
    results: list[StepResult] = []
    assert not await carry_out(await ask_for_plan(slurm), slurm, results.append)
    assert [(result.step.target, result.error) for result in results] == [
        ("node n1", "Access/permission denied"),
        ("job 7", ""),
    ]
    assert cluster.commands == ["scontrol release 7"]


@pytest.mark.parametrize("refused", ["show node", "show job"])
async def test_a_slurm_that_does_not_answer_is_not_a_healthy_one(refused: str) -> None:
    with pytest.raises(Unavailable, match="denied"):
        await ask_for_plan(FakeSlurm(Cluster(refused).answer))
