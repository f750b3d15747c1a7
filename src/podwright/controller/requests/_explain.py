"""Why a request cannot start now, and what would: told on demand, and in every refusal.

What stands in the way is one dictionary of plain data, the `data` of NoCapacity; the explanation
is the same in one value, with sentences. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from podwright.controller.requests._reserve_devices import end_of
from podwright.controller.requests._spec import to_request
from podwright.controller.state._caller import Caller
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._process_cutoff import in_words as fence_in_words
from podwright.errors import PodwrightError
from podwright.ground.plural import span
from podwright.placement import Placement, Refusal
from podwright.wire import Explanation, PartitionSpec, ReadyState, Standing

if TYPE_CHECKING:
    from podwright.controller.state._controller_state import ControllerState
    from podwright.controller.state._partition_index import PartitionEntry
    from podwright.controller.state._records import PartitionRecord

MAX_SHOWN_PARTITIONS: Final = 5  #: partitions that a refusal names, the largest first


def _waiter_in_words(waiter_name: str) -> str:
    """A waiter of the server's own queue by its id, or a scheduler's job as it is named."""
    return waiter_name if " of " in waiter_name else f"waiter {waiter_name}"


def in_the_way(
    state: ControllerState,
    cluster: IndexedCluster,
    spec: PartitionSpec,
    refusal: Refusal,
    owner: str,
) -> dict[str, Any]:
    """What stands in the way of `owner`'s request, and the nearest that would start at once."""
    cluster_name = cluster.layout.name
    largest_entries = (
        state.partitions.largest(cluster_name, spec.allocation)
        if state.sight.user_sees_all_partitions
        else _own_entries(state, cluster_name, spec.allocation, owner)
    )
    named_entries = list(islice(largest_entries, MAX_SHOWN_PARTITIONS))
    obstructing_count = state.partitions.count_in(cluster_name, spec.allocation)
    out_of_service = sorted(
        (machine for machine in state.down | cluster.drained if machine in cluster.places),
        key=cluster.places.__getitem__,
    )
    allocation_machines = [
        machine
        for machine in out_of_service
        if _is_in_allocation(cluster, machine, spec.allocation)
    ]
    reservations = [
        reservation
        for (name, allocation), reservation in state.reservations.items()
        if name == cluster.layout.name and spec.allocation in ("", allocation)
    ]
    requested_size = spec.size or len(spec.devices)
    nearest_spec = nearest(state, spec, refusal.largest)
    return {
        "cluster": cluster.layout.name,
        "free": refusal.free,
        "largest": refusal.largest,
        "fragmented": refusal.free >= requested_size,
        "partitions": [_partition_standing(state, entry) for entry in named_entries],
        "more_partitions": obstructing_count - len(named_entries),
        "down": [machine for machine in allocation_machines if machine in state.down],
        "drained": [
            machine
            for machine in allocation_machines
            if machine in cluster.drained and machine not in state.down
        ],
        "drain_reasons": {
            machine: reason
            for machine in allocation_machines
            if machine in cluster.drained and (reason := cluster.drains[machine].reason)
        },
        "unhealthy": [
            f"device {index} of machine {machine}"
            for machine in sorted(
                cluster.unhealthy.keys() - state.down, key=cluster.places.__getitem__
            )
            if _is_in_allocation(cluster, machine, spec.allocation)
            for index in sorted(cluster.unhealthy[machine])
        ][:MAX_SHOWN_PARTITIONS],
        "unjoinable": [
            f"device {index} of machine {machine} cannot be joined: {reason}"
            for machine, reasons in cluster.unjoinable.items()
            if _is_in_allocation(cluster, machine, spec.allocation)
            for index, reason in sorted(reasons.items())
        ][:MAX_SHOWN_PARTITIONS],
        "kept_for": sorted(
            reservation.waiter
            for reservation in reservations
            if state.sight.user_sees_waiter(owner, reservation.owner)
        ),
        "kept_for_others": sum(
            not state.sight.user_sees_waiter(owner, reservation.owner)
            for reservation in reservations
        ),
        "nearest": msgspec.to_builtins(nearest_spec) if nearest_spec else None,
    }


def _own_entries(
    state: ControllerState, cluster_name: str, allocation: str, owner: str
) -> list[PartitionEntry]:
    """The partitions in an allocation that its user may be told of, the largest first."""
    own = map(state.partitions.get, state.partitions.of_person(owner))
    entries = [
        entry
        for entry in own
        if entry is not None
        and (record := entry.record) is not None
        and record.cluster == cluster_name
        and allocation in ("", record.allocation)
        and state.sight.user_sees_partition(owner, record)
    ]
    return sorted(entries, key=lambda entry: (-entry.known.size, entry.name))


