"""Random nodes: processes of living jobs, of ended jobs and of none, as the kernel shows them.

A `Case` says what is true of a process. `shown` is what the decision gets. They differ as on real
nodes: without cgroups (proctrack/linuxproc) a job shows in the environment alone, which a process
may have from another job's shell, may have lost, or may have with root's or a daemon's user.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from podwright.gpu.clean._leftovers import ListedJob, NodeProcess

USERS = (1001, 1002, 1003)
MONITOR_USER = 990


class Case(NamedTuple):
    """job: the job that truly started it, or None. shown: how it looks."""

    job: int | None
    shown: NodeProcess
    cgroup: bool
    own_environment: bool


class Mixture(NamedTuple):
    """hook_job: the job whose Epilog looks, or None."""

    cases: list[Case]
    listed: dict[int, ListedJob]
    living: set[int]
    users: dict[int, int]
    hook_job: int | None


def mixture(chance: random.Random) -> Mixture:
    numbers = chance.sample(range(1, 60), chance.randint(1, 8))
    users = {number: chance.choice(USERS) for number in numbers}
    living = {number for number in numbers if chance.random() < 0.5}
    here = {number: number not in living or chance.random() < 0.8 for number in numbers}
    ended = [number for number in numbers if number not in living]
    hook_job = chance.choice(ended) if ended and chance.random() < 0.5 else None
    listed = {}
    for number in numbers:
        # The job of an Epilog is still listed as completing; others that ended may be purged.
        if number in living or number == hook_job or chance.random() < 0.5:
            lives = number in living or number == hook_job
            listed[number] = ListedJob(number, users[number], lives, here[number])
    where = [number for number in numbers if here[number]]
    cases = [_case(chance, pid, where, users) for pid in range(100, 100 + chance.randint(1, 30))]
    return Mixture(cases, listed, {job for job in living if here[job]}, users, hook_job)


def _case(chance: random.Random, pid: int, jobs: list[int], users: dict[int, int]) -> Case:
    gpus = tuple(sorted(chance.sample(range(8), chance.choice((0, 1, 1, 2)))))
    if not jobs or chance.random() < 0.2:
        return Case(None, _of_no_job(chance, pid, gpus, users), cgroup=False, own_environment=False)
    job = chance.choice(jobs)
    uid = users[job]
    cgroup = chance.random() < 0.5
    environ_job: int | None = job
    own_environment = True
    other = chance.choice([number for number in users if users[number] == uid])
    if chance.random() < 0.15:
        environ_job, own_environment = other, other == job  # a shell of another of his jobs
    elif chance.random() < 0.1:
        environ_job, own_environment = None, False
    uid = 0 if chance.random() < 0.05 else uid
    environ_uid = None if environ_job is None or chance.random() < 0.2 else users[job]
    shown = NodeProcess(
        pid, pid, uid, str(uid), "python", gpus, (job,) if cgroup else (), environ_job, environ_uid,
        readable=chance.random() > 0.03,
    )  # fmt: skip
    return Case(job, shown, cgroup, own_environment)


def _of_no_job(
    chance: random.Random, pid: int, gpus: tuple[int, ...], users: dict[int, int]
) -> NodeProcess:
    """A monitor, MPS or a session by ssh; some were started from a job's shell or Prolog."""
    uid = chance.choice((0, 0, MONITOR_USER))
    job = chance.choice(list(users))
    if chance.random() < 0.3:
        return NodeProcess(pid, pid, uid, str(uid), "dcgm", gpus, (), job, users[job])
    uid = chance.choice((uid, *USERS))
    return NodeProcess(pid, pid, uid, str(uid), "python", gpus)
