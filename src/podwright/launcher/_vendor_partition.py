"""A partition from a controller that has no leases: Graphcore's own, by its user protocol alone.

What Podwright's server does in one step is done here in several, as PopRun does it (guide, section
2.8.3): look, create or replace, ask until it is ACTIVE, reset. Nobody is kept from taking the same
partition meanwhile, and one that was made for a launch stays if `poprun` is killed.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import msgspec

from podwright.client import Client
from podwright.errors import InvalidRequest, NotFound, PodwrightError, WrongState
from podwright.wire import AcquireRequest, PartitionInfo, ReadyState


class PartitionWish(NamedTuple):
    """What is to be done about a partition. name: of the one to use. unfit: what does not fit."""

    name: str
    found: PartitionInfo | None
    unfit: str = ""


def look(client: Client, request: AcquireRequest) -> PartitionWish:
    """What there is for a request. Raises what stands in the way for good."""
    spec = request.spec
    if request.parent:
        raise InvalidRequest(
            "PODWRIGHT_LEASE names a lease, and this controller has none",
            would_work="Name the server that gave it",
        )
    there = client.list_partitions(allocation=spec.allocation)
    if not spec.name and len(there) > 1:
        names = ", ".join(p.name for p in there[:10])
        raise InvalidRequest(
            f"there are several partitions: {names}", would_work="Name one: --vipu-partition NAME"
        )
    name = spec.name or (there[0].name if there else "")
    found = next((p for p in there if p.name == name), None)
    if found is None:
        if not (request.create or request.update):
            raise NotFound(f"there is no partition {name or 'to use'}")
        return PartitionWish(name or f"run-{os.urandom(3).hex()}", None)
    unfit = _unfit(found, request)
    if unfit and not request.update:
        raise WrongState(
            f"partition {name} does not fit: {unfit}",
            would_work="Let it be replaced with --update-partition=yes, or ask for what it has",
        )
    return PartitionWish(name, client.get_partition(name), unfit)


def borrow(client: Client, request: AcquireRequest) -> tuple[PartitionInfo, bool]:
    """The partition, ACTIVE, and whether it was made by this call.

    Raises WrongState if it does not become so; one that was made for it is then removed.
    """
    wish = look(client, request)
    if wish.found is not None and wish.unfit:
        client.remove_partition(wish.name)
    if wish.found is None or wish.unfit:
        spec = msgspec.structs.replace(request.spec, name=wish.name)
        made = client.create_partition(spec)
        try:
            return _active(made), True
        except PodwrightError:
            client.remove_partition(wish.name, force=True)
            raise
    found = wish.found
    reset = request.reset if request.reset is not None else not found.reconfigurable
    if reset or found.ready_state is not ReadyState.ACTIVE:
        found = client.reset_partition(wish.name)
    return _active(found), False


def would_borrow(client: Client, request: AcquireRequest) -> tuple[bool, list[str]]:
    """Whether `borrow` can work, as far as can be told without trying."""
    try:
        wish = look(client, request)
    except (NotFound, WrongState) as error:
        return False, [error.message]
    if wish.found is None:
        return True, [
            f"partition {wish.name} would be created",
            "whether devices are free, this controller does not tell",
        ]
    if wish.unfit:
        return True, [f"partition {wish.name} does not fit ({wish.unfit}), and would be replaced"]
    return True, [
        f"partition {wish.name} fits; whether somebody uses it, this controller does not tell"
    ]


def _active(found: PartitionInfo) -> PartitionInfo:
    if found.ready_state is ReadyState.ACTIVE:
        return found
    why = f": {'; '.join(found.errors)}" if found.errors else ""
    raise WrongState(f"partition {found.name} is {found.ready_state.value}{why}")


def _unfit(found: PartitionInfo, request: AcquireRequest) -> str:
    """What does not fit, in words. Of a reconfigurable partition a part is enough."""
    spec = request.spec
    wanted = [("devices", found.size, spec.size), ("ILDs", found.num_ilds, spec.num_ilds)]
    wanted += [("GCDs", found.num_gcds, spec.num_gcds)]
    wanted += [("replicas", found.num_replicas, spec.num_replicas)]
    if found.reconfigurable:
        enough = spec.size <= found.size and spec.num_gcds <= 1
        return "" if enough else f"{found.size} devices and 1 GCD instead of {spec.size}"
    return ", ".join(
        f"{has} {what} instead of {need}" for what, has, need in wanted if need not in (0, has)
    )
