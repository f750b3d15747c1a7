"""Does a partition that exists fit what is asked for (PopRun guide 2.8.3)? Pure."""

from __future__ import annotations

from typing import NamedTuple

from podwright.controller._records import PartitionRecord
from podwright.wire import PartitionSpec


class Difference(NamedTuple):
    """One property that does not fit."""

    property: str
    has: str
    wanted: str


def differences(record: PartitionRecord, spec: PartitionSpec) -> list[Difference]:
    """What does not fit; empty when the partition will do.

    Zero or empty in the spec means that anything will do; what the partition's creator left open
    is made to fit (`_gcd_division`). Of a reconfigurable partition a
    subset is enough, but it is one GCD in one link domain.
    """
    out: list[Difference] = []

    def differ(name: str, has: object, wanted: object) -> None:
        if has != wanted:
            out.append(Difference(name, str(has), str(wanted)))

    size = spec.size or len(spec.devices)
    if record.reconfigurable:
        if size > record.size or size & (size - 1):
            differ("size", f"{record.size} or an aligned part of it", size)
        if spec.num_gcds:
            differ("GCDs", 1, spec.num_gcds)
        if spec.num_ilds > 1:
            differ("link domains", 1, spec.num_ilds)
    else:
        if size:
            differ("size", record.size, size)
        if spec.num_gcds and not record.open_gcds:
            differ("GCDs", record.num_gcds, spec.num_gcds)
        if spec.num_replicas and not record.open_replicas:
            differ("replicas", record.num_replicas, spec.num_replicas)
        if spec.num_ilds:
            differ("link domains", record.num_ilds, spec.num_ilds)
        if spec.reconfigurable:
            differ("reconfigurable", "no", "yes")
    if spec.cluster:
        differ("cluster", record.cluster, spec.cluster)
    if spec.allocation:
        differ("allocation", record.allocation, spec.allocation)
    return out


def in_words(found: list[Difference]) -> str:
    """The differences as one phrase."""
    return ", ".join(f"{d.property} {d.has} instead of {d.wanted}" for d in found)
