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
    READING_ATTRIBUTES,
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
#: A pod with more devices is shown by its link domains; devices of one are shown when it is opened.
FOLDED_FROM: Final = 2048
#: The order in which an item of `domains` has its numbers of devices.
DOMAIN_STATES: Final = ("FREE", "IN_USE", "RESERVED", "RESETTING", "DRAINED", "DOWN")
EVENTS: Final = 300  #: the newest events that a page has


async def take(
    ask_server: Ask,
    now: Callable[[], float],
    *,
    topics: Collection[str] = (),
    conditions: Mapping[str, object] | None = None,
) -> dict[str, dict[str, object]]:
    """Return all that a caller may see, with its `problems`.

    topics: only these topics of it, and `fragments`. now: seconds since 1970. conditions: the
    server's own, where the caller may know them.

    Raises wire.PodwrightError. A list that is denied raises nothing; its topic is missing.
    """
    contents: dict[str, dict[str, object]] = {}
    lists_by_topic: dict[str, Any] = {}
    for topic, (list_method, list_field, make_item) in _TOPIC_SOURCES.items():
        if topics and topic not in topics:
            continue
        try:
            list_items = lists_by_topic[topic] = getattr(await ask_server(list_method), list_field)
        except Denied:
            continue
        if topic == "events":
            list_items = list_items[-EVENTS:]
        taken_at = now()
        contents[topic] = dict(make_item(list_item, taken_at) for list_item in list_items)
    wants_readings = not topics or "readings" in topics
    if wants_readings and (readings := dict(_reading_items(lists_by_topic.get("devices", ())))):
        contents["readings"] = readings
    if conditions is not None and not topics:
        contents["server"] = {"server": dict(conditions)}
    if "clusters" in lists_by_topic and "devices" in lists_by_topic:
        contents["fragments"] = dict(
            fragments(lists_by_topic["clusters"], lists_by_topic["devices"])
        )
        if "machines" in contents:
            contents["machines"].update(_without_agent(lists_by_topic, contents["machines"]))
            contents["machines"].update(_with_drains(lists_by_topic, contents["machines"]))
    if not topics:
        contents["problems"] = problems(contents, now())
    return contents


def _without_agent(
    lists_by_topic: Mapping[str, Any], known_machines: Collection[str]
) -> Iterator[tuple[str, object]]:
    """Yield machines of clusters that have no agent: simulated ones, and the server's own."""
    counts = Counter(device_info.device.machine for device_info in lists_by_topic["devices"])
    for cluster in lists_by_topic["clusters"]:
        for machine_name in cluster.machines:
            if machine_name not in known_machines:
                agent_info = AgentInfo(
                    name=machine_name,
                    family=cluster.family,
                    cluster=cluster.name,
                    devices=counts[machine_name],
                    state="DOWN" if machine_name in cluster.down else "UP",
                )
                yield _machine_item(agent_info, 0.0)


def _with_drains(
    lists_by_topic: Mapping[str, Any], machines: Mapping[str, Any]
) -> Iterator[tuple[str, object]]:
    """Yield drained machines for which nothing else is the matter, with the drain's reason."""
    for cluster in lists_by_topic["clusters"]:
        for drain in cluster.drains:
            machine = machines.get(drain.machine)
            if machine is not None and not machine["reason"]:
                reason = f"drained: {drain.reason}" if drain.reason else "drained"
                yield drain.machine, {**machine, "reason": reason}


def domain_item(counts: Mapping[str, int]) -> list[int]:
    """Return an item of `domains`. counts: devices by state."""
    return [counts.get(state, 0) for state in DOMAIN_STATES]


def changes(old_snapshot: Snapshot, new_snapshot: Snapshot) -> Changes:
    """Return the changes for a page that knows `old_snapshot`.

    A topic that is no longer visible becomes None.
    """
    difference: Changes = {}
    for topic, topic_items in new_snapshot.items():
        old_items = old_snapshot.get(topic, {})
        changed_items: dict[str, object] = {
            key: item
            for key, item in topic_items.items()
            if key not in old_items or old_items[key] != item
        }
        changed_items.update((key, None) for key in old_items if key not in topic_items)
        if changed_items or topic not in old_snapshot:
            difference[topic] = changed_items
    for topic in old_snapshot:
        if topic not in new_snapshot:
            difference[topic] = dict.fromkeys(old_snapshot[topic])
    return difference


