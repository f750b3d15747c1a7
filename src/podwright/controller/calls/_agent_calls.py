"""An administrator's calls about agents: registered, listed, forgotten, discovered."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress

from podwright.agents import EPOCH_LIMIT, Driver, MachineReport
from podwright.controller.calls._call_services import Services
from podwright.controller.calls._done_once import done_once, gone_before, gone_since
from podwright.controller.calls._list_pages import ListPage, after
from podwright.controller.hardware import _registry as registry
from podwright.controller.hardware._registry import AgentRecord, Known
from podwright.controller.state._caller import Caller
from podwright.controller.state._request_ids import Remembered
from podwright.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    PodwrightError,
    Unavailable,
    WrongState,
)
from podwright.fabric import family_named, family_names
from podwright.wire import (
    AgentInfo,
    AgentList,
    AgentRequest,
    Announcement,
    DiscoveredList,
    DiscoverRequest,
    Empty,
    ListRequest,
    Named,
)

#: Seconds between two attempts to reach an agent that is to be registered.
PAUSE = 0.2
#: A number of a certificate's, ours or a site's: it is a part of a name there (RFC 1035).
_NUMBER = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


async def _registered_before(services: Services, known: Remembered) -> AgentInfo:
    """The agent in its present state. Raises NotFound if it has been removed since."""
    agent = services.registry.agents.get(known.name)
    if agent is None:
        raise gone_since(known, "agent")
    return _agent_info(services, agent)


@done_once(_registered_before)
async def create_agent(services: Services, caller: Caller, request: AgentRequest) -> AgentInfo:
    """Register an agent that answers. Raises AlreadyExists, Unavailable, InvalidRequest."""
    action = f"create agent {request.name[:80]}"
    registry.check_name("an agent", request.name)
    host, port = _address(services, request, action)
    if request.certificate and not _NUMBER.fullmatch(request.certificate):
        raise InvalidRequest(
            f"{request.certificate[:80]!r} is not the number of a certificate",
            operation=action,
            would_work=f"vipu-admin create certificate {request.name} --agent prints one",
        )
    async with services.changing:
        for known in services.registry.agents.values():
            _check_other(services, known.record, request, host, port, action)
        before = services.registry.agents.get(request.name)
        certificate = request.certificate or (before.record.certificate if before else "")
        record, fence = await _met(services, request.name, host, port, certificate, action)
        changes = [registry.put_agent(record)]
        needs_floor = services.state.epochs.exceeded_by(fence)
        if needs_floor:
            changes.append(registry.put_floor(fence))
        await services.state.journal.commit(changes)
        if needs_floor:
            services.state.epochs.raise_floor(fence)
        await let_go(services.state.hardware.remove(request.name))
        known = services.registry.add(record)
        services.heartbeats.begin(request.name)
        with suppress(PodwrightError):  # else the watch says what became of it
            await services.state.hardware.describe(request.name)
        return _agent_info(services, known)


async def list_agents(services: Services, caller: Caller, request: ListRequest) -> AgentList:
    """Registered agents, by name."""
    page = ListPage[AgentInfo](request)
    if request.cluster:
        services.state.inventory.candidates(request.cluster, "", "list agents")
    if services.privacy.hides_agents(caller):
        return AgentList()
    for name in after(services.registry.agents, request.page_token):
        info = _agent_info(services, services.registry.agents[name])
        if request.cluster in ("", info.cluster):
            if page.full:
                break
            page.add(name, info, info.devices)
    return AgentList(agents=page.items, next_page_token=page.token)


@done_once(gone_before)
async def remove_agent(services: Services, caller: Caller, request: Named) -> Empty:
    """Forget an agent that is in no cluster. Raises NotFound, WrongState."""
    action = f"remove agent {request.name[:80]}"
    async with services.changing:
        services.registry.agent(request.name, action)
        if (cluster := services.state.inventory.by_machine.get(request.name)) is not None:
            raise WrongState(
                f"it is in cluster {cluster.layout.name}",
                operation=action,
                would_work=f"vipu-admin remove cluster {cluster.layout.name} first",
            )
        await services.state.journal.commit([registry.drop_agent(request.name)])
        services.heartbeats.end(request.name)
        del services.registry.agents[request.name]
        await let_go(services.state.hardware.remove(request.name))
    return Empty()


async def announce_agent(services: Services, caller: Caller, request: Announcement) -> Empty:
    """Accept an agent's announcement of its address: a hint, so any caller may make one."""
    services.discovery.announce(request)
    return Empty()


async def discover_agents(
    services: Services, caller: Caller, request: DiscoverRequest
) -> DiscoveredList:
    """Agents that announced themselves and are not registered."""
    discovered = services.discovery.list()
    return DiscoveredList(agents=[a for a in discovered if a.name not in services.registry.agents])


# -- inside ------------------------------------------------------------------------------


