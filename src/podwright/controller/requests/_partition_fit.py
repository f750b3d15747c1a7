"""Compares an existing partition with a request (PopRun guide 2.8.3). Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from podwright.controller.requests._pool_hosts import short_name
from podwright.controller.state._records import PartitionRecord
from podwright.wire import PartitionSpec


class PropertyMismatch(NamedTuple):
    """One property that does not fit."""

    property: str
    has: str
    wanted: str


def differences(
    record: PartitionRecord, spec: PartitionSpec, launch_hosts: Sequence[str] = ()
) -> list[PropertyMismatch]:
    """The properties that do not fit; empty if the partition fits.

    Zero or empty in the spec means that anything will do; what the partition's creator left open is
    made to fit (`_gcd_division`). Of a reconfigurable partition a subset is enough, but it is one
    GCD in one link domain. launch_hosts: the hosts of the launch that wants it, in order. A pool's
    devices must be attached to these.
    """
    found_differences: list[PropertyMismatch] = []

    def differ(property_name: str, actual_value: object, wanted_value: object) -> None:
        if actual_value != wanted_value:
            found_differences.append(
                PropertyMismatch(property_name, str(actual_value), str(wanted_value))
            )

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
    hosts = spec.hosts or launch_hosts
    if hosts and record.hosts and [*map(short_name, hosts)] != [*map(short_name, record.hosts)]:
        differ("hosts", " ".join(record.hosts), " ".join(hosts))
    elif spec.hosts and not record.hosts:
        differ("hosts", "none", " ".join(spec.hosts))
    return found_differences


def in_words(mismatches: list[PropertyMismatch]) -> str:
    """The differences as one phrase."""
    return ", ".join(
        f"{mismatch.property} {mismatch.has} instead of {mismatch.wanted}"
        for mismatch in mismatches
    )
