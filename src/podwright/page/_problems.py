"""What needs somebody's attention: problems of a snapshot, each with its cause and a command. Pure.

A problem is visible to those who may see the things it concerns: the snapshot holds only what the
caller may see, and it is the only input. The server's own conditions are in it for administrators
alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, get_args

import msgspec

#: Seconds after which a request that waits without a known end is a problem.
STARVES_SECONDS: Final = 3600
_Topics = Mapping[str, Mapping[str, Any]]
#: Whom a problem stops, the gravest first: everybody; those whose work is lost or stands still;
#: nobody now.
Gravity = Literal["everybody", "work", "later"]


class PodProblem(msgspec.Struct, frozen=True):
    """A problem that needs somebody's attention.

    kind: one of `PROBLEM_FINDERS`. about: the name of the thing. text: what is wrong. cause: why,
    as far as it is known. command: what to type next. link: the page's view of the thing. since:
    seconds since 1970; 0: not known. machine, partition: the
    owner of the devices that have the problem, if it concerns devices. devices: the keys of the
    affected devices, where they are fewer than all of the machine.
    """

    kind: str
    about: str
    text: str
    cause: str
    command: str
    link: str = ""
    since: int = 0
    gravity: Gravity = "work"
    machine: str = ""
    partition: str = ""
    devices: list[str] = []


def problems(topics: _Topics, now: float) -> dict[str, object]:
    """Return all problems, the gravest first. Keys are `kind/about`, and of further ones of one
    kind and thing `kind/about/2` and so on.

    topics: a snapshot. now: seconds since 1970.
    """
    all_problems = [
        problem
        for find_problems in PROBLEM_FINDERS.values()
        for problem in find_problems(topics, now)
    ]
    all_problems.sort(key=lambda problem: get_args(Gravity).index(problem.gravity))
    keys: Counter[str] = Counter()
    found: dict[str, object] = {}
    for problem in all_problems:
        key = f"{problem.kind}/{problem.about}"
        keys[key] += 1
        found[f"{key}/{keys[key]}" if keys[key] > 1 else key] = msgspec.to_builtins(problem)
    return found


def problems_shown(found: Mapping[str, object], limit: int) -> dict[str, object]:
    """Return so many problems: the first of each kind, then the gravest."""
    kinds = dict.fromkeys(key.partition("/")[0] for key in found)
    firsts = [next(key for key in found if key.startswith(f"{kind}/")) for kind in kinds]
    shown = set(list(dict.fromkeys([*firsts, *found]))[:limit])
    return {key: problem for key, problem in found.items() if key in shown}


def _matching_machines(
    topics: _Topics, machine_test: Callable[[Mapping[str, Any]], bool]
) -> Iterator[Any]:
    for name, machine in topics.get("machines", {}).items():
        if machine_test(machine):
            yield name, machine


def _has_wrong_key(machine: Mapping[str, Any]) -> bool:
    return machine["state"] == "DOWN" and str(machine["reason"]).startswith("wrong key")


def _silent_machine_problems(topics: _Topics, _: float) -> Iterator[PodProblem]:
    silent_machines = _matching_machines(
        topics,
        lambda machine_item: machine_item["state"] == "DOWN" and not _has_wrong_key(machine_item),
    )
    for machine_name, machine in silent_machines:
        lost_partitions = _partitions_on(topics, machine_name)
        cause = machine["reason"] or "its agent is silent"
        if lost_partitions:
            cause += f"; partitions on it: {_owned_partitions_text(topics, lost_partitions)}"
        yield PodProblem(
            "silent-agent",
            machine_name,
            f"Machine {machine_name} does not answer",
            cause,
            _ssh_command_text(machine["host"], f"systemctl restart vipu-agent@{machine_name}"),
            f"/machines?find={machine_name}",
            machine.get("since", 0),
            machine=machine_name,
        )
    yield from _down_without_cause(topics)


def _down_without_cause(topics: _Topics) -> Iterator[PodProblem]:
    """Yield machines that are down, for callers who may not see why (`--private-data agents`)."""
    machines = topics.get("machines", {})
    for cluster in topics.get("clusters", {}).values():
        for machine_name in cluster["down"]:
            if machine_name in machines:
                continue
            lost_partitions = _partitions_on(topics, machine_name)
            cause = "administrators see the cause"
            if lost_partitions:
                cause += f"; partitions on it: {_owned_partitions_text(topics, lost_partitions)}"
            yield PodProblem(
                "silent-agent",
                machine_name,
                f"Machine {machine_name} is down",
                cause,
                "vipu list devices",
                f"/pod?find={machine_name}",
                machine=machine_name,
            )


def _wrong_key_problems(topics: _Topics, _: float) -> Iterator[PodProblem]:
    for machine_name, machine in _matching_machines(topics, _has_wrong_key):
        yield PodProblem(
            "wrong-key",
            machine_name,
            f"The agent of machine {machine_name} does not accept this server",
            machine["reason"],
            _ssh_command_text(
                machine["host"], f"vipu-agent --machine {machine_name} --agent-key FILE"
            ),
            f"/machines?find={machine_name}",
            machine.get("since", 0),
            machine=machine_name,
        )


def _refused_machine_problems(topics: _Topics, _: float) -> Iterator[PodProblem]:
    for machine_name, machine in _matching_machines(
        topics, lambda machine_item: machine_item["state"] == "REFUSED"
    ):
        yield PodProblem(
            "refused-machine",
            machine_name,
            f"The server does not use machine {machine_name}",
            machine["reason"],
            "vipu-admin list agents",
            f"/machines?find={machine_name}",
            machine=machine_name,
        )


def _drained_machines(
    topics: _Topics, in_use: bool
) -> Iterator[tuple[str, list[str], Mapping[str, Any]]]:
    for cluster in topics.get("clusters", {}).values():
        for name in cluster["drained"]:
            partition_names = _partitions_on(topics, name)
            if bool(partition_names) == in_use:
                yield name, partition_names, cluster["drains"].get(name, {})


def _drained_used_problems(topics: _Topics, _: float) -> Iterator[PodProblem]:
    for machine_name, partition_names, drain in _drained_machines(topics, in_use=True):
        yield PodProblem(
            "drained-used",
            machine_name,
            f"Machine {machine_name} is drained and still in use",
            f"{_drain_text(drain)}; it waits for "
            f"{_owned_partitions_text(topics, partition_names)} to end",
            f"vipu get partition {partition_names[0]}",
            f"/machines?find={machine_name}",
            drain.get("at", 0),
            gravity="later",
            machine=machine_name,
        )


def _drained_empty_problems(topics: _Topics, _: float) -> Iterator[PodProblem]:
    for machine_name, _partitions, drain in _drained_machines(topics, in_use=False):
        device_count = sum(row[0] == machine_name for row in topics.get("devices", {}).values())
        yield PodProblem(
            "drained-empty",
            machine_name,
            f"Machine {machine_name} is drained and empty: {device_count} devices are out of "
            "service",
            _drain_text(drain),
            f"vipu-admin resume machine {machine_name}",
            f"/machines?find={machine_name}",
            drain.get("at", 0),
            gravity="later",
            machine=machine_name,
        )


def _partition_error_problems(topics: _Topics, _: float) -> Iterator[PodProblem]:
    for partition_name, partition in topics.get("partitions", {}).items():
        if partition["state"] == "ERROR":
            text = f" of {partition['owner']}" if partition["owner"] else ""
            yield PodProblem(
                "partition-error",
                partition_name,
                f"Partition {partition_name}{text} is in error",
                "; ".join(partition["errors"][:2]) or "no cause is recorded",
                f"vipu reset partition {partition_name}",
                f"/partitions/{partition_name}",
                partition=partition_name,
            )


def _fence_problems(topics: _Topics, _: float) -> Iterator[PodProblem]:
    for lease_id, lease in topics.get("leases", {}).items():
        if lease["state"] == "FENCING" and not lease["parent"]:
            partition = lease["partition"]
            holder = lease["holder"] or lease["owner"] or "a launch"
            yield PodProblem(
                "fence",
                lease_id,
                f"The devices of partition {partition} are fenced",
                f"{holder} ended without word; waits for "
                f"{_shortened_list_text(lease['waits_for'] or ['time'])}",
                f"vipu get partition {partition}",
                f"/partitions/{partition}",
                partition=partition,
            )


def _ill_device_problems(topics: _Topics, _: float) -> Iterator[PodProblem]:
    down_machines = {name for item in topics.get("clusters", {}).values() for name in item["down"]}
    ill_by_machine: dict[tuple[str, str], dict[str, Any]] = {}
    for key, device_row in topics.get("devices", {}).items():
        if device_row[2] == "DOWN" and device_row[0] not in down_machines:
            ill_by_machine.setdefault((key.partition("/")[0], device_row[0]), {})[key] = device_row
    for (cluster, machine_name), ill_devices in ill_by_machine.items():
        device_rows = ill_devices.values()
        device_numbers = ", ".join(str(row[1]) for row in device_rows)
        affected_partitions = sorted({row[3] for row in device_rows if row[3]})
        cause = f"its driver reports device {device_numbers} as not healthy"
        yield PodProblem(
            "ill-device",
            machine_name,
            f"Device {device_numbers} of machine {machine_name} is ill",
            f"{cause}; in use by {_owned_partitions_text(topics, affected_partitions)}"
            if affected_partitions
            else cause,
            f"vipu-admin test cluster {cluster}",
            f"/machines?find={machine_name}",
            machine=machine_name,
            devices=list(ill_devices),
        )


def _starving_waiter_problems(topics: _Topics, now: float) -> Iterator[PodProblem]:
    for waiter_id, waiter in topics.get("waiters", {}).items():
        start_known = waiter["starts"] > now
        if (
            waiter["state"] == "WAITING"
            and now - waiter["since"] >= STARVES_SECONDS
            and not start_known
        ):
            owner_text = f" of {waiter['owner']}" if waiter["owner"] else ""
            yield PodProblem(
                "starving",
                waiter_id,
                f"Request {waiter_id}{owner_text} waits with no end in sight",
                waiter["needs"] or waiter["asked"],
                f"vipu explain {waiter_id}",
                f"/pod?way={waiter_id}",
                waiter["since"],
            )


def _server_conditions(topics: _Topics) -> Mapping[str, Any]:
    server_conditions: Mapping[str, Any] = topics.get("server", {}).get("server", {})
    return server_conditions


def _full_disk_problem(topics: _Topics, _: float) -> Iterator[PodProblem]:
    if cause := _server_conditions(topics).get("read_only", ""):
        yield PodProblem(
            "full-disk",
            "server",
            "The server is read only: nothing can be changed",
            cause,
            "df -h",
            gravity="everybody",
        )


def _fabric_problem(topics: _Topics, _: float) -> Iterator[PodProblem]:
    if fabric := _server_conditions(topics).get("fabric"):
        kind, cause = fabric
        yield PodProblem(
            "fabric",
            kind,
            f"{kind} cannot be read: nobody sees whether partitions are still isolated",
            cause,
            "podwright doctor",
        )


def _no_standby_problem(topics: _Topics, _: float) -> Iterator[PodProblem]:
    if _server_conditions(topics).get("standbys") == 0:
        yield PodProblem(
            "no-standby",
            "server",
            "No second server stands by",
            "this server shares its store, and no other one waits to take over",
            "systemctl start vipu-server",
            gravity="later",
        )


def _silent_scheduler_problems(topics: _Topics, _: float) -> Iterator[PodProblem]:
    for scheduler_name, silent_since in (
        _server_conditions(topics).get("silent_schedulers", {}).items()
    ):
        yield PodProblem(
            "scheduler-away",
            scheduler_name,
            f"The service of scheduler {scheduler_name} is away",
            "it has not reported its queue; its jobs get no devices meanwhile",
            "systemctl status podwright-slurm",
            "/line",
            silent_since,
        )


def _cable_problems(topics: _Topics, _: float) -> Iterator[PodProblem]:
    for cable_fault in _server_conditions(topics).get("cabling", ()):
        cluster, machine, problem = cable_fault
        yield PodProblem(
            "cable",
            machine or cluster,
            f"A cable of machine {machine} is not where it should be",
            problem,
            f"vipu-admin test cluster {cluster}",
            f"/machines?find={machine}",
            machine=machine,
        )


#: By kind: the function that finds such problems.
PROBLEM_FINDERS: Final[Mapping[str, Callable[[_Topics, float], Iterable[PodProblem]]]] = {
    "full-disk": _full_disk_problem,
    "fabric": _fabric_problem,
    "silent-agent": _silent_machine_problems,
    "wrong-key": _wrong_key_problems,
    "refused-machine": _refused_machine_problems,
    "partition-error": _partition_error_problems,
    "fence": _fence_problems,
    "ill-device": _ill_device_problems,
    "cable": _cable_problems,
    "scheduler-away": _silent_scheduler_problems,
    "starving": _starving_waiter_problems,
    "drained-used": _drained_used_problems,
    "drained-empty": _drained_empty_problems,
    "no-standby": _no_standby_problem,
}


def _partitions_on(topics: _Topics, machine: str) -> list[str]:
    device_rows = topics.get("devices", {}).values()
    return sorted({row[3] for row in device_rows if row[0] == machine and row[3]})


def _owned_partitions_text(topics: _Topics, partition_names: Iterable[str]) -> str:
    """Return partitions with their owners, as far as these are known."""
    partitions = topics.get("partitions", {})
    return _shortened_list_text(
        f"{name} of {owner}" if (owner := partitions.get(name, {}).get("owner")) else name
        for name in partition_names
    )


def _drain_text(drain: Mapping[str, Any]) -> str:
    who = f"drained by {drain['who']}" if drain.get("who") else "drained"
    return f"{who}: {drain['reason']}" if drain.get("reason") else f"{who}, without a reason"


def _shortened_list_text(listed_names: Iterable[str], limit: int = 4) -> str:
    all_names = list(listed_names)
    suffix = f" and {len(all_names) - limit} more" if len(all_names) > limit else ""
    return ", ".join(all_names[:limit]) + suffix


def _ssh_command_text(host: str, command: str) -> str:
    return f"ssh {host} {command}" if host else command
