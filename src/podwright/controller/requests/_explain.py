"""Why a request cannot start now, and what would: told on demand, and in every refusal.

What stands in the way is one dictionary of plain data, the `data` of NoCapacity; the explanation
is the same in one value, with sentences. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from podwright.controller.requests._reserve import end_of
from podwright.controller.requests._spec import to_request
from podwright.controller.state._caller import Caller
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._cutoff import in_words as fence_in_words
from podwright.errors import PodwrightError
from podwright.placement import Placement, Refusal
from podwright.wire import Explanation, PartitionSpec, ReadyState, Standing

if TYPE_CHECKING:
    from podwright.controller.state._controller_state import ControllerState
    from podwright.controller.state._partition_index import Entry
    from podwright.controller.state._records import PartitionRecord

SHOWN: Final = 5  #: partitions that a refusal names, the largest first


def _who(waiter: str) -> str:
    """A waiter of the server's own queue by its id, or a scheduler's job as it is named."""
    return waiter if " of " in waiter else f"waiter {waiter}"


def in_the_way(
    state: ControllerState,
    cluster: IndexedCluster,
    spec: PartitionSpec,
    refusal: Refusal,
    owner: str,
) -> dict[str, Any]:
    """What stands in the way of `owner`'s request, and the nearest that would start at once."""
    obstructing = [
        entry
        for entry in state.partitions.values()
        if (record := entry.record) is not None
        and record.cluster == cluster.layout.name
        and spec.allocation in ("", record.allocation)
    ]
    obstructing.sort(key=lambda entry: (-entry.known.size, entry.name))
    named = [entry for entry in obstructing if state.sight.partition_to(owner, entry.known)][:SHOWN]
    own = [m for m in cluster.machines() if _is_in(cluster, m, spec.allocation)]
    reserved = [
        reservation
        for (cluster_name, allocation), reservation in state.reservations.items()
        if cluster_name == cluster.layout.name and spec.allocation in ("", allocation)
    ]
    size = spec.size or len(spec.devices)
    near = nearest(state, spec, refusal.largest)
    return {
        "cluster": cluster.layout.name,
        "free": refusal.free,
        "largest": refusal.largest,
        "fragmented": refusal.free >= size,
        "partitions": [_standing(state, entry) for entry in named],
        "more_partitions": len(obstructing) - len(named),
        "down": [m for m in own if m in state.down],
        "drained": [m for m in own if m in cluster.drained and m not in state.down],
        "kept_for": sorted(
            reservation.waiter
            for reservation in reserved
            if state.sight.waiter_to(owner, reservation.owner)
        ),
        "kept_for_others": sum(
            not state.sight.waiter_to(owner, reservation.owner) for reservation in reserved
        ),
        "nearest": msgspec.to_builtins(near) if near else None,
    }


def nearest(state: ControllerState, spec: PartitionSpec, largest: int) -> PartitionSpec | None:
    """The request nearest to this one that would start now: the same size first."""
    for other in _variants(spec, largest):
        for cluster in state.inventory.clusters.values():
            if (
                other.cluster in ("", cluster.layout.name)
                and (not other.allocation or other.allocation in cluster.allocations)
                and isinstance(cluster.index.plan(to_request(other, cluster.layout)), Placement)
            ):
                return other
    return None


def _variants(spec: PartitionSpec, largest: int) -> Iterator[PartitionSpec]:
    def changed(**changes: Any) -> PartitionSpec:
        return msgspec.structs.replace(spec, **changes)

    size = spec.size or len(spec.devices)
    if spec.devices:
        yield changed(devices=[], size=size)
    if spec.num_ilds:
        yield changed(devices=[], size=size, num_ilds=0)
    if not spec.num_ilds and spec.num_gcds != 1 and not spec.reconfigurable:
        for domains in (2, 4):  # the same in parts, where the whole is not free
            yield changed(devices=[], size=size, num_ilds=domains)
    if spec.allocation or spec.cluster:
        yield changed(devices=[], size=size, allocation="", cluster="")
    if 0 < largest < size:
        fits = max(1, min(spec.num_gcds, largest)) if spec.num_gcds else 0
        yield changed(devices=[], size=largest, num_gcds=fits, num_replicas=0, num_ilds=0)
        yield changed(devices=[], size=largest, num_gcds=0, num_replicas=0, num_ilds=0)


def in_words(spec: PartitionSpec, near: Mapping[str, Any] | None) -> str:
    """What would work now, as a phrase for an error."""
    if near is None:
        return "remove a partition, or wait in the queue (vipu create partition … --wait)"
    suggestion = msgspec.convert(near, PartitionSpec)
    words = f"a size of {suggestion.size}"
    size = spec.size or len(spec.devices)
    if suggestion.size == size and suggestion.num_ilds not in (0, spec.num_ilds):
        words += f" over {suggestion.num_ilds} link domains"
    elif suggestion.size == size and spec.devices:
        words += " on other devices"
    elif suggestion.size == size and (spec.allocation or spec.cluster):
        words += " elsewhere, without the allocation and the cluster,"
    return f"{words} would start now; or wait in the queue (vipu create partition … --wait)"


