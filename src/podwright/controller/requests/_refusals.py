"""Errors for requests that are refused, with their data and what would work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from podwright.controller.requests._explain import MAX_SHOWN_PARTITIONS, in_words, other_waiters
from podwright.controller.requests._partition_fit import PropertyMismatch
from podwright.controller.requests._partition_fit import in_words as differences_in_words
from podwright.controller.requests._spec import fewest_gcds, to_request
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._leases import HeldLease
from podwright.controller.state._records import PartitionRecord
from podwright.errors import Held, InvalidRequest, NoCapacity, PodwrightError, WrongState
from podwright.fabric import Cluster
from podwright.placement import Refusal, Request
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
        request = to_request(spec, cluster.layout)
        nearest_sizes = [
            size
            for size in refusal.nearest_sizes
            if _ever(cluster, replace(request, size=size, blocks=None))
        ]
        if nearest_sizes:
            would_work = "use a size of " + " or ".join(str(size) for size in nearest_sizes)
        elif possible_text := _possible_in_words(cluster, spec):
            would_work = f"use {possible_text}"
        else:
            would_work = "vipu list allocations shows what there is"
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


def _possible_in_words(cluster: IndexedCluster, spec: PartitionSpec) -> str:
    """The nearest sizes that the hardware has, smaller and larger, with the GCDs of each.

    A GCD keeps its size where it can. Empty: the hardware has no size at all for this allocation.
    """
    request = to_request(spec, cluster.layout)
    gcd_size = max(1, request.size // max(1, request.gcds))
    known_sizes = _sizes_of(cluster.layout)
    smaller = [size for size in reversed(known_sizes) if size < request.size]
    possible_texts = []
    for sizes in (smaller, [size for size in known_sizes if size >= request.size]):
        found_request = next(
            (
                candidate
                for size in sizes
                for gcds in dict.fromkeys(
                    (
                        max(1, size // gcd_size),
                        fewest_gcds(
                            msgspec.structs.replace(spec, size=size, devices=[]), cluster.layout
                        ),
                    )
                )
                for candidate in (replace(request, size=size, gcds=gcds, blocks=None),)
                if size % gcds == 0 and _ever(cluster, candidate)
            ),
            None,
        )
        if found_request is not None:
            gcd_noun = "GCD" if found_request.gcds == 1 else "GCDs"
            possible_texts.append(f"{found_request.size} in {found_request.gcds} {gcd_noun}")
    return f"a size of {', or of '.join(possible_texts)}" if possible_texts else ""


def _sizes_of(layout: Cluster) -> list[int]:
    """The sizes that a cluster may have by its family, ascending."""
    sizes = [layout.domain_size(domain) for domain in range(len(layout.domains))]
    largest = max(sizes)
    over_domains = [largest * count for count in range(2, len(sizes) + 1)]
    return [*layout.family.sizes(largest), *over_domains]


def _ever(cluster: IndexedCluster, request: Request) -> bool:
    """Whether the hardware has such a shape, be it free or taken."""
    answer = cluster.index.plan(request)
    return not (isinstance(answer, Refusal) and answer.never)


def _pool_size(cluster: IndexedCluster, spec: PartitionSpec) -> int:
    return cluster.index.size(spec.allocation or None)


def held_by_others_error(
    record: PartitionRecord, leases: Sequence[HeldLease], action: str, would_work: str
) -> Held:
    """The error for a partition that others hold."""
    names = [holder_of(lease) for lease in leases]
    return Held(
        f"partition {record.name} is held by {', '.join(names[:MAX_SHOWN_PARTITIONS])}",
        operation=action,
        would_work=would_work,
        holder=names[0] if names else "",
        holders=names,
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
