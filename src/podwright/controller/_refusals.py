"""Refusals that need more than one sentence's worth of knowledge, put into words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from podwright.controller._fit import Difference, in_words
from podwright.controller._inventory import Site
from podwright.controller._leases import Lease
from podwright.controller._records import PartitionRecord
from podwright.placement import Refusal
from podwright.wire import (
    Held,
    InvalidRequest,
    NoCapacity,
    PartitionSpec,
    PodwrightError,
    WrongState,
)

SHOWN = 5  #: partitions that a refusal names, the largest first


def no_place(
    refusal: Refusal,
    site: Site,
    spec: PartitionSpec,
    asked: str,
    partitions: Iterable[PartitionRecord],
    down: Sequence[str] = (),
) -> PodwrightError:
    """Why placement found no devices."""
    data = {"free": refusal.free, "largest": refusal.largest, "cluster": site.cluster.name}
    if refusal.never:
        sizes = list(refusal.nearest_sizes)
        if sizes:
            would_work = "use a size of " + " or ".join(str(s) for s in sizes)
        elif refusal.largest:
            would_work = f"use a size of {refusal.largest} or less"
        else:
            would_work = "ask for another size or shape, or another allocation"
        return InvalidRequest(
            refusal.rule, asked=asked, would_work=would_work, **data, nearest=sizes
        )
    place = f"allocation {spec.allocation}" if spec.allocation else f"cluster {site.cluster.name}"
    holders = sorted(
        (
            p
            for p in partitions
            if p.cluster == site.cluster.name
            and (not spec.allocation or p.allocation == spec.allocation)
        ),
        key=lambda p: (-p.size, p.name),
    )
    standing = [{"partition": p.name, "owner": p.owner, "size": p.size} for p in holders[:SHOWN]]
    problem = f"{refusal.rule} ({place} has {_size(site, spec)}, {refusal.free} of them free)"
    if holders:
        problem += "; in the way: " + ", ".join(
            f"{p.name} ({p.owner}, {p.size})" for p in holders[:SHOWN]
        )
        if len(holders) > SHOWN:
            problem += f" and {len(holders) - SHOWN} more"
    silent = [m for m in down if m in site.places]
    if silent:
        problem += f"; not in service: {', '.join(silent[:SHOWN])}"
    would_work = (
        f"a size of {refusal.largest} would start now"
        if refusal.largest
        else "remove a partition, or wait until one is removed"
    )
    return NoCapacity(
        problem, asked=asked, would_work=would_work, **data, partitions=standing, down=silent
    )


def _size(site: Site, spec: PartitionSpec) -> int:
    return site.index.size(spec.allocation or None)


def held(record: PartitionRecord, leases: Sequence[Lease], asked: str, would_work: str) -> Held:
    """Somebody holds it."""
    names = [holder_of(lease) for lease in leases]
    return Held(
        f"partition {record.name} is held by {', '.join(names[:SHOWN])}",
        asked=asked,
        would_work=would_work,
        holder=names[0] if names else "",
        holders=names,
        partition=record.name,
    )


def holder_of(lease: Lease) -> str:
    """Who holds a lease, in words."""
    return lease.record.holder or lease.record.owner


def does_not_fit(record: PartitionRecord, found: list[Difference], asked: str) -> WrongState:
    """It exists, but is another shape."""
    return WrongState(
        f"partition {record.name} does not fit: it has {in_words(found)}",
        asked=asked,
        would_work="let it be removed and created anew with --update-partition=yes, "
        "or name another partition",
        partition=record.name,
        differences=[d._asdict() for d in found],
    )


def failed(record: PartitionRecord, reasons: Sequence[str], asked: str, then: str) -> WrongState:
    """The hardware did not do its part."""
    return WrongState(
        "; ".join(reasons) or f"partition {record.name} is in error",
        asked=asked,
        would_work=then,
        partition=record.name,
        errors=list(reasons),
    )
