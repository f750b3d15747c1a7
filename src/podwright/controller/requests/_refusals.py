"""Errors for requests that are refused, with their data and what would work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from podwright.controller.requests._explain import MAX_SHOWN_PARTITIONS, in_words, other_waiters
from podwright.controller.requests._partition_fit import PropertyMismatch
from podwright.controller.requests._partition_fit import in_words as differences_in_words
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._leases import HeldLease
from podwright.controller.state._records import PartitionRecord
from podwright.errors import Held, InvalidRequest, NoCapacity, PodwrightError, WrongState
from podwright.placement import Refusal
from podwright.wire import PartitionSpec


def no_placement_error(
    refusal: Refusal,
    cluster: IndexedCluster,
    spec: PartitionSpec,
    action: str,
    obstacles: Callable[[], dict[str, Any]],
) -> PodwrightError:
    """The error for a placement that found no devices.

    obstacles: returns what stands in the way. It is called only if the request may fit later.
    """
    error_data: dict[str, Any] = {
        "free": refusal.free,
        "largest": refusal.largest,
        "cluster": cluster.layout.name,
    }
    if refusal.never:
        nearest_sizes = list(refusal.nearest_sizes)
        if nearest_sizes:
            would_work = "use a size of " + " or ".join(str(size) for size in nearest_sizes)
        elif refusal.largest:
            would_work = f"use a size of {refusal.largest} or less"
        else:
            would_work = "ask for another size or shape, or another allocation"
        return InvalidRequest(
            refusal.rule,
            operation=action,
            would_work=would_work,
            **error_data,
            nearest=nearest_sizes,
        )
    place_text = (
        f"allocation {spec.allocation}" if spec.allocation else f"cluster {cluster.layout.name}"
    )
    error_data = obstacles()
    problem = (
        f"{refusal.rule} ({place_text} has {_pool_size(cluster, spec)}, {refusal.free} of them "
        "free)"
    )
    if standing_partitions := error_data["partitions"]:
        problem += "; in the way: " + ", ".join(
            f"{partition_data['partition']} ({partition_data['owner']}, {partition_data['size']})"
            for partition_data in standing_partitions
        )
        if error_data["more_partitions"]:
            problem += f" and {error_data['more_partitions']} more"
    for data_key, state_text in (
        ("down", "not in service"),
        ("drained", "drained"),
        ("kept_for", "kept for those who wait"),
    ):
        if error_data[data_key]:
            problem += f"; {state_text}: {', '.join(error_data[data_key][:MAX_SHOWN_PARTITIONS])}"
    if hidden_waiters := error_data["kept_for_others"]:
        problem += f"; kept for {other_waiters(hidden_waiters)}"
    return NoCapacity(
        problem, operation=action, would_work=in_words(spec, error_data["nearest"]), **error_data
    )


def _pool_size(cluster: IndexedCluster, spec: PartitionSpec) -> int:
    return cluster.index.size(spec.allocation or None)


def held_by_others_error(
    record: PartitionRecord, leases: Sequence[HeldLease], action: str, would_work: str
) -> Held:
    """The error for a partition that others hold."""
    holder_names = [holder_of(lease) for lease in leases]
    return Held(
        f"partition {record.name} is held by {', '.join(holder_names[:MAX_SHOWN_PARTITIONS])}",
        operation=action,
        would_work=would_work,
        holder=holder_names[0] if holder_names else "",
        holders=holder_names,
        partition=record.name,
    )


def fencing(record: PartitionRecord, reasons: Sequence[str], action: str) -> Held:
    """The error for a partition without a holder on which processes of an old lease may run."""
    return Held(
        f"partition {record.name} is FENCING: {'; '.join(reasons[:MAX_SHOWN_PARTITIONS])}",
        operation=action,
        would_work=f"wait for that (vipu explain {record.name}), or, where nothing of it runs any "
        "more, let an administrator say so: vipu remove lease ID --force",
        partition=record.name,
        holder="",
        holders=[],
        fencing=list(reasons),
    )


def holder_of(lease: HeldLease) -> str:
    """The holder of a lease, in words."""
    return lease.record.holder or lease.record.owner


def misfit_error(
    record: PartitionRecord,
    mismatches: list[PropertyMismatch],
    action: str,
    *,
    inside_job: bool = False,
) -> WrongState:
    """It exists, but is another shape. inside_job: a job or a launch holds it, and the request is
    made in there: it cannot be replaced, and the request has to fit.
    """
    if inside_job:
        would_work = "ask for what it has: its size and GCDs are the job's or the outer launch's"
    else:
        would_work = (
            "let it be removed and created anew with --update-partition=yes, "
            "or name another partition"
        )
    return WrongState(
        f"partition {record.name} does not fit: it has {differences_in_words(mismatches)}",
        operation=action,
        would_work=would_work,
        partition=record.name,
        differences=[mismatch._asdict() for mismatch in mismatches],
    )


def failed(record: PartitionRecord, reasons: Sequence[str], action: str, hint: str) -> WrongState:
    """The error for a partition whose hardware failed."""
    return WrongState(
        "; ".join(reasons) or f"partition {record.name} is in error",
        operation=action,
        would_work=hint,
        partition=record.name,
        errors=list(reasons),
    )
