"""An administrator's calls about agents: registered, listed, forgotten, discovered."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress

from podwright.agents import EPOCH_LIMIT, Driver, MachineReport
from podwright.controller.calls._call_context import Services
from podwright.controller.calls._idempotent_calls import (
    answer_repeated_removal,
    done_once,
    removed_since_error,
)
from podwright.controller.calls._list_pages import ListPage, after
from podwright.controller.hardware import _registry as registry
from podwright.controller.hardware._registry import AgentRecord, Known
from podwright.controller.state._caller import Caller
from podwright.controller.state._request_ids import RememberedRequest
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
RETRY_PAUSE_S = 0.2
#: A number of a certificate's, ours or a site's: it is a part of a name there (RFC 1035).
_CERTIFICATE_NUMBER = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


async def _agent_registered_before(
    services: Services, earlier_request: RememberedRequest
) -> AgentInfo:
    """The agent in its present state. Raises NotFound if it has been removed since."""
    agent = services.registry.agents.get(earlier_request.name)
    if agent is None:
        raise removed_since_error(earlier_request, "agent")
    return agent_info(services, agent)


@done_once(_agent_registered_before)
async def create_agent(services: Services, caller: Caller, request: AgentRequest) -> AgentInfo:
    """Register an agent that answers. Raises AlreadyExists, Unavailable, InvalidRequest."""
    action = f"create agent {request.name[:80]}"
    registry.check_name("an agent", request.name)
    host, port = _agent_address(services, request, action)
    if request.certificate and not _CERTIFICATE_NUMBER.fullmatch(request.certificate):
        raise InvalidRequest(
            f"{request.certificate[:80]!r} is not the number of a certificate",
            operation=action,
            would_work=f"vipu-admin create certificate {request.name} --agent prints one",
        )
    async with services.changing:
        for known_agent in services.registry.agents.values():
            _check_agent_conflict(services, known_agent.record, request, host, port, action)
        previous_agent = services.registry.agents.get(request.name)
        certificate_number = request.certificate or (
            previous_agent.record.certificate if previous_agent else ""
        )
        record, highest_epoch = await _meet_agent(
            services, request.name, host, port, certificate_number, action
        )
        store_changes = [registry.put_agent(record)]
        raises_epoch_floor = services.state.epochs.exceeded_by(highest_epoch)
        if raises_epoch_floor:
            store_changes.append(registry.put_epoch_floor(highest_epoch))
        await services.state.journal.commit(store_changes)
        if raises_epoch_floor:
            services.state.epochs.raise_floor(highest_epoch)
        await let_go(services.state.hardware.remove(request.name))
        known_agent = services.registry.add(record)
        services.heartbeats.begin(request.name)
        with suppress(PodwrightError):  # else the watch says what became of it
            await services.state.hardware.describe(request.name)
        return agent_info(services, known_agent)


async def list_agents(services: Services, caller: Caller, request: ListRequest) -> AgentList:
    """Registered agents, by name."""
    page = ListPage[AgentInfo](request)
    if request.cluster:
        services.state.inventory.candidates(request.cluster, "", "list agents")
    if services.privacy.hides_agents(caller):
        return AgentList()
    for name in after(services.registry.agents, request.page_token):
        listed_agent = agent_info(services, services.registry.agents[name])
        if request.cluster in ("", listed_agent.cluster):
            if page.full:
                break
            page.add(name, listed_agent, listed_agent.devices)
    return AgentList(agents=page.items, next_page_token=page.token)


@done_once(answer_repeated_removal)
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
    return DiscoveredList(
        agents=[agent for agent in discovered if agent.name not in services.registry.agents]
    )


# -- inside ------------------------------------------------------------------------------


def _agent_address(services: Services, request: AgentRequest, action: str) -> tuple[str, int]:
    if request.host:
        if not 0 < request.port < 65536:
            raise InvalidRequest(f"{request.port} is not a port", operation=action)
        return request.host, request.port
    announcement = services.discovery.find(request.name)
    if announcement is None:
        raise NotFound(
            f"no agent {request.name} announced itself",
            operation=action,
            would_work="say where it is: --host HOST --port PORT",
        )
    return announcement.host, announcement.port


def _check_agent_conflict(
    services: Services,
    other_agent: AgentRecord,
    request: AgentRequest,
    host: str,
    port: int,
    action: str,
) -> None:
    if other_agent.name == request.name and not request.replace:
        raise AlreadyExists(
            f"there is an agent {other_agent.name} already, at "
            f"{other_agent.host}:{other_agent.port}",
            operation=action,
            would_work="choose another id, or --replace if it has another address or hardware now",
        )
    if other_agent.name != request.name and (other_agent.host, other_agent.port) == (host, port):
        raise AlreadyExists(
            f"agent {other_agent.name} is at {host}:{port}",
            operation=action,
            would_work="choose another port",
        )


async def _meet_agent(
    services: Services, agent_name: str, host: str, port: int, certificate_number: str, action: str
) -> tuple[AgentRecord, int]:
    """The record of the agent at an address, and the highest epoch that it has seen."""
    driver = services.registry.driver(agent_name, host, port, certificate_number)
    try:
        machine_report = await _driver_report(
            driver, services.state.hardware.patience, services.starting
        )
    except TimeoutError:
        raise WrongState(f"nothing answers at {host}:{port} in time", operation=action) from None
    except PodwrightError as error:
        raise type(error)(
            error.problem,
            operation=action,
            would_work=error.would_work or f"start it: vipu-agent --machine {agent_name}",
        ) from None
    finally:
        await let_go(driver)
    if machine_report.name and machine_report.name != agent_name:
        raise InvalidRequest(
            f"the agent at {host}:{port} says that it is {machine_report.name}",
            operation=action,
            would_work=f"create agent {machine_report.name}, or another address",
        )
    if not 0 <= machine_report.fence < EPOCH_LIMIT // 2:
        raise InvalidRequest(
            f"the agent at {host}:{port} says that its devices have seen epoch "
            f"{machine_report.fence}, "
            "to which no server can have come",
            operation=action,
            would_work="move the agent's state file away, reset the machine, and start it anew",
        )
    cluster = services.state.inventory.by_machine.get(agent_name)
    family = family_named(machine_report.family)
    if family is None or (cluster is not None and cluster.layout.family.name != family.name):
        wanted_families = cluster.layout.family.name if cluster else " or ".join(family_names())
        raise InvalidRequest(
            f"its devices are of family {machine_report.family or 'unknown'}",
            operation=action,
            would_work=f"use a machine of {wanted_families}",
        )
    if len(machine_report.devices) != family.devices_per_machine:
        raise InvalidRequest(
            f"it has {len(machine_report.devices)} {family.device_noun}s",
            operation=action,
            would_work=f"note that a machine of this family has {family.devices_per_machine}",
        )
    chip_ids = registry.device_chip_ids(machine_report)
    agent_record = AgentRecord(
        name=agent_name,
        host=host,
        port=port,
        family=family.name,
        chips=chip_ids,
        certificate=certificate_number,
    )
    return agent_record, machine_report.fence


def agent_info(services: Services, known_agent: Known) -> AgentInfo:
    """An agent, complete."""
    state, agent_record = services.state, known_agent.record
    cluster = state.inventory.by_machine.get(agent_record.name)
    silent_seconds = state.now() - known_agent.last_seen
    agent_state, state_reason = "UP", ""
    if refusal := state.hardware.foreign.get(agent_record.name) or known_agent.refused:
        agent_state, state_reason = "REFUSED", refusal
    elif (
        not known_agent.last_seen
        or silent_seconds >= services.heartbeats.silence
        or agent_record.name in state.down
    ):
        agent_state = "DOWN"
        state_reason = (
            f"silent for {silent_seconds:.0f} s" if known_agent.last_seen else "never answered"
        )
        if key_problem := services.heartbeats.strangers.get(agent_record.name):
            state_reason = f"wrong key: {key_problem}"
    return AgentInfo(
        name=agent_record.name,
        host=agent_record.host,
        port=agent_record.port,
        family=agent_record.family,
        devices=len(agent_record.chips),
        cluster=cluster.layout.name if cluster else "",
        state=agent_state,
        reason=state_reason,
        software=known_agent.software,
        last_seen=silent_seconds if known_agent.last_seen else -1.0,
        chips=list(agent_record.chips),
        certificate=agent_record.certificate,
    )


async def _driver_report(
    driver: Driver, answer_timeout: float, startup_seconds: float
) -> MachineReport:
    """What a driver reports; one that was started a moment ago may need another to be there.

    answer_timeout: seconds for one answer. startup_seconds: seconds after which an agent that
    cannot be reached is not tried again. Raises TimeoutError when an answer takes longer than
    `answer_timeout`.
    """
    deadline = asyncio.get_running_loop().time() + startup_seconds
    while True:
        try:
            async with asyncio.timeout(answer_timeout):
                return await driver.describe()
        except Unavailable:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            await asyncio.sleep(RETRY_PAUSE_S)


async def let_go(driver: Driver | None) -> None:
    """Close what a driver holds: a connection, or the library of the server's own devices."""
    method: Callable[[], Awaitable[None] | None] | None = getattr(driver, "close", None)
    if method is not None and (pending_close := method()) is not None:
        await pending_close