def nearest(state: ControllerState, spec: PartitionSpec, largest_size: int) -> PartitionSpec | None:
    """The request nearest to this one that would start now: the same size first."""
    for alternative_spec in _alternative_specs(spec, largest_size):
        for cluster in state.inventory.clusters.values():
            if (
                alternative_spec.cluster in ("", cluster.layout.name)
                and (
                    not alternative_spec.allocation
                    or alternative_spec.allocation in cluster.allocations
                )
                and isinstance(
                    cluster.index.plan(to_request(alternative_spec, cluster.layout)), Placement
                )
            ):
                return alternative_spec
    return None


def _alternative_specs(spec: PartitionSpec, largest_size: int) -> Iterator[PartitionSpec]:
    def changed(**changes: Any) -> PartitionSpec:
        return msgspec.structs.replace(spec, **changes)

    requested_size = spec.size or len(spec.devices)
    if spec.devices:
        yield changed(devices=[], size=requested_size)
    if spec.num_ilds:
        yield changed(devices=[], size=requested_size, num_ilds=0)
    if not spec.num_ilds and spec.num_gcds != 1 and not spec.reconfigurable:
        for domain_count in (2, 4):  # the same in parts, where the whole is not free
            yield changed(devices=[], size=requested_size, num_ilds=domain_count)
    if spec.allocation or spec.cluster:
        yield changed(devices=[], size=requested_size, allocation="", cluster="")
    if 0 < largest_size < requested_size:
        gcd_count = max(1, min(spec.num_gcds, largest_size)) if spec.num_gcds else 0
        yield changed(devices=[], size=largest_size, num_gcds=gcd_count, num_replicas=0, num_ilds=0)
        yield changed(devices=[], size=largest_size, num_gcds=0, num_replicas=0, num_ilds=0)


def in_words(spec: PartitionSpec, nearest_data: Mapping[str, Any] | None) -> str:
    """What would work now, as a phrase for an error."""
    if nearest_data is None:
        return "remove a partition, or wait in the queue (vipu create partition … --wait)"
    suggestion = msgspec.convert(nearest_data, PartitionSpec)
    text = f"a size of {suggestion.size}"
    size = spec.size or len(spec.devices)
    if suggestion.size == size and suggestion.num_ilds not in (0, spec.num_ilds):
        text += f" over {suggestion.num_ilds} link domains"
    elif suggestion.size == size and spec.devices:
        text += " on other devices"
    elif suggestion.size == size and (spec.allocation or spec.cluster):
        text += " elsewhere, without the allocation and the cluster,"
    return f"{text} would start now; or wait in the queue (vipu create partition … --wait)"


def explanation_of_error(action: str, error: PodwrightError) -> Explanation:
    """The explanation of a refusal."""
    error_data = error.data
    nearest_data = error_data.get("nearest")
    return Explanation(
        asked=action,
        problem=error.problem,
        would_work=error.would_work,
        lines=lines_of(error_data),
        free=error_data.get("free", 0),
        largest=error_data.get("largest", 0),
        fragmented=error_data.get("fragmented", False),
        partitions=[
            msgspec.convert(partition_data, Standing)
            for partition_data in error_data.get("partitions", ())
        ],
        down=error_data.get("down", []),
        drained=error_data.get("drained", []),
        drain_reasons=error_data.get("drain_reasons", {}),
        kept_for=error_data.get("kept_for", []),
        nearest=msgspec.convert(nearest_data, PartitionSpec)
        if isinstance(nearest_data, dict)
        else None,
    )