def _cluster_item(cluster_info: ClusterInfo, _: float) -> tuple[str, object]:
    return cluster_info.name, {
        "family": cluster_info.family,
        "size": cluster_info.size,
        "free": cluster_info.free,
        "domains": cluster_info.ild_sizes,
        "machines": cluster_info.machines,
        "topology": cluster_info.topology,
        "simulated": cluster_info.simulated,
        "drained": cluster_info.drained,
        "drains": {
            drain.machine: {"reason": drain.reason, "who": drain.who, "at": round(drain.at)}
            for drain in cluster_info.drains
        },
        "down": cluster_info.down,
    }


def _machine_item(agent_info: AgentInfo, now: float) -> tuple[str, object]:
    is_silent = agent_info.state == "DOWN" and agent_info.last_seen >= 0
    reason = (
        "its agent is silent" if agent_info.reason.startswith("silent for") else agent_info.reason
    )
    return agent_info.name, {
        "cluster": agent_info.cluster,
        "family": agent_info.family,
        "devices": agent_info.devices,
        "state": agent_info.state,
        "reason": reason,
        # Rounded to ten seconds, so that a value that only counts up is not a change.
        "since": round((now - agent_info.last_seen) / 10) * 10 if is_silent else 0,
        "software": agent_info.software,
        "host": agent_info.host,
    }


def _device_item(device_info: DeviceInfo, _: float) -> tuple[str, object]:
    """Return a device as a list, since a page reads 16,384 lists in a second."""
    ref = device_info.device
    key = f"{device_info.cluster}/{ref.domain}/{ref.offset}"
    row = (
        ref.machine,
        ref.index,
        device_info.state,
        device_info.partition,
        device_info.allocation,
    )
    kept_for = device_info.attributes.get("kept_for")
    return key, (*row, kept_for) if kept_for else row


def _reading_items(devices: Iterable[DeviceInfo]) -> Iterator[tuple[str, object]]:
    """Yield the readings of drivers by device: names and texts.

    Devices without readings are left out.
    """
    for device_info in devices:
        readings = {
            name: device_info.attributes[name]
            for name in READING_ATTRIBUTES & device_info.attributes.keys()
            if device_info.attributes[name]
        }
        if readings:
            yield _device_item(device_info, 0.0)[0], readings


def _partition_item(partition_info: PartitionInfo, _: float) -> tuple[str, object]:
    return partition_info.name, {
        "cluster": partition_info.cluster,
        "allocation": partition_info.allocation,
        "size": partition_info.size,
        "gcds": partition_info.num_gcds,
        "replicas": partition_info.num_replicas,
        "domains": partition_info.ilds,
        "reconfigurable": partition_info.reconfigurable,
        "state": partition_info.ready_state.value,
        "operation": partition_info.operation_state.value,
        "errors": partition_info.errors,
        "owner": partition_info.owner,
        "job": partition_info.job,
        "created": round(partition_info.created_at),
        "until": round(partition_info.until),
        "resets": partition_info.auto_reset_count,
    }


def _lease_item(lease_info: LeaseInfo, _: float) -> tuple[str, object]:
    return lease_info.id, {
        "partition": lease_info.partition,
        "holder": lease_info.holder,
        "owner": lease_info.owner,
        "state": lease_info.state,
        "epoch": lease_info.epoch,
        "parent": lease_info.parent,
        "hosts": lease_info.hosts,
        "waits_for": lease_info.waits_for,
        "move": bool(lease_info.move),
    }


def _move_item(move_row: MoveRow, _: float) -> tuple[str, object]:
    return move_row.partition, {
        "owner": move_row.owner,
        "size": move_row.size,
        "asked": move_row.state == "ASKED",
        "waiter": move_row.waiter,
        "to": move_row.to,
    }


