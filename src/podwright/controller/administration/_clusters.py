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


def designed(state: ControllerState, registry: Registry, request: ClusterRequest) -> Cluster:
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
    for name in request.agents:
        if request.agents.count(name) > 1:
            raise InvalidRequest(
                f"agent {name} is named {request.agents.count(name)} times",
                operation=action,
                would_work="name each agent once",
                agent=name,
            )
        registry.agent(name, action)
        if (other := state.inventory.by_machine.get(name)) is not None:
            raise WrongState(
                f"agent {name} is in cluster {other.layout.name}",
                operation=action,
                would_work=f"vipu-admin remove cluster {other.layout.name} first",
                agent=name,
            )
    records = [registry.agents[name].record for name in request.agents]
    families = sorted({record.family for record in records})
    if len(families) > 1:
        raise InvalidRequest(
            f"its agents have devices of {' and '.join(families)}",
            operation=action,
            would_work="make a cluster of each",
        )
    family = family_named(families[0])
    assert family is not None  # agents of others are not registered
    size = _domain_size(request, family.max_domain_devices // family.devices_per_machine, action)
    machines = [Machine(record.name, record.host, record.port) for record in records]
    fills_domain = size * family.devices_per_machine == family.max_domain_devices
    default_topology = DomainTopology.TORUS if fills_domain else DomainTopology.MESH
    between = ClusterTopology.LOOPED if request.num_ilds > 1 else ClusterTopology.NONE
    return Cluster(
        name=request.name,
        family=family,
        domains=tuple(
            LinkDomain(f"ild{i}", tuple(machines[i * size : (i + 1) * size]))
            for i in range(request.num_ilds)
        ),
        domain_topology=_named(request.ild_topology, default_topology, action),
        topology=_named(request.topology, between, action),
        simulated=all(registry.agents[r.name].software == "simulated" for r in records),
    )


def _domain_size(request: ClusterRequest, machine_limit: int, action: str) -> int:
    """Machines in each link domain."""
    count, domains = len(request.agents), request.num_ilds
    if not 1 <= domains <= count:
        raise InvalidRequest(
            f"{count} agents make no {domains} link domains",
            operation=action,
            would_work=f"1 to {count}",
        )
    size, left = divmod(count, domains)
    if left:
        legal = [n for n in range(1, count + 1) if count % n == 0 and count // n <= machine_limit]
        raise InvalidRequest(
            f"{count} agents cannot be divided evenly into {domains} link domains",
            operation=action,
            would_work=f"--num-ipulinkdomains {' or '.join(map(str, legal[:6]))}",
        )
    if size > machine_limit:
        raise InvalidRequest(
            f"{size} machines in a link domain are more than {machine_limit}",
            operation=action,
            would_work=f"--num-ipulinkdomains {-(-count // machine_limit)} or more",
        )
    return size


def _named(text: str, default: _Topology, action: str) -> _Topology:
    if not text:
        return default
    kind = type(default)
    try:
        return kind(text.lower())
    except ValueError:
        raise InvalidRequest(
            f"{text[:40]!r} is not a topology",
            operation=action,
            would_work=f"choose one of {', '.join(member.value for member in kind)}",
        ) from None


async def tested(
    state: ControllerState, registry: Registry, cluster: IndexedCluster
) -> list[CheckResult]:
    """Ask every machine of a cluster, and compare: all checks, machine by machine."""
    names = cluster.machines()
    answers = await asyncio.gather(*(_ask(state, name) for name in names))
    results: list[CheckResult] = []
    wanted = cabling(cluster.layout)
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, PodwrightError) and not isinstance(answer, WrongState):
            results.append(_failed("connectivity", name, answer.problem))
            continue
        results.append(CheckResult(check="connectivity", machine=name, ok=True))
        if isinstance(answer, WrongState):
            results.append(_failed("hardware", name, answer.problem))
            continue
        results += _machine(registry, cluster, name, answer, wanted[name])
    reports = [a for a in answers if isinstance(a, MachineReport)]
    links = {name: dict(r.links or {}) for name, r in zip(names, reports, strict=False)}
    mute = sum(report.links is None for report in reports)
    if len(reports) == len(names) and mute:
        silent = "no agent says" if mute == len(names) else f"{mute} agents do not say"
        unknown = CheckResult(check="topology", machine="", problem=f"{silent} where cables lead")
        results.append(unknown)
    elif len(reports) == len(names):
        results.append(_result("topology", "", _topology(cluster.layout, links)))
    return results


async def _ask(state: ControllerState, name: str) -> MachineReport | PodwrightError:
    try:
        return await state.hardware.describe(name)
    except PodwrightError as error:
        return error


def _machine(
    registry: Registry,
    cluster: IndexedCluster,
    name: str,
    report: MachineReport,
    wanted: dict[str, str],
) -> list[CheckResult]:
    family = cluster.layout.family
    known = registry.agents.get(name)
    wrong = difference(known.record, report) if known else ""
    if len(report.devices) != family.devices_per_machine:
        wrong = f"it has {len(report.devices)} devices, not {family.devices_per_machine}"
    ill = [f"{family.device_noun} {d.index}" for d in report.devices if not d.healthy]
    sick = f"{', '.join(ill)} {'is' if len(ill) == 1 else 'are'} unhealthy" if ill else ""
    results = [_result("hardware", name, wrong), _result("health", name, sick)]
    return results + _cables(name, report, wanted)


def _cables(name: str, report: MachineReport, wanted: dict[str, str]) -> list[CheckResult]:
    if report.links is None:
        return [
            CheckResult(
                check="cabling", machine=name, problem="its agent does not say where cables lead"
            )
        ]
    results = []
    for port in sorted(wanted.keys() | report.links.keys()):
        actual, right = report.links.get(port, ""), wanted.get(port, "")
        if actual != right:
            leads = f"leads to {actual}" if actual else "leads nowhere"
            should = f"it should lead to {right}" if right else "nothing should be there"
            results.append(_failed("cabling", name, f"port {port} {leads}; {should}"))
    return results or [CheckResult(check="cabling", machine=name, ok=True)]


def _topology(cluster: Cluster, links: dict[str, dict[str, str]]) -> str:
    """The topology that the cables make of the cluster, where it is not the one that it is said
    to have; empty where it is."""
    if cabling(cluster) == links:
        return ""
    for domain_topology in DomainTopology:
        for between in ClusterTopology:
            if (
                cabling(replace(cluster, domain_topology=domain_topology, topology=between))
                == links
            ):
                return (
                    f"it is cabled as {domain_topology.value} and {between.value}, not as "
                    f"{cluster.domain_topology.value} and {cluster.topology.value}"
                )
    return "the cables make no known topology; see cabling"


def _result(check: str, machine: str, problem: str) -> CheckResult:
    return CheckResult(check=check, machine=machine, ok=not problem, problem=problem)


def _failed(check: str, machine: str, problem: str) -> CheckResult:
    return CheckResult(check=check, machine=machine, ok=False, problem=problem)
