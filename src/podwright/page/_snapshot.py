"""What a page shows at one moment, and what is different a moment later. Pure data.

Topics by name, items by key, each item a value that JSON can hold. What only counts down is left
out or made a point in time, so that nothing changes where nothing happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Any, Final

from podwright.errors import Denied
from podwright.page._still_fits import fragments
from podwright.wire import (
    AgentInfo,
    AllocationInfo,
    ClusterInfo,
    DeviceInfo,
    EventInfo,
    JobInfo,
    LeaseInfo,
    MoveRow,
    PartitionInfo,
    QuotaInfo,
    UserInfo,
    WaiterInfo,
)

#: By topic, then by key.
Snapshot = Mapping[str, Mapping[str, object]]
#: As a snapshot; None stands for what has gone.
Changes = dict[str, dict[str, object]]
#: Asks for one of the server's lists, whole, by the method's name. Raises wire.PodwrightError.
Ask = Callable[[str], Awaitable[Any]]

FRAGMENT_TOPICS: Final = ("clusters", "devices", "waiters")
EVENTS: Final = 300  #: newest events that a page has


async def take(
    ask: Ask, now: Callable[[], float], *, topics: Collection[str] = ()
) -> dict[str, dict[str, object]]:
    """All that a caller may see, or these topics of it and `fragments`. now: seconds since 1970.

    Raises wire.PodwrightError, but not for lists that are denied: those topics are missing."""
    found: dict[str, dict[str, object]] = {}
    lists: dict[str, Any] = {}
    for topic, (method, field, item) in _TOPICS.items():
        if topics and topic not in topics:
            continue
        try:
            listed = lists[topic] = getattr(await ask(method), field)
        except Denied:
            continue
        if topic == "events":
            listed = listed[-EVENTS:]
        at = now()
        found[topic] = dict(item(value, at) for value in listed)
    if "clusters" in lists and "devices" in lists:
        waiters = lists.get("waiters", ())
        found["fragments"] = dict(fragments(lists["clusters"], lists["devices"], waiters))
        if "machines" in found:
            found["machines"].update(_without_agent(lists, found["machines"]))
    return found


def _without_agent(
    lists: Mapping[str, Any], known: Collection[str]
) -> Iterator[tuple[str, object]]:
    """Machines of clusters for which no agent speaks: simulated ones, and the server's own."""
    devices = Counter(value.device.machine for value in lists["devices"])
    for cluster in lists["clusters"]:
        for name in cluster.machines:
            if name not in known:
                info = AgentInfo(
                    name=name,
                    family=cluster.family,
                    cluster=cluster.name,
                    devices=devices[name],
                    state="DOWN" if name in cluster.down else "UP",
                )
                yield _machine(info, 0.0)


def changes(before: Snapshot, after: Snapshot) -> Changes:
    """What has to be told to one who knows `before`. A topic that is seen no more is None whole."""
    told: Changes = {}
    for topic, items in after.items():
        old = before.get(topic, {})
        new: dict[str, object] = {
            key: item for key, item in items.items() if key not in old or old[key] != item
        }
        new.update((key, None) for key in old if key not in items)
        if new or topic not in before:
            told[topic] = new
    for topic in before:
        if topic not in after:
            told[topic] = dict.fromkeys(before[topic])
    return told


def _cluster(value: ClusterInfo, _: float) -> tuple[str, object]:
    return value.name, {
        "family": value.family,
        "size": value.size,
        "free": value.free,
        "domains": value.ild_sizes,
        "machines": value.machines,
        "topology": value.topology,
        "simulated": value.simulated,
        "drained": value.drained,
        "down": value.down,
    }


def _machine(value: AgentInfo, _: float) -> tuple[str, object]:
    return value.name, {
        "cluster": value.cluster,
        "family": value.family,
        "devices": value.devices,
        "state": value.state,
        "reason": value.reason,
        "software": value.software,
        "host": value.host,
    }


def _device(value: DeviceInfo, _: float) -> tuple[str, object]:
    """A list, not a table: a page of 16,384 of them is read in a second."""
    ref = value.device
    where = f"{value.cluster}/{ref.domain}/{ref.offset}"
    row = (ref.machine, ref.index, value.state, value.partition, value.allocation)
    kept_for = value.attributes.get("kept_for")
    return where, (*row, kept_for) if kept_for else row


