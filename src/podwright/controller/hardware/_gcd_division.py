"""Into which GCDs a partition is divided for a launch, where its creator left that open.

Our choice: V-IPU's documents speak of partitions that are divided at creation. Here each launch
that acquires one divides the same devices, in the same order, as it needs them, and that stands
until the next.
"""

from __future__ import annotations

from typing import TypedDict

from podwright.controller.state._records import PartitionRecord
from podwright.errors import InvalidRequest
from podwright.fabric import Family
from podwright.placement import Block
from podwright.wire import PartitionSpec


class Division(TypedDict, total=False):
    """The fields of a record that a division changes; none where it stays as it is."""

    num_gcds: int
    num_replicas: int
    gcds: tuple[Block, ...]


def divide(record: PartitionRecord, spec: PartitionSpec, family: Family, action: str) -> Division:
    """The division that a launch wants. Raises InvalidRequest where the devices cannot have it.

    Counts that the spec leaves open stay as they are, but replicas follow the GCDs.
    """
    gcds = (spec.num_gcds if record.open_gcds else 0) or record.num_gcds
    replicas = spec.num_replicas if record.open_replicas else record.num_replicas
    if not replicas:
        replicas = record.num_replicas if gcds == record.num_gcds else gcds
    if (gcds, replicas) == (record.num_gcds, record.num_replicas):
        return {}
    _check(record, gcds, replicas, family, action)
    share = record.size // gcds
    return {
        "num_gcds": gcds,
        "num_replicas": replicas,
        "gcds": tuple(
            Block(domain, share_offset, share)
            for domain, offset, size in record.blocks
            for share_offset in range(offset, offset + size, share)
        ),
    }


def _check(record: PartitionRecord, gcds: int, replicas: int, family: Family, action: str) -> None:
    size = record.size
    smallest_block = min(block.size for block in record.blocks)
    fits = [
        size // share
        for share in sorted(family.gcd_sizes or range(1, smallest_block + 1), reverse=True)
        if all(block.size % share == 0 for block in record.blocks)
        and (record.open_replicas or record.num_replicas % (size // share) == 0)
    ]
    if gcds not in fits:
        raise InvalidRequest(
            f"the {size} devices of partition {record.name} do not divide into {gcds} GCDs",
            operation=action,
            would_work=f"use {' or '.join(map(str, fits))} GCDs",
            num_gcds=gcds,
            nearest=fits,
        )
    if replicas < 1 or replicas % gcds or size % replicas:
        raise InvalidRequest(
            f"{replicas} replicas do not divide evenly over the {size} devices of partition "
            f"{record.name} in {gcds} GCDs",
            operation=action,
            would_work=f"use {gcds} replicas, or a multiple that divides {size}",
            num_replicas=replicas,
        )
