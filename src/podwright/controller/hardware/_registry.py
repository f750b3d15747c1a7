"""Agents and clusters that an administrator defined: their records, and how they come to life.

They are read before partitions are, and stand beside the clusters that the server was started
with, which are not in here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import msgspec

from podwright.agents import Driver, MachineReport
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._records import Record, decode
from podwright.errors import InvalidRequest, NotFound, WrongState
from podwright.fabric import Cluster, family_named, rule_name
from podwright.store import Delete, Put

AGENT: Final = "agent"
CLUSTER: Final = "cluster"
_META, _FLOOR = "meta", "epoch-floor"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class ConnectAgent(Protocol):
    """Makes the driver of an agent. certificate: the number of the one that it must have."""

    def __call__(self, name: str, host: str, port: int, *, certificate: str) -> Driver: ...


class AgentRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A registered agent. chips: the ids of its devices, in their order, when it was.

    certificate: the number of the one that is believed, if only one is.
    """

    name: str
    host: str
    port: int
    family: str
    chips: tuple[str, ...] = ()
    certificate: str = ""


class ClusterRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A cluster that was made of agents."""

    cluster: Cluster


@dataclass
class Known:
    """An agent in memory. last_seen: by the store's clock, 0 for never. refused: why it must not
    serve although it answers."""

    record: AgentRecord
    last_seen: float = 0.0
    software: str = ""
    refused: str = ""
    links: Mapping[str, str] | None = field(default=None)


class Registry:
    """All agents, and which clusters are ours to change."""

    def __init__(self, state: ControllerState, connect: ConnectAgent) -> None:
        self._state = state
        self._connect = connect
        self.agents: dict[str, Known] = {}
        self.clusters: set[str] = set()
        state.hardware.accept = self.accept

    def load(self, records: Mapping[tuple[str, str], bytes]) -> None:
        """Take over what is written, before anything else is."""
        floor = records.get((_META, _FLOOR))
        self._state.epochs.floor = msgspec.json.decode(floor, type=int) if floor else 0
        for (kind, _), body in sorted(records.items()):
            if kind == AGENT:
                self.add(decode(AgentRecord, body))
        for (kind, _), body in sorted(records.items()):
            if kind == CLUSTER:
                cluster = decode(ClusterRecord, body).cluster
                # A family's rules are the program's, not the store's.
                ours = replace(cluster, family=family_named(cluster.family.name) or cluster.family)
                if ours.name not in self._state.inventory.clusters:
                    self.begin_cluster(ours)

    def driver(self, name: str, host: str, port: int, certificate: str) -> Driver:
        """What drives the agent at an address. Raises InvalidRequest."""
        return self._connect(name, host, port, certificate=certificate)

    def add(self, record: AgentRecord) -> Known:
        """An agent that is registered, durable or about to be."""
        driver = self.driver(record.name, record.host, record.port, record.certificate)
        self._state.hardware.add(record.name, driver)
        known = self.agents[record.name] = Known(record)
        return known

    def begin_cluster(self, layout: Cluster) -> IndexedCluster:
        """A cluster serves from now on."""
        inventory = self._state.inventory
        cluster = inventory.clusters[layout.name] = IndexedCluster(layout, {})
        inventory.by_machine.update(dict.fromkeys(cluster.places, cluster))
        self.clusters.add(layout.name)
        return cluster

    def end_cluster(self, name: str) -> None:
        """A cluster is no more; its machines serve nobody."""
        state = self._state
        for machine in state.inventory.clusters.pop(name).places:
            del state.inventory.by_machine[machine]
            state.down.discard(machine)
        self.clusters.discard(name)

    def accept(self, machine: str, report: MachineReport) -> None:
        """Called with each report of a machine. Raises WrongState for one that is not what it was.

        A machine whose devices were exchanged may have been cabled anew as well: somebody has to
        say that it is right.
        """
        known = self.agents.get(machine)
        if known is None:
            return
        known.last_seen = self._state.now()
        known.software = report.software
        known.links = report.links
        known.refused = difference(known.record, report)
        if known.refused:
            raise WrongState(
                f"machine {machine} has other hardware: {known.refused}",
                would_work=f"vipu-admin create agent {machine} --replace, if that is right",
                machine=machine,
            )

    def agent(self, name: str, action: str) -> Known:
        """A registered agent. Raises NotFound."""
        known = self.agents.get(name)
        if known is None:
            have = ", ".join(sorted(self.agents)[:8]) or "none"
            raise NotFound(
                f"there is no agent {name}",
                operation=action,
                would_work=f"vipu-admin create agent {name} --host HOST first; there are: {have}",
                agent=name,
            )
        return known


def difference(record: AgentRecord, report: MachineReport) -> str:
    """What of a machine is not as it was registered; empty if all is."""
    if report.name and report.name != record.name:
        return f"its agent says that it is {report.name}"
    if report.family and report.family != record.family:
        return f"its devices are of family {report.family}, not {record.family}"
    chips = chips_of(report)
    if len(chips) != len(record.chips):
        return f"it has {len(chips)} devices, not {len(record.chips)}"
    for index, (now, then) in enumerate(zip(chips, record.chips, strict=True)):
        if now != then:
            return f"device {index} is {now}, not {then}"
    return ""


def chips_of(report: MachineReport) -> tuple[str, ...]:
    """The ids of a machine's devices, in their order."""
    return tuple(d.chip_id for d in sorted(report.devices, key=lambda d: d.index))


def check_name(kind: str, name: str) -> None:
    """Raises InvalidRequest for what is not a name of an agent, a cluster or a user."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name[:80]!r} is not a name of {kind}",
            would_work="use letters, digits and . _ - in it, 63 at most",
        )


def put_agent(record: AgentRecord) -> Put:
    """The change that writes an agent."""
    return Put(AGENT, record.name, msgspec.json.encode(record))


def put_floor(floor: int) -> Put:
    """The change that writes how far the epochs of these devices had come under another store."""
    return Put(_META, _FLOOR, msgspec.json.encode(floor))


def put_cluster(cluster: Cluster) -> Put:
    """The change that writes a cluster."""
    body = msgspec.json.encode(ClusterRecord(cluster=cluster), enc_hook=rule_name)
    return Put(CLUSTER, cluster.name, body)


def drop_agent(name: str) -> Delete:
    """The change that forgets an agent."""
    return Delete(AGENT, name)


def drop_cluster(name: str) -> Delete:
    """The change that forgets a cluster."""
    return Delete(CLUSTER, name)
