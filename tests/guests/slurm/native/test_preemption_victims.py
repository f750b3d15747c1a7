"""Which jobs are preempted for devices: by Slurm's rules, the fewest, and the youngest of these."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from podwright.guests.slurm.service._preemption_victims import (
    Candidate,
    JobRank,
    PreemptRules,
    choose_victims,
    ending_mode,
    grace_s,
    order_of_urgency,
)
from podwright.placement.buddy_blocks import BuddyBlocks, block


def words(text: str) -> frozenset[str]:
    return frozenset(text.split(","))


def some_jobs(rng: random.Random, capacity: int) -> list[Candidate]:
    """Return jobs on a pod that is nearly full, as the service places them."""
    blocks, jobs = BuddyBlocks(capacity), []
    for job in range(1, 11):
        order = rng.choice([0, 1, 1, 2, 2, 3])
        start = blocks.find(order)
        if start is not None:
            blocks.take(start, order)
            jobs.append(Candidate(job, block(start, order), float(rng.randrange(4)), "REQUEUE"))
    return [job for job in jobs if rng.random() < 0.9]


def free_block(free: int, capacity: int, order: int) -> bool:
    blocks = BuddyBlocks(capacity)
    blocks.free = free
    return blocks.find(order) is not None


@pytest.mark.parametrize("seed", range(120))
def test_no_job_ends_needlessly_and_no_other_set_is_better(seed: int) -> None:
    """All subsets of the jobs that may end are tried, which the choice must equal."""
    rng = random.Random(seed)
    capacity, order = (1 << rng.choice([16, 32])) - 1, rng.choice([1, 2, 3, 4])
    if rng.random() < 0.3:
        capacity &= ~block(rng.randrange(16), 0)  # a device that the pod lacks
    jobs = some_jobs(rng, capacity)
    may_end = [job for job in jobs if rng.random() < 0.7]
    free = capacity
    for job in jobs:
        free &= ~job.bits
    if rng.random() < 0.5:
        free &= ~block(8, 3)  # kept for another guest, or held by it

    chosen = choose_victims(capacity, free, may_end, order)

    def freed(ended: tuple[Candidate, ...]) -> int:
        return free | sum(job.bits for job in ended)

    def ages(ended: tuple[Candidate, ...]) -> list[float]:
        return sorted(job.began for job in ended)

    for count in range(len(may_end) + 1):
        enough = [
            ended
            for ended in combinations(may_end, count)
            if free_block(freed(ended) & capacity, capacity, order)
        ]
        if enough:
            assert chosen is not None
            assert len(chosen.jobs) == count
            assert ages(chosen.jobs) == max(map(ages, enough))
            assert set(chosen.jobs) <= set(may_end)
            assert chosen.bits.bit_count() == 1 << order
            assert not chosen.bits & ~(freed(chosen.jobs) & capacity)
            return
    assert chosen is None


def test_equal_and_larger_and_smaller_jobs_are_joined_as_they_lie() -> None:
    def job(number: int, start: int, order: int, began: float = 0.0) -> Candidate:
        return Candidate(number, block(start, order), began, "CANCEL")

    fours = [job(k, 4 * k, 2, began=k) for k in range(4)]
    assert choose_victims(0xFFFF, 0, fours, 3) == ((fours[3], fours[2]), 0xFF00)
    assert choose_victims(0xFFFF, 0, [fours[0], fours[2]], 3) is None, "they do not join"
    beside_free = choose_victims(0xFFFF, 0xF0, [fours[0], fours[2], fours[3]], 3)
    assert beside_free == ((fours[0],), 0xFF)
    whole = job(9, 0, 4)
    assert choose_victims(0xFFFF, 0, [whole], 1) == ((whole,), 0b11)
    assert choose_victims(0xFFFF, 0xFF, [], 3) == ((), 0xFF)


TIERS = PreemptRules(
    by_qos=False,
    cluster_mode=words("REQUEUE"),
    modes={"low": words("REQUEUE"), "mid": words("CANCEL"), "high": words("OFF")},
    grace_s={"low": 0, "mid": 30},
    tiers={"low": 1, "mid": 5, "high": 10},
)
QOS = PreemptRules(
    by_qos=True,
    cluster_mode=words("REQUEUE"),
    modes={
        "normal": words("CLUSTER"),
        "scavenger": words("CANCEL"),
        "urgent": words("CLUSTER"),
        "team": words("WITHIN"),
        "frozen": words("OFF"),
        "slow": words("SUSPEND"),
    },
    grace_s={},
    preemptable={"urgent": frozenset({"normal", "scavenger", "frozen", "slow"})},
)


def waits(where: str = "high", qos: str = "", priority: int = 100) -> JobRank:
    return JobRank(1, tuple(where.split(",")), qos, priority)


def runs(
    where: str = "low", qos: str = "", priority: int = 50, since: float | None = 0.0
) -> JobRank:
    return JobRank(2, (where,), qos, priority, since)


@pytest.mark.parametrize(
    ("rules", "urgent", "running", "mode"),
    [
        (TIERS, waits(), runs("low"), "REQUEUE"),
        (TIERS, waits(), runs("mid"), "CANCEL"),
        (TIERS, waits("mid"), runs("high"), ""),
        (TIERS, waits("mid"), runs("mid"), ""),
        (TIERS._replace(tiers={**TIERS.tiers, "top": 99}), waits("top"), runs("high"), ""),
        (TIERS, waits("low,high"), runs("low"), ""),
        (TIERS, waits("mid,high"), runs("low"), "REQUEUE"),
        (TIERS, waits("unknown"), runs("low"), ""),
        (TIERS, waits(), runs("unknown"), ""),
        (TIERS, waits(), runs(since=1000.1), ""),
        (TIERS, waits(), runs(since=1000.0), "REQUEUE"),
        (TIERS, waits(), runs(since=None), ""),
        (TIERS._replace(exempt_priority=49), waits(), runs(), ""),
        (TIERS._replace(exempt_priority=50), waits(), runs(), "REQUEUE"),
        (TIERS._replace(cluster_mode=words("PRIORITY,REQUEUE")), waits(priority=49), runs(), ""),
        (
            TIERS._replace(cluster_mode=words("PRIORITY,REQUEUE")),
            waits(priority=50),
            runs(),
            "REQUEUE",
        ),
        (
            TIERS._replace(modes={"low": words("GANG,SUSPEND"), "high": words("OFF")}),
            waits(),
            runs(),
            "",
        ),
        (QOS, waits(qos="urgent"), runs(qos="normal"), "REQUEUE"),
        (QOS, waits(qos="urgent"), runs(qos="scavenger"), "CANCEL"),
        (QOS, waits(qos="urgent"), runs(qos="frozen"), ""),
        (QOS, waits(qos="urgent"), runs(qos="slow"), ""),
        (QOS, waits(qos="urgent"), runs(qos="urgent"), ""),
        (QOS, waits(qos="normal"), runs(qos="scavenger"), ""),
        (QOS, waits(qos="urgent"), runs(qos=""), ""),
        (QOS, waits(qos=""), runs(qos="normal"), ""),
        (QOS, waits(qos="team"), runs(qos="team"), "REQUEUE"),
        (QOS, waits(qos="team", priority=50), runs(qos="team"), ""),
        (QOS, waits(qos="urgent"), runs(qos="normal", since=2000.0), ""),
        (QOS._replace(cluster_mode=words("SUSPEND")), waits(qos="urgent"), runs(qos="normal"), ""),
    ],
)  # fmt: skip
def test_a_job_ends_only_as_slurms_configuration_allows(
    rules: PreemptRules, urgent: JobRank, running: JobRank, mode: str
) -> None:
    assert ending_mode(rules, urgent, running, now=1000.0) == mode


def test_grace_and_order_are_slurms() -> None:
    assert [grace_s(TIERS, runs(name)) for name in ("low", "mid", "high")] == [0, 30, 0]
    low, high = waits("low", priority=900), waits("high", priority=1)
    assert sorted([low, high], key=lambda rank: order_of_urgency(TIERS, rank)) == [high, low]
