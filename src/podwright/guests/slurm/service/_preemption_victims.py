"""Decides which running jobs are preempted for the devices of an urgent one, by Slurm's own rules.

Slurm preempts for licences only where `PreemptParameters=reclaim_licenses` is set. Even then it
takes one job after another away until the counts suffice, and it cannot know whether the devices of
several small jobs join to a large block: no number of jobs of 4 devices gives back one `ipu_x16`.
So this module chooses the jobs. Whether a job may be preempted by another is for Slurm's
configuration to say: PriorityTier, the QOS's list, PreemptMode, PreemptExemptTime. What Slurm does
not show makes a job exempt.

Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from podwright.placement.buddy_blocks import block

#: The modes by which a victim's devices come free. A suspended job keeps them.
ENDING_MODES: Final = ("CANCEL", "REQUEUE")


class PreemptRules(NamedTuple):
    """What Slurm's configuration says of preemption.

    by_qos: PreemptType is preempt/qos, and otherwise preempt/partition_prio. cluster_mode: the
    cluster's PreemptMode, as words. modes: the PreemptMode of each partition or QOS. tiers:
    PriorityTier by partition. preemptable: for each QOS, those that it may preempt. grace_s:
    GraceTime by partition, or by QOS. exempt_priority: jobs of a higher priority than this are
    exempt; None: none is. slurm_ends_one: Slurm itself preempts for licences, so it ends one job
    of at least the urgent job's size wherever there is one.
    """

    by_qos: bool
    cluster_mode: frozenset[str]
    modes: Mapping[str, frozenset[str]]
    grace_s: Mapping[str, int]
    tiers: Mapping[str, int] = {}
    preemptable: Mapping[str, frozenset[str]] = {}
    exempt_priority: int | None = None
    slurm_ends_one: bool = False


class JobRank(NamedTuple):
    """What decides whether a job may preempt, or be preempted.

    partitions: several only while it waits. eligible_at: when it may first be preempted, in seconds
    since 1970; None: it may not.
    """

    job: int
    partitions: tuple[str, ...]
    qos: str
    priority: int
    eligible_at: float | None = None


class Candidate(NamedTuple):
    """A running job that may be preempted. bits: its devices. began: seconds since 1970. mode:
    one of ENDING_MODES. grace_s: seconds between its warning and its end.
    """

    job: int
    bits: int
    began: float
    mode: str
    grace_s: int = 0


class Victims(NamedTuple):
    """The jobs to be preempted. bits: the block that is free without them."""

    jobs: tuple[Candidate, ...]
    bits: int


def ending_mode(rules: PreemptRules, urgent: JobRank, running: JobRank, now: float) -> str:
    """Return how Slurm lets the urgent job end the running one, or "" if not at all.

    now: seconds since 1970.
    """
    if running.eligible_at is None or now < running.eligible_at or len(running.partitions) != 1:
        return ""
    if rules.exempt_priority is not None and running.priority > rules.exempt_priority:
        return ""
    allowed = _qos_allows if rules.by_qos else _partition_allows
    if not allowed(rules, urgent, running):
        return ""
    own_mode = rules.modes.get(running.qos if rules.by_qos else running.partitions[0])
    if own_mode is None:
        return ""
    # A QOS without a mode of its own shows the cluster's, or CLUSTER.
    mode_words = own_mode if own_mode & {*ENDING_MODES, "OFF", "SUSPEND"} else rules.cluster_mode
    return next((mode for mode in ENDING_MODES if mode_words & {mode}), "")


def order_of_urgency(rules: PreemptRules, waiting: JobRank) -> tuple[int, int, int]:
    """Return what sorts waiting jobs as Slurm does: by PriorityTier, priority and number."""
    tier = max((rules.tiers.get(name, 0) for name in waiting.partitions), default=0)
    return -tier, -waiting.priority, waiting.job


def grace_s(rules: PreemptRules, running: JobRank) -> int:
    """Return the seconds that a job has between its warning and its end."""
    return rules.grace_s.get(running.qos if rules.by_qos else running.partitions[0], 0)


def choose_victims(
    capacity: int, free_bits: int, candidates: Iterable[Candidate], order: int
) -> Victims | None:
    """Return the fewest jobs whose devices make a free block of 2**order; None: none do.

    capacity: all devices of the pod, as bits; free_bits: those that nobody holds and that are kept
    for nobody else. Of equally few, the youngest are chosen, which have the least work to lose: the
    oldest of them is as young as can be, and then the next. Then those that hold the fewest
    devices, and then the first block.
    """
    running = list(candidates)
    obtainable_bits = free_bits & capacity
    for candidate in running:
        obtainable_bits |= candidate.bits & capacity
    best: tuple[int, list[float], int, int] | None = None
    chosen: Victims | None = None
    for start in range(0, capacity.bit_length(), 1 << order):
        block_bits = block(start, order)
        if block_bits & ~obtainable_bits:
            continue
        victims = [candidate for candidate in running if candidate.bits & block_bits]
        rank = (
            len(victims),
            sorted(-candidate.began for candidate in victims)[::-1],
            sum(candidate.bits.bit_count() for candidate in victims),
            start,
        )
        if best is None or rank < best:
            best = rank
            victims.sort(key=lambda candidate: (-candidate.began, candidate.job))
            chosen = Victims(tuple(victims), block_bits)
    return chosen


def _partition_allows(rules: PreemptRules, urgent: JobRank, running: JobRank) -> bool:
    tiers = [rules.tiers.get(name) for name in urgent.partitions]
    running_tier = rules.tiers.get(running.partitions[0])
    if running_tier is None or not tiers or None in tiers:
        return False
    # Slurm may start the urgent job in any of its partitions, so each of them must suffice.
    if any(tier is None or tier <= running_tier for tier in tiers):
        return False
    by_priority = any(
        "PRIORITY" in rules.modes.get(name, frozenset()) for name in urgent.partitions
    )
    if by_priority or "PRIORITY" in rules.cluster_mode:
        return urgent.priority >= running.priority
    return True


def _qos_allows(rules: PreemptRules, urgent: JobRank, running: JobRank) -> bool:
    mode = rules.modes.get(urgent.qos)
    if mode is None:
        return False
    if urgent.qos == running.qos:
        within = "WITHIN" in mode | rules.cluster_mode
        return within and urgent.priority > running.priority
    if running.qos not in rules.preemptable.get(urgent.qos, frozenset()):
        return False
    if "PRIORITY" in mode | rules.cluster_mode:
        return urgent.priority > running.priority
    return True
