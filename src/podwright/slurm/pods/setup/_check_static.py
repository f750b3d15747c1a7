"""Proof that Slurm counts as many partitions of each size as can be handed over."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from podwright.errors import PodwrightError, Unavailable
from podwright.slurm.pods.service import parse_licences
from podwright.slurm.pods.service._job_start import JOB
from podwright.slurm.pods.service._sync import RESERVATION
from podwright.slurm.pods.setup._check_cluster import ServedCluster
from podwright.wire import PartitionInfo, ReadyState


def shelf(cluster: ServedCluster) -> str:
    """The reservation hides those that nobody can use, of each size as many as there are.

    What is not named there is not hidden: Slurm takes no reservation of nothing, and the service
    then has it hide a mark.
    """
    why = ""

    def same() -> bool:
        """Jobs begin and end meanwhile, and Slurm is told a moment later."""
        nonlocal why
        why = _differ(cluster, _hidden(cluster))
        return not why

    try:
        cluster.until(same)
    except PodwrightError as error:
        return str(error)
    return why


def _hidden(cluster: ServedCluster) -> dict[str, int]:
    """What Slurm's reservation hides. Raises Unavailable."""
    code, said = cluster.ask("scontrol", "--oneliner", "show", "reservation", RESERVATION)
    found = re.search(r"\bLicenses=(\S+)", said)
    if code or not found:
        raise Unavailable(
            said[:200] or f"Slurm has no reservation {RESERVATION}",
            would_work="start podwright slurm serve, and look what its log says",
        )
    return parse_licences(found[1])


def _differ(cluster: ServedCluster, hidden: Mapping[str, int]) -> str:
    with cluster.partitions() as partitions:
        there = partitions()
    away = Counter(
        {one.licence: 0 for one in cluster.site.partitions},
    )
    away.update(
        one.licence for one in cluster.site.partitions if not _usable(there.get(one.name), one.size)
    )
    for licence, count in away.items():
        if (told := hidden.get(licence, 0)) != count:
            return f"Slurm hides {told} of {licence}, and {count} cannot be handed over"
    return ""


def _usable(one: PartitionInfo | None, size: int) -> bool:
    """Whether a job has it, or may have it next."""
    if one is None or one.size != size:
        return False
    holders = [lease.holder for lease in one.leases if not lease.parent]
    if holders:
        return all(holder.startswith(JOB) for holder in holders)
    return one.ready_state is ReadyState.ACTIVE
