"""Clusters made of agents: what is legal, and what a test of one finds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TypeVar

from podwright.agents import MachineReport
from podwright.controller.hardware._registry import Registry, check_name, difference
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.errors import AlreadyExists, InvalidRequest, PodwrightError, WrongState
from podwright.fabric import (
    Cluster,
    ClusterTopology,
    DomainTopology,
    LinkDomain,
    Machine,
    cabling,
    family_named,
)
from podwright.wire import CheckResult, ClusterRequest

_Topology = TypeVar("_Topology", DomainTopology, ClusterTopology)


def draft_cluster(state: ControllerState, registry: Registry, request: ClusterRequest) -> Cluster:
    """The requested cluster. Raises InvalidRequest, AlreadyExists, NotFound, WrongState."""
    action = f"create cluster {request.name[:80]}"
    check_name("a cluster", request.name)
    if request.name in state.inventory.clusters:
        raise AlreadyExists(
            f"there is a cluster {request.name} already",
            operation=action,
            would_work="choose another name",
        )
    if not request.agents:
        raise InvalidRequest("it names no agent", operation=action, would_work="--agents ag1,ag2,…")
    for agent_name in request.agents:
        if request.agents.count(agent_name) > 1:
            raise InvalidRequest(
                f"agent {agent_name} is named {request.agents.count(agent_name)} times",
                operation=action,
                would_work="name each agent once",
                agent=agent_name,
            )
        registry.agent(agent_name, action)
        if (other_cluster := state.inventory.by_machine.get(agent_name)) is not None:
            raise WrongState(
                f"agent {agent_name} is in cluster {other_cluster.layout.name}",
                operation=action,
                would_work=f"vipu-admin remove cluster {other_cluster.layout.name} first",
                agent=agent_name,
            )
    agent_records = [registry.agents[agent_name].record for agent_name in request.agents]
    families = sorted({record.family for record in agent_records})
    if len(families) > 1:
        raise InvalidRequest(
            f"its agents have devices of {' and '.join(families)}",
            operation=action,
            would_work="make a cluster of each",
        )
    family = family_named(families[0])
    assert family is not None  # agents of others are not registered
    machines_per_domain = _domain_size(
        request, family.max_domain_devices // family.devices_per_machine, action
    )
    machines = [Machine(record.name, record.host, record.port) for record in agent_records]
    fills_domain = machines_per_domain * family.devices_per_machine == family.max_domain_devices
    default_topology = DomainTopology.TORUS if fills_domain else DomainTopology.MESH
    cluster_topology = ClusterTopology.LOOPED if request.num_ilds > 1 else ClusterTopology.NONE
    return Cluster(
        name=request.name,
        family=family,
        domains=tuple(
            LinkDomain(
                f"ild{i}", tuple(machines[i * machines_per_domain : (i + 1) * machines_per_domain])
            )
            for i in range(request.num_ilds)
        ),
        domain_topology=_named_topology(request.ild_topology, default_topology, action),
        topology=_named_topology(request.topology, cluster_topology, action),
        simulated=all(
            registry.agents[agent_record.name].software == "simulated"
            for agent_record in agent_records
        ),
    )


def _domain_size(request: ClusterRequest, machine_limit: int, action: str) -> int:
    """Machines in each link domain."""
    agent_count, domain_count = len(request.agents), request.num_ilds
    if not 1 <= domain_count <= agent_count:
        raise InvalidRequest(
            f"{agent_count} agents make no {domain_count} link domains",
            operation=action,
            would_work=f"1 to {agent_count}",
        )
    machines_per_domain, remainder = divmod(agent_count, domain_count)
    if remainder:
        legal_counts = [
            candidate_count
            for candidate_count in range(1, agent_count + 1)
            if agent_count % candidate_count == 0
            and agent_count // candidate_count <= machine_limit
        ]
        raise InvalidRequest(
            f"{agent_count} agents cannot be divided evenly into {domain_count} link domains",
            operation=action,
            would_work=f"--num-ipulinkdomains {' or '.join(map(str, legal_counts[:6]))}",
        )
    if machines_per_domain > machine_limit:
        raise InvalidRequest(
            f"{machines_per_domain} machines in a link domain are more than {machine_limit}",
            operation=action,
            would_work=f"--num-ipulinkdomains {-(-agent_count // machine_limit)} or more",
        )
    return machines_per_domain


def _named_topology(topology_name: str, default_topology: _Topology, action: str) -> _Topology:
    if not topology_name:
        return default_topology
    topology_class = type(default_topology)
    try:
        return topology_class(topology_name.lower())
    except ValueError:
        raise InvalidRequest(
            f"{topology_name[:40]!r} is not a topology",
            operation=action,
            would_work=f"choose one of {', '.join(member.value for member in topology_class)}",
        ) from None


async def tested(
    state: ControllerState, registry: Registry, cluster: IndexedCluster
) -> list[CheckResult]:
    """Ask every machine of a cluster, and compare: all checks, machine by machine."""
    machine_names = cluster.machines()
    answers = await asyncio.gather(*(_ask_machine(state, name) for name in machine_names))
    results: list[CheckResult] = []
    expected_cables = cabling(cluster.layout)
    for machine_name, answer in zip(machine_names, answers, strict=True):
        if isinstance(answer, PodwrightError) and not isinstance(answer, WrongState):
            results.append(_failed_check("connectivity", machine_name, answer.problem))
            continue
        results.append(CheckResult(check="connectivity", machine=machine_name, ok=True))
        if isinstance(answer, WrongState):
            results.append(_failed_check("hardware", machine_name, answer.problem))
            continue
        results += _check_machine(
            registry, cluster, machine_name, answer, expected_cables[machine_name]
        )
    reports = [
        machine_answer for machine_answer in answers if isinstance(machine_answer, MachineReport)
    ]
    cables_by_machine = {
        name: dict(machine_report.links or {})
        for name, machine_report in zip(machine_names, reports, strict=False)
    }
    mute_count = sum(report.links is None for report in reports)
    if len(reports) == len(machine_names) and mute_count:
        silent_text = (
            "no agent says"
            if mute_count == len(machine_names)
            else f"{mute_count} agents do not say"
        )
        topology_result = CheckResult(
            check="topology", machine="", problem=f"{silent_text} where cables lead"
        )
        results.append(topology_result)
    elif len(reports) == len(machine_names):
        results.append(
            _check_result("topology", "", _observed_topology(cluster.layout, cables_by_machine))
        )
    return results


async def _ask_machine(state: ControllerState, machine_name: str) -> MachineReport | PodwrightError:
    try:
        return await state.hardware.describe(machine_name)
    except PodwrightError as error:
        return error


def _check_machine(
    registry: Registry,
    cluster: IndexedCluster,
    machine_name: str,
    machine_report: MachineReport,
    expected_cables: dict[str, str],
) -> list[CheckResult]:
    family = cluster.layout.family
    agent = registry.agents.get(machine_name)
    hardware_problem = difference(agent.record, machine_report) if agent else ""
    if len(machine_report.devices) != family.devices_per_machine:
        hardware_problem = (
            f"it has {len(machine_report.devices)} devices, not {family.devices_per_machine}"
        )
    unhealthy_devices = [
        f"{family.device_noun} {device.index}"
        for device in machine_report.devices
        if not device.healthy
    ]
    health_problem = (
        f"{', '.join(unhealthy_devices)} {'is' if len(unhealthy_devices) == 1 else 'are'} unhealthy"
        if unhealthy_devices
        else ""
    )
    results = [
        _check_result("hardware", machine_name, hardware_problem),
        _check_result("health", machine_name, health_problem),
    ]
    return results + _check_cables(machine_name, machine_report, expected_cables)


def _check_cables(
    machine_name: str, machine_report: MachineReport, expected_cables: dict[str, str]
) -> list[CheckResult]:
    if machine_report.links is None:
        return [
            CheckResult(
                check="cabling",
                machine=machine_name,
                problem="its agent does not say where cables lead",
            )
        ]
    results = []
    for port in sorted(expected_cables.keys() | machine_report.links.keys()):
        actual_end, expected_end = machine_report.links.get(port, ""), expected_cables.get(port, "")
        if actual_end != expected_end:
            actual_text = f"leads to {actual_end}" if actual_end else "leads nowhere"
            expected_text = (
                f"it should lead to {expected_end}" if expected_end else "nothing should be there"
            )
            results.append(
                _failed_check(
                    "cabling", machine_name, f"port {port} {actual_text}; {expected_text}"
                )
            )
    return results or [CheckResult(check="cabling", machine=machine_name, ok=True)]


def _observed_topology(cluster: Cluster, cables_by_machine: dict[str, dict[str, str]]) -> str:
    """The topology that the cables make of the cluster, where it is not the one that it is said
    to have; empty where it is."""
    if cabling(cluster) == cables_by_machine:
        return ""
    for domain_topology in DomainTopology:
        for cluster_topology in ClusterTopology:
            if (
                cabling(
                    replace(cluster, domain_topology=domain_topology, topology=cluster_topology)
                )
                == cables_by_machine
            ):
                return (
                    f"it is cabled as {domain_topology.value} and {cluster_topology.value}, not as "
                    f"{cluster.domain_topology.value} and {cluster.topology.value}"
                )
    return "the cables make no known topology; see cabling"


def _check_result(check: str, machine: str, problem: str) -> CheckResult:
    return CheckResult(check=check, machine=machine, ok=not problem, problem=problem)


def _failed_check(check: str, machine: str, problem: str) -> CheckResult:
    return CheckResult(check=check, machine=machine, ok=False, problem=problem)