def _waiter_item(waiter_info: WaiterInfo, now: float) -> tuple[str, object]:
    return waiter_info.id, {
        "place": waiter_info.place,
        "owner": waiter_info.owner,
        "state": waiter_info.state,
        "asked": waiter_info.asked,
        "needs": waiter_info.needs,
        "priority": waiter_info.priority,
        "since": round(waiter_info.since),
        "starts": _start_time(waiter_info.estimate, now),
        "reserved": waiter_info.reserved,
    }


def _start_time(estimate_seconds: float, now: float) -> int:
    """Return when a request can start, in seconds since 1970; 0: not known.

    It is rounded to the minute, since an estimate moves a little with every reading.
    """
    return round((now + estimate_seconds) / 60.0) * 60 if estimate_seconds else 0


def _job_item(job_info: JobInfo, now: float) -> tuple[str, object]:
    return f"{job_info.scheduler}/{job_info.id}", {
        "place": job_info.place,
        "scheduler": job_info.scheduler,
        "job": job_info.id,
        "owner": job_info.owner,
        "asked": job_info.asked,
        "needs": job_info.needs,
        "priority": job_info.priority,
        "since": round(job_info.since),
        "cluster": job_info.cluster,
        "starts": _start_time(job_info.estimate, now),
        "reserved": job_info.reserved,
    }


def _allocation_item(allocation_info: AllocationInfo, _: float) -> tuple[str, object]:
    return allocation_info.name, {
        "cluster": allocation_info.cluster,
        "size": allocation_info.size,
        "free": allocation_info.free,
        "machines": allocation_info.agents,
        "scheduler": allocation_info.scheduler,
        "owner": allocation_info.owner,
    }


def _quota_item(quota_info: QuotaInfo, _: float) -> tuple[str, object]:
    return f"{quota_info.user or '*'}/{quota_info.allocation or '*'}", {
        "user": quota_info.user,
        "allocation": quota_info.allocation,
        "devices": quota_info.devices,
        "partitions": quota_info.partitions,
        "used_devices": quota_info.used_devices,
        "used_partitions": quota_info.used_partitions,
    }


def _user_item(user_info: UserInfo, _: float) -> tuple[str, object]:
    return user_info.name, {
        "role": user_info.role,
        "allocations": user_info.allocations,
        "created": round(user_info.created_at),
        "certificates_revoked": len(user_info.revoked),
    }


def _event_item(event_info: EventInfo, _: float) -> tuple[str, object]:
    return str(event_info.number), {
        "at": round(event_info.at, 3),
        "who": event_info.who,
        "what": event_info.what,
        "about": event_info.about,
        "outcome": event_info.outcome,
        "detail": event_info.detail,
    }


#: The method that lists a topic, the list's field, and a function that returns an item's key and
#: value.
_TOPIC_SOURCES: Final[dict[str, tuple[str, str, Callable[[Any, float], tuple[str, object]]]]] = {
    "clusters": ("ListClusters", "clusters", _cluster_item),
    "machines": ("ListAgents", "agents", _machine_item),
    "allocations": ("ListAllocations", "allocations", _allocation_item),
    "devices": ("ListDevices", "devices", _device_item),
    "partitions": ("ListPartitions", "partitions", _partition_item),
    "leases": ("ListLeases", "leases", _lease_item),
    "moves": ("ShowMoves", "moves", _move_item),
    "waiters": ("ListWaiters", "waiters", _waiter_item),
    "jobs": ("ListJobs", "jobs", _job_item),
    "quotas": ("ListQuotas", "quotas", _quota_item),
    "users": ("ListUsers", "users", _user_item),
    "events": ("ListEvents", "events", _event_item),
}
TOPICS: Final = tuple(_TOPIC_SOURCES)
#: The tables of which a folded pod is shown a part at a time, and the method that lists each.
TABLE_TOPICS: Final = {
    topic: _TOPIC_SOURCES[topic][0] for topic in ("partitions", "leases", "machines")
}
