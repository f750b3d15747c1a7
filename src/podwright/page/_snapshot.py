"""What a page shows at one moment, and what has changed a moment later. Pure data.

Topics are by name, items by key, and each item is a value that JSON can hold. Values that only
count down are left out or turned into a point in time, so that nothing changes where nothing
happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from podwright.errors import Denied
from podwright.page._problems import problems
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
#: As a snapshot; None stands for an item that has gone.
Changes = dict[str, dict[str, object]]
#: Returns one of the server's lists, whole, by the method's name. Raises wire.PodwrightError.
Ask = Callable[[str], Awaitable[Any]]

FRAGMENT_TOPICS: Final = ("clusters", "devices")
#: Attributes of a device that its driver measures, in the order in which the page shows them.
READINGS: Final = (
    "load", "memory used", "power", "temperature", "ecc errors", "row remapping", "last xid",
    "problems",
)  # fmt: skip
EVENTS: Final = 300  #: the newest events that a page has


async def take(
    ask: Ask,
    now: Callable[[], float],
    *,
    topics: Collection[str] = (),
    conditions: Mapping[str, object] | None = None,
    other_pods: Mapping[str, object] | None = None,
) -> dict[str, dict[str, object]]:
    """Return all that a caller may see, with its `problems`.

    topics: only these topics of it, and `fragments`. now: seconds since 1970. conditions: the
    server's own, where the caller may know them. other_pods: by name, with address and health.

    Raises wire.PodwrightError. A list that is denied raises nothing; its topic is missing.
    """
    contents: dict[str, dict[str, object]] = {}
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
        taken_at = now()
        contents[topic] = dict(item(value, taken_at) for value in listed)
    wanted = not topics or "readings" in topics
    if wanted and (readings := dict(_readings(lists.get("devices", ())))):
        contents["readings"] = readings
    if conditions is not None and not topics:
        contents["server"] = {"server": dict(conditions)}
    if other_pods and not topics:
        contents["pods"] = dict(other_pods)
    if "clusters" in lists and "devices" in lists:
        contents["fragments"] = dict(fragments(lists["clusters"], lists["devices"]))
        if "machines" in contents:
            contents["machines"].update(_without_agent(lists, contents["machines"]))
    if not topics:
        contents["problems"] = problems(contents, now())
    return contents


def _without_agent(
    lists: Mapping[str, Any], known: Collection[str]
) -> Iterator[tuple[str, object]]:
    """Yield machines of clusters that have no agent: simulated ones, and the server's own."""
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
    """Return the changes for a page that knows `before`.

    A topic that is no longer visible becomes None.
    """
    difference: Changes = {}
    for topic, items in after.items():
        old = before.get(topic, {})
        new: dict[str, object] = {
            key: item for key, item in items.items() if key not in old or old[key] != item
        }
        new.update((key, None) for key in old if key not in items)
        if new or topic not in before:
            difference[topic] = new
    for topic in before:
        if topic not in after:
            difference[topic] = dict.fromkeys(before[topic])
    return difference


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


def _machine(value: AgentInfo, now: float) -> tuple[str, object]:
    silent = value.state == "DOWN" and value.last_seen >= 0
    reason = "its agent is silent" if value.reason.startswith("silent for") else value.reason
    return value.name, {
        "cluster": value.cluster,
        "family": value.family,
        "devices": value.devices,
        "state": value.state,
        "reason": reason,
        # Rounded to ten seconds, so that a value that only counts up is not a change.
        "since": round((now - value.last_seen) / 10) * 10 if silent else 0,
        "software": value.software,
        "host": value.host,
    }


def _device(value: DeviceInfo, _: float) -> tuple[str, object]:
    """Return a device as a list, since a page reads 16,384 lists in a second."""
    ref = value.device
    where = f"{value.cluster}/{ref.domain}/{ref.offset}"
    row = (ref.machine, ref.index, value.state, value.partition, value.allocation)
    kept_for = value.attributes.get("kept_for")
    return where, (*row, kept_for) if kept_for else row


def _readings(devices: Iterable[DeviceInfo]) -> Iterator[tuple[str, object]]:
    """Yield the readings of drivers by device: names and texts.

    Devices without readings are left out.
    """
    for value in devices:
        readings = {name: value.attributes[name] for name in READINGS if value.attributes.get(name)}
        if readings:
            yield _device(value, 0.0)[0], readings


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
    return value.id, {
        "place": value.place,
        "owner": value.owner,
        "state": value.state,
        "asked": value.asked,
        "needs": value.needs,
        "priority": value.priority,
        "since": round(value.since),
        "starts": _starts(value.estimate, now),
        "reserved": value.reserved,
    }


def _starts(estimate: float, now: float) -> int:
    """Return when a request can start, in seconds since 1970; 0: not known.

    It is rounded to the minute, since an estimate moves a little with every reading.
    """
    return round((now + estimate) / 60.0) * 60 if estimate else 0


def _job(value: JobInfo, now: float) -> tuple[str, object]:
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
        "starts": _starts(value.estimate, now),
        "reserved": value.reserved,
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


#: The method that lists a topic, the list's field, and a function that returns an item's key and
#: value.
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