def of_error(action: str, error: PodwrightError) -> Explanation:
    """The explanation of a refusal."""
    data = error.data
    near = data.get("nearest")
    return Explanation(
        asked=action,
        problem=error.problem,
        would_work=error.would_work,
        lines=lines_of(data),
        free=data.get("free", 0),
        largest=data.get("largest", 0),
        fragmented=data.get("fragmented", False),
        partitions=[msgspec.convert(p, Standing) for p in data.get("partitions", ())],
        down=data.get("down", []),
        drained=data.get("drained", []),
        kept_for=data.get("kept_for", []),
        nearest=msgspec.convert(near, PartitionSpec) if isinstance(near, dict) else None,
    )


def lines_of(data: Mapping[str, Any]) -> list[str]:
    """The obstacles of a request, one sentence each."""
    lines = []
    if data.get("fragmented"):
        free, largest = data["free"], data["largest"]
        lines.append(f"{free} are free, but scattered: the largest block is of {largest}")
    for raw in data.get("partitions", ()):
        p = msgspec.convert(raw, Standing)
        holders = f", held by {' and '.join(p.holders)}" if p.holders else ""
        ends_in = f", said to end in {p.ends_in:.0f} s" if p.ends_in else ""
        lines.append(f"partition {p.partition} of {p.owner} has {p.size}{holders}{ends_in}")
    if more := data.get("more_partitions"):
        lines.append(f"{more} other partitions have some, too")
    for key, words in (
        ("down", "does not answer"),
        ("drained", "is drained"),
    ):
        lines += [f"machine {machine} {words}" for machine in data.get(key, ())]
    lines += [f"devices are kept for {_who(waiter)}" for waiter in data.get("kept_for", ())]
    if hidden_waiters := data.get("kept_for_others"):
        lines.append(f"devices are kept for {other_waiters(hidden_waiters)}")
    return lines


def other_waiters(count: int) -> str:
    """The number of waiters whose ids a caller may not see, in words."""
    return "another who waits" if count == 1 else f"{count} others who wait"


def of_partition(state: ControllerState, entry: Entry, caller: Caller) -> Explanation:
    """How a partition stands: who holds it, who waits for it, and what is wrong with it."""
    record = entry.known
    lines = [f"it is {record.ready.value}, and {record.operation.value}"]
    lines += list(record.errors)
    for lease in entry.leases.values():
        lease_record = lease.record
        part = (
            "all of it"
            if lease_record.count == record.size
            else f"{lease_record.count} of its {record.size} devices"
        )
        remaining = max(0.0, lease.expires - state.now())
        lines.append(
            f"lease {lease_record.id}: {lease_record.holder or lease_record.owner} holds {part}, "
            f"renewed for {remaining:.0f} s"
        )
        if lease_record.id in state.moves:
            lines.append(
                f"it is asked to move within {max(0.0, lease.move_until - state.now()):.0f} s"
            )
        elif lease.move_seconds and record.movable:
            lines.append(f"it can be moved, and loses {lease.move_seconds:g} s by that")
    for fence in entry.fences.values():
        lines.append(fence_in_words(state, entry, fence))
        lines.append(
            "its devices are nobody's until then; where nothing of it runs any more, an "
            f"administrator may say so: vipu remove lease {fence.id} --force"
        )
    end, known = end_of(record, state.now())
    if known:
        lines.append(f"its creator said that it ends in {end - state.now():.0f} s")
    for reservation in state.reservations.values():
        if entry.name in reservation.goal.partitions:
            seen = state.sight.waiter(caller, reservation.owner)
            lines.append(f"{_who(reservation.waiter) if seen else 'another'} waits for its devices")
    if entry.cluster is not None:
        machines = list(entry.parts())
        lines += [f"machine {m} does not answer" for m in machines if m in state.down]
        lines += [f"machine {m} is drained" for m in machines if m in entry.cluster.drained]
    in_use = bool(entry.leases or entry.fences)
    silent = entry.cluster is None or not state.down.isdisjoint(entry.machines)
    free = not in_use and record.ready is ReadyState.ACTIVE and not silent
    if free:
        lines.append("nobody holds it: a launch can have it at once")
    elif not in_use:
        lines.append("nobody holds it, and no launch can have it as it is")
    return Explanation(asked=f"partition {entry.name}", lines=lines, starts_now=free)


def _standing(state: ControllerState, entry: Entry) -> dict[str, Any]:
    record: PartitionRecord = entry.known
    end, known = end_of(record, state.now())
    return {
        "partition": record.name,
        "owner": record.owner,
        "size": record.size,
        "holders": [lease.record.holder or lease.record.owner for lease in entry.leases.values()],
        "ends_in": round(end - state.now(), 1) if known else 0.0,
    }


def _is_in(cluster: IndexedCluster, machine: str, allocation: str) -> bool:
    return not allocation or machine in cluster.allocations.get(allocation, ())
