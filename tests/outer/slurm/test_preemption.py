"""Urgent jobs get devices as Slurm's configuration allows it: the fewest jobs end for them."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from itertools import combinations
from typing import Any

import pytest

from tests.outer.lab import ALICE, Accounts, Release, poll, written_at
from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

CONF = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
PARTITIONS = [
    "PartitionName=low Nodes=ALL Default=YES PriorityTier=1",
    "PartitionName=warned Nodes=ALL PriorityTier=1 PreemptMode=CANCEL GraceTime=4",
    "PartitionName=exempt Nodes=ALL PriorityTier=1 PreemptMode=OFF",
    "PartitionName=high Nodes=ALL PriorityTier=10",
]
LONG = "sleep 600"


@pytest.fixture(scope="module")
def cluster(release: Release) -> Iterator[NativeLab]:
    with NativeLab(nodes=2, cpus=64, release=release, conf=CONF, lines=PARTITIONS) as lab:
        yield lab


@pytest.fixture
def lab(cluster: NativeLab) -> Iterator[NativeLab]:
    yield cluster
    cluster.run("scancel", *(str(job.id) for job in cluster.jobs().values() if not job.over))
    cluster.wait("an empty cluster", lambda jobs: all(job.over for job in jobs.values()))
    cluster.wait_free()


def start(lab: NativeLab, sizes: list[int], where: str = "low", script: str = LONG) -> list[int]:
    """Return jobs of these sizes that run, in the order in which they began."""
    jobs = []
    for size in sizes:
        jobs.append(lab.batch(script, f"--ipus={size}", "-p", where))
        lab.wait("it runs", lambda found: found[jobs[-1]].state == "RUNNING", seconds=120)
        poll("its devices", lambda: f"slurm_{jobs[-1]}" in lab.partitions())
    return jobs


def gone(lab: NativeLab, job: int) -> bool:
    return f"slurm_{job}" not in lab.partitions()


def urgent(lab: NativeLab, size: int) -> int:
    return lab.batch("true", f"--ipus={size}", "-p", "high", "-o", "/dev/null")


def ended(lab: NativeLab, jobs: list[int]) -> set[int]:
    return {job for job in jobs if lab.job(job).fields["Restarts"] != "0" or lab.job(job).over}


def fewest(lab: NativeLab, jobs: list[int], size: int) -> int | None:
    """Return how many of these jobs must end for a free block of this size; None: it cannot be."""
    held = {
        name: {place(ref.domain, ref.offset) for gcd in info.gcds for ref in gcd}
        for name, info in lab.partitions().items()
    }
    for count in range(len(jobs) + 1):
        for leaving in combinations(jobs, count):
            taken = set().union(
                *(devices for name, devices in held.items() if int(name[6:]) not in leaving)
            )
            if any(taken.isdisjoint(range(at, at + size)) for at in range(0, 64, size)):
                return count
    return None


def place(domain: int, offset: int) -> int:
    return 64 * domain + offset


@pytest.mark.parametrize("size", [4, 16, 64])
@pytest.mark.parametrize("running", [16, 32, 64])
def test_an_urgent_job_starts_by_the_fewest_victims(
    lab: NativeLab, running: int, size: int
) -> None:
    jobs = start(lab, [running] * (64 // running))
    first = urgent(lab, size)
    lab.wait("the urgent job", lambda found: found[first].state == "COMPLETED", seconds=180)
    victims = ended(lab, jobs)
    assert len(victims) == max(1, size // running)
    if size <= running:
        assert victims == {jobs[-1]}, "the youngest"
    assert lab.state()["figures"]["waited"] == 0
    taken = lab.taken()
    assert len(taken) == len(set(taken))


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 63))]
)
def test_no_job_ends_needlessly_however_the_pod_is_held(lab: NativeLab, seed: int) -> None:
    rng = random.Random(seed)
    free, may_end, others = 64, [], []
    while free >= 8:
        size = rng.choice([size for size in (4, 8, 16, 32) if size <= free])
        free -= size
        if rng.random() < 0.75:
            may_end += start(lab, [size])
        else:
            others += start(lab, [size], "exempt")
    leaving = rng.sample(may_end, min(len(may_end), rng.randrange(2)))
    for job in leaving:
        lab.run("scancel", str(job))
        may_end.remove(job)
        poll("it is gone", partial(gone, lab, job))
    size = rng.choice([8, 16, 32])
    needed = fewest(lab, may_end, size)
    first = urgent(lab, size)
    if needed is None:
        poll("a sweep", lambda: "waits for" in lab.ok("scontrol", "show", "job", str(first)))
        assert not ended(lab, may_end)
    else:
        lab.wait("the urgent job", lambda found: found[first].state == "COMPLETED", seconds=180)
        assert len(ended(lab, may_end)) == needed
    assert not ended(lab, others)


def test_a_victim_is_warned_and_has_its_grace_time(lab: NativeLab) -> None:
    script = "srun -n1 bash -c 'trap \"echo warned\" TERM; echo up; while :; do sleep 0.2; done'"
    (job,) = start(lab, [64], "warned", script)
    poll("its step", lambda: "up" in lab.output(job))
    first = urgent(lab, 16)
    poll(
        "whom it waits for",
        lambda: f"({job}) ends for it" in lab.job(first).fields.get("AdminComment", ""),
    )
    site = lab.site_option()
    explained = lab.command("vipu", "explain", "--job", str(first), *site, user="root").stdout
    assert f"1 job of lower rank ({job}) ends for it" in explained
    lab.wait("the urgent job", lambda found: found[first].state == "COMPLETED", seconds=180)
    assert "warned" in lab.output(job)
    assert lab.job(job).state == "CANCELLED"


@pytest.mark.parametrize("killed", ["service", "server", "slurmctld"])
def test_a_kill_during_a_preemption_leaks_nothing(lab: NativeLab, killed: str) -> None:
    """slurmctld forgets what it has not saved, so it is killed once it has saved the urgent job: it
    may have forgotten that a victim was to end.
    """
    jobs = start(lab, [16] * 4)
    first = urgent(lab, 32)
    submitted, saved = time.time(), lab.folder / "state/job_state"
    if killed == "slurmctld":
        poll("its saved state", lambda: written_at(saved) > submitted + 1)
    poll("a victim", lambda: ended(lab, jobs))
    if killed == "slurmctld":
        lab.kill_daemon("slurmctld")
        lab.start_daemon("slurmctld")
    else:
        lab.end(killed)
        lab.start_service() if killed == "service" else lab.start_server()
    lab.wait("the urgent job", lambda found: found[first].state == "COMPLETED", seconds=240)
    assert len(ended(lab, jobs)) == 2
    taken = lab.taken()
    assert len(taken) == len(set(taken))


class QosLab(Accounts, NativeLab):
    """Slurm preempts by QOS: urgent may end scavenger, and nobody may end normal."""

    def __init__(self, **options: Any) -> None:
        conf = {
            **self.accounts_conf(),
            "AccountingStorageEnforce": "qos",
            "PreemptType": "preempt/qos",
            "PreemptMode": "REQUEUE",
        }
        super().__init__(conf=conf, **options)

    def start_accounts(self) -> None:
        super().start_accounts()
        self.account("add", "qos", "scavenger")
        self.account("add", "qos", "urgent", "preempt=scavenger")
        self.account("modify", "user", ALICE, "set", "qos=normal,scavenger,urgent")


def test_by_qos_only_those_in_its_list_end(release: Release) -> None:
    with QosLab(nodes=2, cpus=64, release=release) as lab:

        def begin(size: int, qos: str) -> int:
            job = lab.batch(LONG, f"--ipus={size}", f"--qos={qos}")
            poll("its devices", lambda: f"slurm_{job}" in lab.partitions())
            return job

        kept = begin(32, "normal")
        ending = [begin(16, "scavenger") for _ in range(2)]
        large = lab.batch("true", "--ipus=64", "--qos=urgent", "-o", "/dev/null")
        fits = lab.batch("true", "--ipus=32", "--qos=urgent", "-o", "/dev/null")
        lab.wait("the urgent job", lambda jobs: jobs[fits].state == "COMPLETED", seconds=180)
        assert ended(lab, ending) == set(ending)
        assert not ended(lab, [kept])
        assert lab.job(large).state == "PENDING"


def test_without_preemption_in_slurm_nobody_ends(release: Release) -> None:
    with NativeLab(nodes=2, cpus=64, release=release, lines=[PARTITIONS[0], PARTITIONS[3]]) as lab:
        jobs = start(lab, [32, 32])
        first = urgent(lab, 16)
        poll("a sweep", lambda: "waits for" in lab.job(first).fields.get("AdminComment", ""))
        before = lab.service_log().count("preempts")
        lab.run("scancel", str(jobs[0]))
        lab.wait("the urgent job", lambda found: found[first].state == "COMPLETED", seconds=120)
        assert before == 0
        assert not ended(lab, jobs[1:])
