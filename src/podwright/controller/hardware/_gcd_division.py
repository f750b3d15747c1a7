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


def divide(
    partition_record: PartitionRecord, spec: PartitionSpec, family: Family, action: str
) -> Division:
    """The division that a launch wants. Raises InvalidRequest where the devices cannot have it.

    Counts that the spec leaves open stay as they are, but replicas follow the GCDs.
    """
    gcd_count = (spec.num_gcds if partition_record.open_gcds else 0) or partition_record.num_gcds
    replica_count = (
        spec.num_replicas if partition_record.open_replicas else partition_record.num_replicas
    )
    if not replica_count:
        replica_count = (
            partition_record.num_replicas if gcd_count == partition_record.num_gcds else gcd_count
        )
    if (gcd_count, replica_count) == (partition_record.num_gcds, partition_record.num_replicas):
        return {}
    _check_division(partition_record, gcd_count, replica_count, family, action)
    devices_per_gcd = partition_record.size // gcd_count
    return {
        "num_gcds": gcd_count,
        "num_replicas": replica_count,
        "gcds": tuple(
            Block(domain, gcd_offset, devices_per_gcd)
            for domain, block_offset, size in partition_record.blocks
            for gcd_offset in range(block_offset, block_offset + size, devices_per_gcd)
        ),
    }


def _check_division(
    partition_record: PartitionRecord,
    gcd_count: int,
    replica_count: int,
    family: Family,
    action: str,
) -> None:
    partition_size = partition_record.size
    smallest_block = min(block.size for block in partition_record.blocks)
    possible_gcd_counts = [
        partition_size // devices_per_gcd
        for devices_per_gcd in sorted(
            family.gcd_sizes or range(1, smallest_block + 1), reverse=True
        )
        if all(block.size % devices_per_gcd == 0 for block in partition_record.blocks)
        and (
            partition_record.open_replicas
            or partition_record.num_replicas % (partition_size // devices_per_gcd) == 0
        )
    ]
    if gcd_count not in possible_gcd_counts:
        raise InvalidRequest(
            f"the {partition_size} devices of partition {partition_record.name} do not divide into "
            f"{gcd_count} GCDs",
            operation=action,
            would_work=f"use {' or '.join(map(str, possible_gcd_counts))} GCDs",
            num_gcds=gcd_count,
            nearest=possible_gcd_counts,
        )
    if replica_count < 1 or replica_count % gcd_count or partition_size % replica_count:
        raise InvalidRequest(
            f"{replica_count} replicas do not divide evenly over the {partition_size} devices of "
            f"partition {partition_record.name} in {gcd_count} GCDs",
            operation=action,
            would_work=f"use {gcd_count} replicas, or a multiple that divides {partition_size}",
            num_replicas=replica_count,
        )
