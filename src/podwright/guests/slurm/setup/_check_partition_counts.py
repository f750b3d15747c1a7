"""Checks that Slurm counts as many partitions of each size as can be given out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from podwright.errors import PodwrightError, Unavailable
from podwright.guests.slurm.service import parse_licences
from podwright.guests.slurm.service._job_start_text import JOB
from podwright.guests.slurm.service._licence_counts import RESERVATION_NAME
from podwright.guests.slurm.setup._check_environment import ServedCluster
from podwright.slurm.reader import SHOW_RESERVATIONS, read_reservations
from podwright.wire import PartitionInfo, ReadyState


def shelf(cluster: ServedCluster) -> str:
    """Check that the reservation hides as many partitions of each size as nobody can use.

    A size that the reservation does not name is not hidden. Slurm takes no empty reservation, so
    the service has it hide a mark where nothing else is to be hidden.
    """
    problem = ""

    def same() -> bool:
        """Compare once. Jobs begin and end meanwhile, and Slurm is told a moment later, so this is
        repeated.
        """
        nonlocal problem
        problem = _hidden_count_difference(cluster, _hidden_licence_counts(cluster))
        return not problem

    try:
        cluster.until(same)
    except PodwrightError as error:
        return str(error)
    return problem


def _hidden_licence_counts(cluster: ServedCluster) -> dict[str, int]:
    """Return how many of each licence Slurm's reservation hides. Raises Unavailable."""
    code, output = cluster.ask(*SHOW_RESERVATIONS, RESERVATION_NAME)
    reservations = [] if code else read_reservations(output)
    if not reservations:
        raise Unavailable(
            output[:200] or f"Slurm has no reservation {RESERVATION_NAME}",
            would_work="start podwright slurm serve, and look what its log says",
        )
    return parse_licences(reservations[0].licences)


def _hidden_count_difference(cluster: ServedCluster, hidden_by_licence: Mapping[str, int]) -> str:
    with cluster.partitions() as list_partitions:
        partition_infos = list_partitions()
    unusable_by_licence = Counter(
        {fixed_partition.licence: 0 for fixed_partition in cluster.site.partitions},
    )
    unusable_by_licence.update(
        fixed_partition.licence
        for fixed_partition in cluster.site.partitions
        if not _is_usable_partition(partition_infos.get(fixed_partition.name), fixed_partition.size)
    )
    for licence, unusable_count in unusable_by_licence.items():
        if (hidden_count := hidden_by_licence.get(licence, 0)) != unusable_count:
            return (
                f"Slurm hides {hidden_count} of {licence}, and {unusable_count} cannot be handed "
                "over"
            )
    return ""


def _is_usable_partition(partition_info: PartitionInfo | None, expected_size: int) -> bool:
    """Return whether a job has the partition, or could have it next."""
    if partition_info is None or partition_info.size != expected_size:
        return False
    holders = [lease.holder for lease in partition_info.leases if not lease.parent]
    if holders:
        return all(holder.startswith(JOB) for holder in holders)
    return partition_info.ready_state is ReadyState.ACTIVE
