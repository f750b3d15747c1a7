"""What needs somebody's attention: problems of a snapshot, each with its cause and a command. Pure.

A problem is visible to those who may see the things it concerns: the snapshot holds only what the
caller may see, and it is the only input. The server's own conditions are in it for administrators
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

STARVES: Final = 3600  #: seconds after which a request that waits without a known end is a problem
_Topics = Mapping[str, Mapping[str, Any]]


class PodProblem(msgspec.Struct, frozen=True):
    """A problem that needs somebody's attention.

    kind: one of `KINDS`. about: the name of the thing. text: what is wrong. cause: why, as far as
    it is known. command: what to type next. link: the page's view of the thing. since: seconds
    since 1970; 0: not known. urgent: work is lost or stands still. machine, partition: the owner of
    the devices that have the problem, if it concerns devices. devices: the keys of the affected
    devices, where they are fewer than all of the machine.
    """

    kind: str
    about: str
    text: str
    cause: str
    command: str
    link: str = ""
    since: int = 0
    urgent: bool = True
    machine: str = ""
    partition: str = ""
    devices: list[str] = []


def problems(topics: _Topics, now: float) -> dict[str, object]:
    """Return all problems by `kind/about`, the urgent ones first.

    topics: a snapshot. now: seconds since 1970.
    """
    unsorted = [problem for check in KINDS.values() for problem in check(topics, now)]
    unsorted.sort(key=lambda problem: not problem.urgent)
    return {f"{p.kind}/{p.about}": msgspec.to_builtins(p) for p in unsorted}


def _machines(topics: _Topics, test: Callable[[Mapping[str, Any]], bool]) -> Iterator[Any]:
    for name, machine in topics.get("machines", {}).items():
        if test(machine):
            yield name, machine


def _unknown(machine: Mapping[str, Any]) -> bool:
    return machine["state"] == "DOWN" and str(machine["reason"]).startswith("wrong key")


def _silent(topics: _Topics, _: float) -> Iterator[PodProblem]:
    silent_machines = _machines(topics, lambda m: m["state"] == "DOWN" and not _unknown(m))
    for name, machine in silent_machines:
        lost = _partitions_on(topics, name)
        cause = machine["reason"] or "its agent is silent"
        if lost:
            cause += f"; partitions on it: {_listed(lost)}"
        yield PodProblem(
            "silent-agent", name, f"Machine {name} does not answer", cause,
            _at(machine["host"], f"systemctl restart vipu-agent@{name}"),
            f"/machines?find={name}", machine.get("since", 0), machine=name,
        )  # fmt: skip
    yield from _down_without_cause(topics)


def _down_without_cause(topics: _Topics) -> Iterator[PodProblem]:
    """Yield machines that are down, for callers who may not see why (`--private-data agents`)."""
    machines = topics.get("machines", {})
    for cluster in topics.get("clusters", {}).values():
        for name in cluster["down"]:
            if name in machines:
                continue
            lost = _partitions_on(topics, name)
            cause = "administrators see the cause"
            if lost:
                cause += f"; partitions on it: {_listed(lost)}"
            yield PodProblem(
                "silent-agent", name, f"Machine {name} is down", cause,
                "vipu list devices", f"/pod?find={name}", machine=name,
            )  # fmt: skip


def _wrong_key(topics: _Topics, _: float) -> Iterator[PodProblem]:
    for name, machine in _machines(topics, _unknown):
        yield PodProblem(
            "wrong-key", name, f"The agent of machine {name} does not accept this server",
            machine["reason"],
            _at(machine["host"], f"vipu-agent --machine {name} --agent-key FILE"),
            f"/machines?find={name}", machine.get("since", 0), machine=name,
        )  # fmt: skip


def _refused(topics: _Topics, _: float) -> Iterator[PodProblem]:
    for name, machine in _machines(topics, lambda m: m["state"] == "REFUSED"):
        yield PodProblem(
            "refused-machine", name, f"The server does not use machine {name}",
            machine["reason"], "vipu-admin list agents",
            f"/machines?find={name}", machine=name,
        )  # fmt: skip


def _drained(topics: _Topics, used: bool) -> Iterator[tuple[str, list[str], Mapping[str, Any]]]:
    for cluster in topics.get("clusters", {}).values():
        for name in cluster["drained"]:
            partitions = _partitions_on(topics, name)
            if bool(partitions) == used:
                yield name, partitions, _drain_event(topics, name)


def _drained_used(topics: _Topics, _: float) -> Iterator[PodProblem]:
    for name, partitions, event in _drained(topics, used=True):
        yield PodProblem(
            "drained-used", name, f"Machine {name} is drained and still in use",
            f"{_drainer(event)}; it waits for {_listed(partitions)} to end",
            f"vipu get partition {partitions[0]}", f"/machines?find={name}",
            round(event.get("at", 0)), urgent=False, machine=name,
        )  # fmt: skip


def _drained_empty(topics: _Topics, _: float) -> Iterator[PodProblem]:
    for name, _partitions, event in _drained(topics, used=False):
        count = sum(row[0] == name for row in topics.get("devices", {}).values())
        yield PodProblem(
            "drained-empty", name,
            f"Machine {name} is drained and empty: {count} devices are out of service",
            f"{_drainer(event)}; nothing runs there any more",
            f"vipu-admin resume machine {name}", f"/machines?find={name}",
            round(event.get("at", 0)), urgent=False, machine=name,
        )  # fmt: skip


def _partition_error(topics: _Topics, _: float) -> Iterator[PodProblem]:
    for name, partition in topics.get("partitions", {}).items():
        if partition["state"] == "ERROR":
            owner = f" of {partition['owner']}" if partition["owner"] else ""
            yield PodProblem(
                "partition-error", name, f"Partition {name}{owner} is in error",
                "; ".join(partition["errors"][:2]) or "no cause is recorded",
                f"vipu reset partition {name}", f"/partitions/{name}", partition=name,
            )  # fmt: skip


def _fence(topics: _Topics, _: float) -> Iterator[PodProblem]:
    for name, lease in topics.get("leases", {}).items():
        if lease["state"] == "FENCING" and not lease["parent"]:
            partition = lease["partition"]
            holder = lease["holder"] or lease["owner"] or "a launch"
            yield PodProblem(
                "fence", name, f"The devices of partition {partition} are fenced",
                f"{holder} ended without word; waits for {_listed(lease['waits_for'] or ['time'])}",
                f"vipu get partition {partition}", f"/partitions/{partition}", partition=partition,
            )  # fmt: skip


def _ill_devices(topics: _Topics, _: float) -> Iterator[PodProblem]:
    down_machines = {name for c in topics.get("clusters", {}).values() for name in c["down"]}
    ill: dict[tuple[str, str], dict[str, Any]] = {}
    for key, row in topics.get("devices", {}).items():
        if row[2] == "DOWN" and row[0] not in down_machines:
            ill.setdefault((key.partition("/")[0], row[0]), {})[key] = row
    for (cluster, name), devices in ill.items():
        rows = devices.values()
        numbers = ", ".join(str(row[1]) for row in rows)
        used = sorted({row[3] for row in rows if row[3]})
        cause = f"its driver reports device {numbers} as not healthy"
        yield PodProblem(
            "ill-device", name, f"Device {numbers} of machine {name} is ill",
            f"{cause}; in use by {_listed(used)}" if used else cause,
            f"vipu-admin test cluster {cluster}", f"/machines?find={name}",
            machine=name, devices=list(devices),
        )  # fmt: skip


def _starving(topics: _Topics, now: float) -> Iterator[PodProblem]:
    for name, waiter in topics.get("waiters", {}).items():
        known = waiter["starts"] > now
        if waiter["state"] == "WAITING" and now - waiter["since"] >= STARVES and not known:
            who = f" of {waiter['owner']}" if waiter["owner"] else ""
            yield PodProblem(
                "starving", name, f"Request {name}{who} waits with no end in sight",
                waiter["needs"] or waiter["asked"], f"vipu explain {name}",
                f"/pod?way={name}", waiter["since"],
            )  # fmt: skip


def _conditions(topics: _Topics) -> Mapping[str, Any]:
    condition: Mapping[str, Any] = topics.get("server", {}).get("server", {})
    return condition


def _disk(topics: _Topics, _: float) -> Iterator[PodProblem]:
    if cause := _conditions(topics).get("read_only", ""):
        yield PodProblem(
            "full-disk", "server", "The server is read only: nothing can be changed", cause, "df -h"
        )


def _no_standby(topics: _Topics, _: float) -> Iterator[PodProblem]:
    if _conditions(topics).get("standbys") == 0:
        yield PodProblem(
            "no-standby", "server", "No second server stands by",
            "this server shares its store, and no other one waits to take over",
            "systemctl start vipu-server", urgent=False,
        )  # fmt: skip


def _scheduler_away(topics: _Topics, _: float) -> Iterator[PodProblem]:
    for name, since in _conditions(topics).get("silent_schedulers", {}).items():
        yield PodProblem(
            "scheduler-away", name, f"The service of scheduler {name} is away",
            "it has not reported its queue; its jobs get no devices meanwhile",
            "systemctl status podwright-slurm", "/line", since,
        )  # fmt: skip


def _cables(topics: _Topics, _: float) -> Iterator[PodProblem]:
    for fault in _conditions(topics).get("cabling", ()):
        cluster, machine, problem = fault
        yield PodProblem(
            "cable", machine or cluster, f"A cable of machine {machine} is not where it should be",
            problem, f"vipu-admin test cluster {cluster}", f"/machines?find={machine}",
            machine=machine,
        )  # fmt: skip


#: By kind: the function that finds such problems.
KINDS: Final[Mapping[str, Callable[[_Topics, float], Iterable[PodProblem]]]] = {
    "full-disk": _disk,
    "silent-agent": _silent,
    "wrong-key": _wrong_key,
    "refused-machine": _refused,
    "partition-error": _partition_error,
    "fence": _fence,
    "ill-device": _ill_devices,
    "cable": _cables,
    "scheduler-away": _scheduler_away,
    "starving": _starving,
    "drained-used": _drained_used,
    "drained-empty": _drained_empty,
    "no-standby": _no_standby,
}


def _partitions_on(topics: _Topics, machine: str) -> list[str]:
    rows = topics.get("devices", {}).values()
    return sorted({row[3] for row in rows if row[0] == machine and row[3]})


def _drain_event(topics: _Topics, machine: str) -> Mapping[str, Any]:
    """Return the last event that drained the machine, if it is still among the listed events."""
    newest: Mapping[str, Any] = {}
    for event in topics.get("events", {}).values():
        drained = (event["what"], event["outcome"]) == ("DrainMachine", "OK")
        if drained and machine in event["about"].split():
            newest = event
    return newest


def _drainer(event: Mapping[str, Any]) -> str:
    return f"drained by {event['who']}" if event else "drained"


def _listed(names: Iterable[str], limit: int = 4) -> str:
    known = list(names)
    more = f" and {len(known) - limit} more" if len(known) > limit else ""
    return ", ".join(known[:limit]) + more


def _at(host: str, command: str) -> str:
    return f"ssh {host} {command}" if host else command