def _address(services: Services, request: AgentRequest, action: str) -> tuple[str, int]:
    if request.host:
        if not 0 < request.port < 65536:
            raise InvalidRequest(f"{request.port} is not a port", operation=action)
        return request.host, request.port
    announced = services.discovery.find(request.name)
    if announced is None:
        raise NotFound(
            f"no agent {request.name} announced itself",
            operation=action,
            would_work="say where it is: --host HOST --port PORT",
        )
    return announced.host, announced.port


def _check_other(
    services: Services, other: AgentRecord, request: AgentRequest, host: str, port: int, action: str
) -> None:
    if other.name == request.name and not request.replace:
        raise AlreadyExists(
            f"there is an agent {other.name} already, at {other.host}:{other.port}",
            operation=action,
            would_work="choose another id, or --replace if it has another address or hardware now",
        )
    if other.name != request.name and (other.host, other.port) == (host, port):
        raise AlreadyExists(
            f"agent {other.name} is at {host}:{port}",
            operation=action,
            would_work="choose another port",
        )


async def _met(
    services: Services, name: str, host: str, port: int, certificate: str, action: str
) -> tuple[AgentRecord, int]:
    """The record of the agent at an address, and the highest epoch that it has seen."""
    driver = services.registry.driver(name, host, port, certificate)
    try:
        report = await _driver_report(driver, services.state.hardware.patience, services.starting)
    except TimeoutError:
        raise WrongState(f"nothing answers at {host}:{port} in time", operation=action) from None
    except PodwrightError as error:
        raise type(error)(
            error.problem,
            operation=action,
            would_work=error.would_work or f"start it: vipu-agent --machine {name}",
        ) from None
    finally:
        await let_go(driver)
    if report.name and report.name != name:
        raise InvalidRequest(
            f"the agent at {host}:{port} says that it is {report.name}",
            operation=action,
            would_work=f"create agent {report.name}, or another address",
        )
    if not 0 <= report.fence < EPOCH_LIMIT // 2:
        raise InvalidRequest(
            f"the agent at {host}:{port} says that its devices have seen epoch {report.fence}, "
            "to which no server can have come",
            operation=action,
            would_work="move the agent's state file away, reset the machine, and start it anew",
        )
    cluster = services.state.inventory.by_machine.get(name)
    family = family_named(report.family)
    if family is None or (cluster is not None and cluster.layout.family.name != family.name):
        wanted = cluster.layout.family.name if cluster else " or ".join(family_names())
        raise InvalidRequest(
            f"its devices are of family {report.family or 'unknown'}",
            operation=action,
            would_work=f"use a machine of {wanted}",
        )
    if len(report.devices) != family.devices_per_machine:
        raise InvalidRequest(
            f"it has {len(report.devices)} {family.device_noun}s",
            operation=action,
            would_work=f"note that a machine of this family has {family.devices_per_machine}",
        )
    chips = registry.chips_of(report)
    record = AgentRecord(
        name=name,
        host=host,
        port=port,
        family=family.name,
        chips=chips,
        certificate=certificate,
    )
    return record, report.fence


def _agent_info(services: Services, known: Known) -> AgentInfo:
    state, record = services.state, known.record
    cluster = state.inventory.by_machine.get(record.name)
    quiet = state.now() - known.last_seen
    agent_state, reason = "UP", ""
    if refused := state.hardware.foreign.get(record.name) or known.refused:
        agent_state, reason = "REFUSED", refused
    elif not known.last_seen or quiet >= services.heartbeats.silence or record.name in state.down:
        agent_state = "DOWN"
        reason = f"silent for {quiet:.0f} s" if known.last_seen else "never answered"
        if problem := services.heartbeats.strangers.get(record.name):
            reason = f"wrong key: {problem}"
    return AgentInfo(
        name=record.name,
        host=record.host,
        port=record.port,
        family=record.family,
        devices=len(record.chips),
        cluster=cluster.layout.name if cluster else "",
        state=agent_state,
        reason=reason,
        software=known.software,
        last_seen=quiet if known.last_seen else -1.0,
        chips=list(record.chips),
        certificate=record.certificate,
    )


async def _driver_report(driver: Driver, patience: float, starting: float) -> MachineReport:
    """What a driver reports; one that was started a moment ago may need another to be there.

    patience: seconds for one answer. starting: seconds after which an agent that cannot be reached
    is not tried again. Raises TimeoutError when an answer takes longer than `patience`.
    """
    until = asyncio.get_running_loop().time() + starting
    while True:
        try:
            async with asyncio.timeout(patience):
                return await driver.describe()
        except Unavailable:
            if asyncio.get_running_loop().time() >= until:
                raise
            await asyncio.sleep(PAUSE)


async def let_go(driver: Driver | None) -> None:
    """Close what a driver holds: a connection, or the library of the server's own devices."""
    close: Callable[[], Awaitable[None] | None] | None = getattr(driver, "close", None)
    if close is not None and (closing := close()) is not None:
        await closing