def lines_of(error_data: Mapping[str, Any]) -> list[str]:
    """The obstacles of a request, one sentence each."""
    sentences = []
    if error_data.get("fragmented"):
        free_devices, largest_block = error_data["free"], error_data["largest"]
        sentences.append(
            f"{free_devices} are free, but scattered: the largest block is of {largest_block}"
        )
    for partition_data in error_data.get("partitions", ()):
        standing = msgspec.convert(partition_data, Standing)
        holders = f", held by {' and '.join(standing.holders)}" if standing.holders else ""
        end_text = (
            f", ends in {standing.ends_in:.0f} s according to its creator"
            if standing.ends_in
            else ""
        )
        sentences.append(
            f"partition {standing.partition} of {standing.owner} has "
            f"{standing.size}{holders}{end_text}"
        )
    if more_partitions := error_data.get("more_partitions"):
        sentences.append(f"{more_partitions} other partitions have some, too")
    sentences += [f"machine {machine} does not answer" for machine in error_data.get("down", ())]
    reasons = error_data.get("drain_reasons", {})
    sentences += [
        drain_in_words(machine, reasons.get(machine, ""))
        for machine in error_data.get("drained", ())
    ]
    sentences += [f"{device} is unhealthy" for device in error_data.get("unhealthy", ())]
    sentences += error_data.get("unjoinable", ())
    sentences += [
        f"devices are kept for {_waiter_in_words(waiter)}"
        for waiter in error_data.get("kept_for", ())
    ]
    if hidden_waiters := error_data.get("kept_for_others"):
        sentences.append(f"devices are kept for {other_waiters(hidden_waiters)}")
    return sentences


def drain_in_words(machine: str, reason: str) -> str:
    """A sentence about a machine that is drained. reason: may be empty."""
    return f"machine {machine} is drained" + (f": {reason}" if reason else "")


def other_waiters(count: int) -> str:
    """The number of waiters whose ids a caller may not see, in words."""
    return "another who waits" if count == 1 else f"{count} others who wait"


def of_partition(state: ControllerState, entry: PartitionEntry, caller: Caller) -> Explanation:
    """How a partition stands: who holds it, who waits for it, and what is wrong with it."""
    record = entry.known
    sentences = [f"it is {record.ready.value}, and {record.operation.value}"]
    sentences += list(record.errors)
    for lease in entry.leases.values():
        lease_record = lease.record
        held_part = (
            "all of it"
            if lease_record.count == record.size
            else f"{lease_record.count} of its {record.size} devices"
        )
        remaining_seconds = max(0.0, lease.expires - state.now())
        sentences.append(
            f"lease {lease_record.id}: {lease_record.holder or lease_record.owner} holds "
            f"{held_part}, renewed for {remaining_seconds:.0f} s"
        )
        if lease_record.id in state.moves:
            sentences.append(
                f"it is asked to move within {max(0.0, lease.move_until - state.now()):.0f} s"
            )
        elif lease.move_seconds and record.movable:
            sentences.append(f"it can be moved, and loses {lease.move_seconds:g} s by that")
    for fence in entry.fences.values():
        sentences.append(fence_in_words(state, entry, fence))
        sentences.append(
            "nobody gets its devices before that; if nothing of it runs any more, an "
            f"administrator may confirm it: vipu remove lease {fence.id} --force"
        )
    end_time, end_is_announced = end_of(record, state.now())
    if end_is_announced:
        sentences.append(f"its creator said that it ends in {span(end_time - state.now())}")
    for reservation in state.reservations.values():
        if entry.name in reservation.goal.partitions:
            waiter_is_visible = state.sight.waiter(caller, reservation.owner)
            sentences.append(
                f"{_waiter_in_words(reservation.waiter) if waiter_is_visible else 'another'} waits "
                "for its "
                "devices"
            )
    if entry.cluster is not None:
        machines = list(entry.parts())
        sentences += [
            f"machine {machine} does not answer" for machine in machines if machine in state.down
        ]
        sentences += [
            drain_in_words(machine, drain.reason)
            for machine in machines
            if (drain := entry.cluster.drains.get(machine))
        ]
    in_use = bool(entry.leases or entry.fences)
    machine_is_silent = entry.cluster is None or not state.down.isdisjoint(entry.machines)
    starts_now = not in_use and record.ready is ReadyState.ACTIVE and not machine_is_silent
    if starts_now:
        sentences.append("nobody holds it: a launch can have it at once")
    elif not in_use:
        sentences.append("nobody holds it, and no launch can have it as it is")
    return Explanation(asked=f"partition {entry.name}", lines=sentences, starts_now=starts_now)


def _partition_standing(state: ControllerState, entry: PartitionEntry) -> dict[str, Any]:
    record: PartitionRecord = entry.known
    end_time, end_is_announced = end_of(record, state.now())
    return {
        "partition": record.name,
        "owner": record.owner,
        "size": record.size,
        "holders": [lease.record.holder or lease.record.owner for lease in entry.leases.values()],
        "ends_in": round(end_time - state.now(), 1) if end_is_announced else 0.0,
    }


def _is_in_allocation(cluster: IndexedCluster, machine: str, allocation: str) -> bool:
    return not allocation or machine in cluster.allocations.get(allocation, ())