def _partition(value: PartitionInfo, _: float) -> tuple[str, object]:
    return value.name, {
        "cluster": value.cluster,
        "allocation": value.allocation,
        "size": value.size,
        "gcds": value.num_gcds,
        "replicas": value.num_replicas,
        "domains": value.ilds,
        "reconfigurable": value.reconfigurable,
        "state": value.ready_state.value,
        "operation": value.operation_state.value,
        "errors": value.errors,
        "owner": value.owner,
        "job": value.job,
        "created": round(value.created_at),
        "until": round(value.until),
        "resets": value.auto_reset_count,
    }


def _lease(value: LeaseInfo, _: float) -> tuple[str, object]:
    return value.id, {
        "partition": value.partition,
        "holder": value.holder,
        "owner": value.owner,
        "state": value.state,
        "epoch": value.epoch,
        "parent": value.parent,
        "hosts": value.hosts,
        "waits_for": value.waits_for,
        "move": bool(value.move),
    }


def _move(value: MoveRow, _: float) -> tuple[str, object]:
    return value.partition, {
        "owner": value.owner,
        "size": value.size,
        "asked": value.state == "ASKED",
        "waiter": value.waiter,
        "to": value.to,
    }


def _waiter(value: WaiterInfo, now: float) -> tuple[str, object]:
    # To the minute: an estimate moves a little with every look.
    starts = round((now + value.estimate) / 60.0) * 60 if value.estimate else 0
    return value.id, {
        "place": value.place,
        "owner": value.owner,
        "state": value.state,
        "asked": value.asked,
        "needs": value.needs,
        "priority": value.priority,
        "since": round(value.since),
        "starts": starts,
        "reserved": value.reserved,
    }


def _job(value: JobInfo, _: float) -> tuple[str, object]:
    return f"{value.scheduler}/{value.id}", {
        "place": value.place,
        "scheduler": value.scheduler,
        "job": value.id,
        "owner": value.owner,
        "asked": value.asked,
        "needs": value.needs,
        "priority": value.priority,
        "since": round(value.since),
        "cluster": value.cluster,
    }


def _allocation(value: AllocationInfo, _: float) -> tuple[str, object]:
    return value.name, {
        "cluster": value.cluster,
        "size": value.size,
        "free": value.free,
        "machines": value.agents,
        "scheduler": value.scheduler,
        "owner": value.owner,
    }


def _quota(value: QuotaInfo, _: float) -> tuple[str, object]:
    return f"{value.user or '*'}/{value.allocation or '*'}", {
        "user": value.user,
        "allocation": value.allocation,
        "devices": value.devices,
        "partitions": value.partitions,
        "used_devices": value.used_devices,
        "used_partitions": value.used_partitions,
    }


def _user(value: UserInfo, _: float) -> tuple[str, object]:
    return value.name, {
        "role": value.role,
        "allocations": value.allocations,
        "created": round(value.created_at),
        "certificates_revoked": len(value.revoked),
    }


def _event(value: EventInfo, _: float) -> tuple[str, object]:
    return str(value.number), {
        "at": round(value.at, 3),
        "who": value.who,
        "what": value.what,
        "about": value.about,
        "outcome": value.outcome,
        "detail": value.detail,
    }


#: The method that lists it, the list's field, and one item: its key and its value.
_TOPICS: Final[dict[str, tuple[str, str, Callable[[Any, float], tuple[str, object]]]]] = {
    "clusters": ("ListClusters", "clusters", _cluster),
    "machines": ("ListAgents", "agents", _machine),
    "allocations": ("ListAllocations", "allocations", _allocation),
    "devices": ("ListDevices", "devices", _device),
    "partitions": ("ListPartitions", "partitions", _partition),
    "leases": ("ListLeases", "leases", _lease),
    "moves": ("ShowMoves", "moves", _move),
    "waiters": ("ListWaiters", "waiters", _waiter),
    "jobs": ("ListJobs", "jobs", _job),
    "quotas": ("ListQuotas", "quotas", _quota),
    "users": ("ListUsers", "users", _user),
    "events": ("ListEvents", "events", _event),
}
TOPICS: Final = tuple(_TOPICS)
