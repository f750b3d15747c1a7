"""Refusals that need more than one sentence's worth of knowledge, put into words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from podwright.controller._cluster_index import IndexedCluster
from podwright.controller._explain import SHOWN, in_words
from podwright.controller._leases import HeldLease
from podwright.controller._partition_fit import Difference
from podwright.controller._partition_fit import in_words as differences_in_words
from podwright.controller._records import PartitionRecord
from podwright.errors import Held, InvalidRequest, NoCapacity, PodwrightError, WrongState
from podwright.placement import Refusal
from podwright.wire import PartitionSpec


def no_place(
    refusal: Refusal,
    site: IndexedCluster,
    spec: PartitionSpec,
    action: str,
    why: Callable[[], dict[str, Any]],
) -> PodwrightError:
    """Why placement found no devices. why: what stands in the way, only worked out for those who
    may have them later."""
    data: dict[str, Any] = {
        "free": refusal.free,
        "largest": refusal.largest,
        "cluster": site.cluster.name,
    }
    if refusal.never:
        sizes = list(refusal.nearest_sizes)
        if sizes:
            would_work = "use a size of " + " or ".join(str(s) for s in sizes)
        elif refusal.largest:
            would_work = f"use a size of {refusal.largest} or less"
        else:
            would_work = "ask for another size or shape, or another allocation"
        return InvalidRequest(
            refusal.rule, asked=action, would_work=would_work, **data, nearest=sizes
        )
    place = f"allocation {spec.allocation}" if spec.allocation else f"cluster {site.cluster.name}"
    data = why()
    problem = f"{refusal.rule} ({place} has {_size(site, spec)}, {refusal.free} of them free)"
    if standing := data["partitions"]:
        problem += "; in the way: " + ", ".join(
            f"{p['partition']} ({p['owner']}, {p['size']})" for p in standing
        )
        if data["more_partitions"]:
            problem += f" and {data['more_partitions']} more"
    for key, words in (
        ("down", "not in service"),
        ("drained", "drained"),
        ("kept_for", "kept for those who wait"),
    ):
        if data[key]:
            problem += f"; {words}: {', '.join(data[key][:SHOWN])}"
    return NoCapacity(problem, asked=action, would_work=in_words(spec, data["nearest"]), **data)


def _size(site: IndexedCluster, spec: PartitionSpec) -> int:
    return site.index.size(spec.allocation or None)


def held(
    record: PartitionRecord, leases: Sequence[HeldLease], action: str, would_work: str
) -> Held:
    """Somebody holds it."""
    names = [holder_of(lease) for lease in leases]
    return Held(
        f"partition {record.name} is held by {', '.join(names[:SHOWN])}",
        asked=action,
        would_work=would_work,
        holder=names[0] if names else "",
        holders=names,
        partition=record.name,
    )


def fencing(record: PartitionRecord, why: Sequence[str], action: str) -> Held:
    """Nobody holds it, and yet it is not free: what a lease left behind may still run."""
    return Held(
        f"partition {record.name} is FENCING: {'; '.join(why[:SHOWN])}",
        asked=action,
        would_work=f"wait for that (vipu explain {record.name}), or, where nothing of it runs any "
        "more, let an administrator say so: vipu remove lease ID --force",
        partition=record.name,
        holder="",
        holders=[],
        fencing=list(why),
    )


def holder_of(lease: HeldLease) -> str:
    """Who holds a lease, in words."""
    return lease.record.holder or lease.record.owner


def does_not_fit(record: PartitionRecord, found: list[Difference], action: str) -> WrongState:
    """It exists, but is another shape."""
    return WrongState(
        f"partition {record.name} does not fit: it has {differences_in_words(found)}",
        asked=action,
        would_work="let it be removed and created anew with --update-partition=yes, "
        "or name another partition",
        partition=record.name,
        differences=[d._asdict() for d in found],
    )


def failed(record: PartitionRecord, reasons: Sequence[str], action: str, then: str) -> WrongState:
    """The hardware did not do its part."""
    return WrongState(
        "; ".join(reasons) or f"partition {record.name} is in error",
        asked=action,
        would_work=then,
        partition=record.name,
        errors=list(reasons),
    )
