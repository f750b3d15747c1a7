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

from podwright.agents import Driver, MachineReport, repeated
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._records import Record, decode
from podwright.errors import InvalidRequest, NotFound, WrongState
from podwright.fabric import Cluster, family_named, rule_name
from podwright.store import Delete, Put

AGENT: Final = "agent"
CLUSTER: Final = "cluster"
_META_KIND, _EPOCH_FLOOR_KEY = "meta", "epoch-floor"

_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


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
        epoch_floor = records.get((_META_KIND, _EPOCH_FLOOR_KEY))
        self._state.epochs.floor = msgspec.json.decode(epoch_floor, type=int) if epoch_floor else 0
        for (record_kind, _), record_body in sorted(records.items()):
            if record_kind == AGENT:
                self.add(decode(AgentRecord, record_body))
        for (record_kind, _), record_body in sorted(records.items()):
            if record_kind == CLUSTER:
                stored_cluster = decode(ClusterRecord, record_body).cluster
                # A family's rules are the program's, not the store's.
                served_cluster = replace(
                    stored_cluster,
                    family=family_named(stored_cluster.family.name) or stored_cluster.family,
                )
                if served_cluster.name not in self._state.inventory.clusters:
                    self.begin_cluster(served_cluster)

    def driver(self, agent_name: str, host: str, port: int, certificate_number: str) -> Driver:
        """What drives the agent at an address. Raises InvalidRequest."""
        return self._connect(agent_name, host, port, certificate=certificate_number)

    def add(self, record: AgentRecord) -> Known:
        """An agent that is registered, durable or about to be."""
        driver = self.driver(record.name, record.host, record.port, record.certificate)
        self._state.hardware.add(record.name, driver)
        agent = self.agents[record.name] = Known(record)
        return agent

    def begin_cluster(self, cluster_layout: Cluster) -> IndexedCluster:
        """A cluster serves from now on."""
        inventory = self._state.inventory
        indexed_cluster = inventory.clusters[cluster_layout.name] = IndexedCluster(
            cluster_layout, {}
        )
        inventory.by_machine.update(dict.fromkeys(indexed_cluster.places, indexed_cluster))
        self.clusters.add(cluster_layout.name)
        return indexed_cluster

    def end_cluster(self, cluster_name: str) -> None:
        """A cluster is no more; its machines serve nobody."""
        state = self._state
        for machine in state.inventory.clusters.pop(cluster_name).places:
            del state.inventory.by_machine[machine]
            state.down.discard(machine)
        self.clusters.discard(cluster_name)

    def accept(self, machine: str, report: MachineReport) -> None:
        """Called with each report of a machine. Raises WrongState for one that is not what it was.

        A machine whose devices were exchanged may have been cabled anew as well: somebody has to
        say that it is right.
        """
        if twins := repeated(str(device.chip_id or "") for device in report.devices):
            raise WrongState(
                f"machine {machine} reports two devices that are {twins[0]}",
                would_work="an agent or driver that names each of them",
                machine=machine,
            )
        registered_agent = self.agents.get(machine)
        if registered_agent is None:
            return
        registered_agent.last_seen = self._state.now()
        registered_agent.software = report.software
        registered_agent.links = report.links
        registered_agent.refused = difference(registered_agent.record, report)
        if registered_agent.refused:
            raise WrongState(
                f"machine {machine} has other hardware: {registered_agent.refused}",
                would_work=f"vipu-admin create agent {machine} --replace, if that is right",
                machine=machine,
            )

    def agent(self, name: str, action: str) -> Known:
        """A registered agent. Raises NotFound."""
        registered_agent = self.agents.get(name)
        if registered_agent is None:
            agent_names = ", ".join(sorted(self.agents)[:8])
            raise NotFound(
                f"there is no agent {name}",
                operation=action,
                would_work=f"vipu-admin create agent {name} --host HOST registers it; "
                + (f"there are: {agent_names}" if agent_names else "no agent is registered"),
                agent=name,
            )
        return registered_agent


def difference(agent_record: AgentRecord, machine_report: MachineReport) -> str:
    """What of a machine is not as it was registered; empty if all is."""
    if machine_report.name and machine_report.name != agent_record.name:
        return f"its agent says that it is {machine_report.name}"
    if machine_report.family and machine_report.family != agent_record.family:
        return f"its devices are of family {machine_report.family}, not {agent_record.family}"
    chips = device_chip_ids(machine_report)
    if len(chips) != len(agent_record.chips):
        return f"it has {len(chips)} devices, not {len(agent_record.chips)}"
    for index, (chip_now, chip_then) in enumerate(zip(chips, agent_record.chips, strict=True)):
        if chip_now != chip_then:
            return f"device {index} is {chip_now}, not {chip_then}"
    return ""


def device_chip_ids(machine_report: MachineReport) -> tuple[str, ...]:
    """The ids of a machine's devices, in their order."""
    return tuple(
        device.chip_id for device in sorted(machine_report.devices, key=lambda device: device.index)
    )


def check_name(object_kind: str, name: str) -> None:
    """Raises InvalidRequest for what is not a name of an agent, a cluster or a user."""
    if not _NAME_PATTERN.fullmatch(name):
        raise InvalidRequest(
            f"{name[:80]!r} is not a name of {object_kind}",
            would_work="use letters, digits and . _ - in it, 63 at most",
        )


def put_agent(agent_record: AgentRecord) -> Put:
    """The change that writes an agent."""
    return Put(AGENT, agent_record.name, msgspec.json.encode(agent_record))


def put_epoch_floor(epoch_floor: int) -> Put:
    """The change that writes how far the epochs of these devices had come under another store."""
    return Put(_META_KIND, _EPOCH_FLOOR_KEY, msgspec.json.encode(epoch_floor))


def put_cluster(cluster: Cluster) -> Put:
    """The change that writes a cluster."""
    encoded_cluster = msgspec.json.encode(ClusterRecord(cluster=cluster), enc_hook=rule_name)
    return Put(CLUSTER, cluster.name, encoded_cluster)


def drop_agent(agent_name: str) -> Delete:
    """The change that forgets an agent."""
    return Delete(AGENT, agent_name)


def drop_cluster(cluster_name: str) -> Delete:
    """The change that forgets a cluster."""
    return Delete(CLUSTER, cluster_name)
