"""Takes a partition from a controller without leases: Graphcore's own, by its user protocol alone.

Podwright's server does this in one step. Here it takes several steps, as in PopRun (guide, section
2.8.3): look, create or replace, poll until it is ACTIVE, reset. Nothing keeps others from taking
the same partition meanwhile. A partition that was made for a launch stays if `poprun` is killed.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

import msgspec

from podwright.client import Client
from podwright.errors import InvalidRequest, NotFound, PodwrightError, WrongState
from podwright.wire import AcquireRequest, PartitionInfo, ReadyState


class PartitionMatch(NamedTuple):
    """The partition for a request. name: the one to use. partition: None if it does not exist.

    unfit: what does not fit, or empty.
    """

    name: str
    partition: PartitionInfo | None
    unfit: str = ""


def match_partition(client: Client, request: AcquireRequest) -> PartitionMatch:
    """Find the partition for a request. Raises the error that makes the request impossible."""
    spec = request.spec
    if request.parent:
        raise InvalidRequest(
            "PODWRIGHT_LEASE names a lease, and this controller has none",
            would_work="Name the server that gave it",
        )
    partitions = client.list_partitions(allocation=spec.allocation)
    if not spec.name and len(partitions) > 1:
        partition_names = ", ".join(candidate.name for candidate in partitions[:10])
        raise InvalidRequest(
            f"there are several partitions: {partition_names}",
            would_work="Name one: --vipu-partition NAME",
        )
    partition_name = spec.name or (partitions[0].name if partitions else "")
    partition = next(
        (candidate for candidate in partitions if candidate.name == partition_name), None
    )
    if partition is None:
        if not (request.create or request.update):
            raise NotFound(f"there is no partition {partition_name or 'to use'}")
        return PartitionMatch(partition_name or f"run-{os.urandom(3).hex()}", None)
    mismatch = _misfit_text(partition, request)
    if mismatch and not request.update:
        raise WrongState(
            f"partition {partition_name} does not fit: {mismatch}",
            would_work="Let it be replaced with --update-partition=yes, or ask for what it has",
        )
    return PartitionMatch(partition_name, client.get_partition(partition_name), mismatch)


def borrow_partition(client: Client, request: AcquireRequest) -> tuple[PartitionInfo, bool]:
    """Return the ACTIVE partition, and whether this call made it.

    Raises WrongState if it does not become ACTIVE; a partition that this call made is then removed.
    """
    match = match_partition(client, request)
    if match.partition is not None and match.unfit:
        client.remove_partition(match.name)
    if match.partition is None or match.unfit:
        spec = msgspec.structs.replace(request.spec, name=match.name)
        try:
            created = client.create_partition(spec)
        except PodwrightError:
            raise
        except BaseException:
            # An interrupted call may have created it. Nobody else draws the same name.
            if not request.spec.name:
                with contextlib.suppress(PodwrightError):
                    client.remove_partition(match.name, force=True)
            raise
        try:
            return _require_active(created), True
        except BaseException:
            client.remove_partition(match.name, force=True)
            raise
    partition = match.partition
    must_reset = request.reset if request.reset is not None else not partition.reconfigurable
    if must_reset or partition.ready_state is not ReadyState.ACTIVE:
        partition = client.reset_partition(match.name)
    return _require_active(partition), False


def would_borrow_partition(client: Client, request: AcquireRequest) -> tuple[bool, list[str]]:
    """Return whether `borrow_partition` can work, as far as can be known without trying."""
    try:
        match = match_partition(client, request)
    except (NotFound, WrongState) as error:
        return False, [error.message]
    if match.partition is None:
        return True, [
            f"partition {match.name} would be created",
            "whether devices are free, this controller does not tell",
        ]
    if match.unfit:
        return True, [f"partition {match.name} does not fit ({match.unfit}), and would be replaced"]
    return True, [
        f"partition {match.name} fits; whether somebody uses it, this controller does not tell"
    ]


def _require_active(partition: PartitionInfo) -> PartitionInfo:
    if partition.ready_state is ReadyState.ACTIVE:
        return partition
    text = f": {'; '.join(partition.errors)}" if partition.errors else ""
    raise WrongState(f"partition {partition.name} is {partition.ready_state.value}{text}")


def _misfit_text(partition: PartitionInfo, request: AcquireRequest) -> str:
    """Return what does not fit, in words. A part of a reconfigurable partition is enough."""
    spec = request.spec
    comparisons = [
        ("devices", partition.size, spec.size),
        ("ILDs", partition.num_ilds, spec.num_ilds),
    ]
    comparisons += [("GCDs", partition.num_gcds, spec.num_gcds)]
    comparisons += [("replicas", partition.num_replicas, spec.num_replicas)]
    if partition.reconfigurable:
        is_enough = spec.size <= partition.size and spec.num_gcds <= 1
        return "" if is_enough else f"{partition.size} devices and 1 GCD instead of {spec.size}"
    return ", ".join(
        f"{actual_value} {noun} instead of {needed_value}"
        for noun, actual_value, needed_value in comparisons
        if needed_value not in (0, actual_value)
    )
