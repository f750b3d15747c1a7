"""Which processes are left over from ended jobs: 10,000 random nodes, and each rule alone."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from podwright.gpu.clean._leftovers import (
    FREE_MEMORY_BOUND,
    Belongs,
    GpuState,
    ListedJob,
    NodeProcess,
    held_memory,
    judge_process,
    victims,
)
from tests.gpu.clean.mixtures import Case, Mixture, mixture

ANN = 1001
ORPHAN = NodeProcess(77, 5, ANN, "ann", "python", (3,), environ_job=12, environ_uid=ANN)
ANNS_OTHER_JOB = {13: ListedJob(13, ANN, lives=True, here=True)}


def belongs(listed: dict[int, ListedJob] | None = None, **changes: Any) -> Belongs:
    process = msgspec.structs.replace(ORPHAN, **changes)
    return judge_process(process, {} if listed is None else listed).belongs


def test_a_process_of_an_ended_job_is_known_by_its_environment_or_cgroup() -> None:
    assert belongs() is Belongs.ENDED_JOB
    assert belongs(environ_job=None, group_jobs=(12,)) is Belongs.ENDED_JOB


def test_a_process_of_a_living_job_is_never_left_over() -> None:
    living = {12: ListedJob(12, ANN, lives=True, here=False)}
    assert belongs(living) is Belongs.LIVING_JOB
    assert belongs(living, group_jobs=(11,)) is Belongs.LIVING_JOB
    assert belongs(living, environ_job=11, group_jobs=(12,)) is Belongs.LIVING_JOB


def test_the_job_of_an_epilog_is_over_though_slurm_still_lists_it() -> None:
    completing = {12: ListedJob(12, ANN, lives=True, here=True)}
    assert judge_process(ORPHAN, completing, 12).belongs is Belongs.ENDED_JOB
    assert judge_process(ORPHAN, completing, 11).belongs is Belongs.LIVING_JOB


def test_an_environment_is_no_proof_while_its_user_has_a_job_on_the_node() -> None:
    assert belongs(ANNS_OTHER_JOB) is Belongs.MAYBE_ENDED_JOB
    assert belongs(ANNS_OTHER_JOB, group_jobs=(12,)) is Belongs.ENDED_JOB
    elsewhere = {13: ListedJob(13, ANN, lives=True, here=False)}
    assert belongs(elsewhere) is Belongs.ENDED_JOB
    user = {13: ListedJob(13, None, lives=True, here=True)}
    assert belongs(user) is Belongs.MAYBE_ENDED_JOB


@pytest.mark.parametrize(
    "changes",
    [
        {"uid": 0, "environ_uid": 0},
        {"environ_uid": 1002},
        {"other_place": "node n2"},
        {"group_jobs": (11,)},
        {"uid": 0, "group_jobs": (12,)},
    ],
)
def test_an_identity_that_contradicts_itself_is_no_proof(changes: dict[str, Any]) -> None:
    assert belongs(**changes) is Belongs.MAYBE_ENDED_JOB


def test_a_job_of_another_user_is_no_proof() -> None:
    assert belongs({12: ListedJob(12, 1002, lives=False, here=True)}) is Belongs.MAYBE_ENDED_JOB


def test_what_cannot_be_read_is_not_known() -> None:
    assert belongs(readable=False) is Belongs.NOT_KNOWN
    assert judge_process(ORPHAN, None).belongs is Belongs.NOT_KNOWN
    assert belongs(environ_job=None) is Belongs.NO_JOB


def test_a_jobs_other_processes_are_ended_with_the_one_that_holds_a_gpu() -> None:
    """Else a parent without a GPU would start the next one."""
    parent = msgspec.structs.replace(ORPHAN, pid=76, gpus=())
    stranger = msgspec.structs.replace(ORPHAN, pid=75, gpus=(), environ_job=11)
    verdicts = [judge_process(process, {}) for process in (parent, ORPHAN, stranger)]
    assert [process.pid for process in victims(verdicts)] == [76, 77]


def test_memory_in_use_counts_where_nobody_uses_the_gpu_by_right() -> None:
    gpus = [GpuState(k, memory=FREE_MEMORY_BOUND + 1) for k in (2, 3, 4)]
    gpus += [
        GpuState(5, memory=FREE_MEMORY_BOUND),
        GpuState(6),
        GpuState(7, memory=1 << 40, divided=True),
    ]
    living = {12: ListedJob(12, ANN, lives=True, here=True)}
    mps = NodeProcess(9, 9, 0, "root", "nvidia-cuda-mps", (4,))
    verdicts = [judge_process(process, living) for process in (ORPHAN, mps)]
    assert [gpu.index for gpu in held_memory(gpus, verdicts)] == [2]


def check(node: Mixture) -> tuple[int, int, int, int]:
    """Return the counts of wrong ends, of provable leftovers, of those missed, and of GPUs that an
    ended job holds and nothing reports.
    """
    verdicts = [judge_process(case.shown, node.listed, node.hook_job) for case in node.cases]
    chosen = {process.pid for process in victims(verdicts)}
    living_users = {node.users[job] for job in node.living}
    wrong = provable = missed = silent = 0
    holding = set()
    for case in node.cases:
        if _provable(node, case, living_users) and case.shown.gpus:
            holding.add(case.job)
    for case, verdict in zip(node.cases, verdicts, strict=True):
        ended = case.job is not None and case.job not in node.living
        doubtful = case.shown.uid in living_users and not case.cgroup
        if case.shown.pid in chosen and (not ended or doubtful or case.shown.uid == 0):
            wrong += 1
        if _provable(node, case, living_users) and case.job in holding:
            provable += 1
            missed += case.shown.pid not in chosen
        named = case.cgroup or case.shown.environ_job is not None
        quiet = verdict.belongs in (Belongs.NO_JOB, Belongs.LIVING_JOB)
        silent += bool(ended and named and case.own_environment and case.shown.gpus and quiet)
    return wrong, provable, missed, silent


def _provable(node: Mixture, case: Case, living_users: set[int]) -> bool:
    job, shown, cgroup, environment = case
    if job is None or job in node.living or not shown.readable or shown.uid == 0:
        return False
    if cgroup:
        return environment or shown.environ_job is None
    return environment and shown.uid not in living_users


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.soak)])
def test_no_random_node_has_a_wrong_end_or_a_missed_leftover(count: int) -> None:
    chance = random.Random(44)
    counts = [check(mixture(chance)) for _ in range(count)]
    wrong, provable, missed, silent = (sum(column) for column in zip(*counts, strict=True))
    assert (wrong, missed, silent) == (0, 0, 0)
    assert provable > count / 4
