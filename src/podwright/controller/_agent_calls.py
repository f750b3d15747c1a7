"""An administrator's calls about agents: registered, listed, forgotten, discovered."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress

from podwright.agents import EPOCH_LIMIT, Driver, MachineReport
from podwright.controller import _registry as registry
from podwright.controller._caller import Caller
from podwright.controller._core import Core
from podwright.controller._discovery import Discovery
from podwright.controller._heartbeats import Heartbeats
from podwright.controller._list_pages import ListPage, after
from podwright.controller._registry import AgentRecord, Known, Registry
from podwright.controller._shielded import to_its_end
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

#: Seconds in which an agent that is to be registered may come up, and between two looks.
STARTING, PAUSE = 20.0, 0.2
#: A number of a certificate's, ours or a site's: it is a part of a name there (RFC 1035).
_NUMBER = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


class AgentCalls:
    """The part of the controller that knows agents."""

    _core: Core
    _registry: Registry
    _watch: Heartbeats
    _discovery: Discovery
    _changing: asyncio.Lock

    @to_its_end
    async def create_agent(self, caller: Caller, request: AgentRequest) -> AgentInfo:
        """Register an agent that answers. Raises AlreadyExists, Unavailable, InvalidRequest."""
        action = f"create agent {request.name[:80]}"
        registry.check_name("an agent", request.name)
        host, port = self._address(request, action)
        if request.certificate and not _NUMBER.fullmatch(request.certificate):
            raise InvalidRequest(
                f"{request.certificate[:80]!r} is no number of a certificate",
                asked=action,
                would_work=f"vipu-admin create certificate {request.name} --agent prints one",
            )
        async with self._changing:
            for known in self._registry.agents.values():
                self._check_other(known.record, request, host, port, action)
            before = self._registry.agents.get(request.name)
            certificate = request.certificate or (before.record.certificate if before else "")
            record, fence = await self._met(request.name, host, port, certificate, action)
            changes = [registry.put_agent(record)]
            if self._core.raise_floor(fence):
                changes.append(registry.put_floor(self._core.epoch_floor))
            await self._core.journal.commit(changes)
            await let_go(self._core.hardware.remove(request.name))
            known = self._registry.add(record)
            self._watch.begin(request.name)
            with suppress(PodwrightError):  # else the watch says what became of it
                await self._core.hardware.describe(request.name)
            return self._agent_info(known)

    async def list_agents(self, caller: Caller, request: ListRequest) -> AgentList:
        """Registered agents, by name."""
        page = ListPage[AgentInfo](request)
        if request.cluster:
            self._core.inventory.candidates(request.cluster, "", "list agents")
        for name in after(self._registry.agents, request.page_token):
            info = self._agent_info(self._registry.agents[name])
            if request.cluster in ("", info.cluster):
                if page.full:
                    break
                page.add(name, info, info.devices)
        return AgentList(agents=page.items, next_page_token=page.token)

    @to_its_end
    async def remove_agent(self, caller: Caller, request: Named) -> Empty:
        """Forget an agent that is in no cluster. Raises NotFound, WrongState."""
        action = f"remove agent {request.name[:80]}"
        async with self._changing:
            self._registry.agent(request.name, action)
            if (site := self._core.inventory.by_machine.get(request.name)) is not None:
                raise WrongState(
                    f"it is in cluster {site.cluster.name}",
                    asked=action,
                    would_work=f"vipu-admin remove cluster {site.cluster.name} first",
                )
            await self._core.journal.commit([registry.drop_agent(request.name)])
            self._watch.end(request.name)
            del self._registry.agents[request.name]
            await let_go(self._core.hardware.remove(request.name))
        return Empty()

    async def announce_agent(self, caller: Caller, request: Announcement) -> Empty:
        """An agent says where it is. It is only a hint, so anybody may."""
        self._discovery.announce(request)
        return Empty()

    async def discover_agents(self, caller: Caller, request: DiscoverRequest) -> DiscoveredList:
        """Agents that announced themselves and are not registered."""
        found = self._discovery.list()
        return DiscoveredList(agents=[a for a in found if a.name not in self._registry.agents])

    # -- inside ------------------------------------------------------------------------------

    def _address(self, request: AgentRequest, action: str) -> tuple[str, int]:
        if request.host:
            if not 0 < request.port < 65536:
                raise InvalidRequest(f"{request.port} is no port", asked=action)
            return request.host, request.port
        said = self._discovery.find(request.name)
        if said is None:
            raise NotFound(
                f"no agent {request.name} announced itself",
                asked=action,
                would_work="say where it is: --host HOST --port PORT",
            )
        return said.host, said.port

    def _check_other(
        self, other: AgentRecord, request: AgentRequest, host: str, port: int, action: str
    ) -> None:
        if other.name == request.name and not request.replace:
            raise AlreadyExists(
                f"there is an agent {other.name} already, at {other.host}:{other.port}",
                asked=action,
                would_work="another id, or --replace if it has another address or hardware now",
            )
        if other.name != request.name and (other.host, other.port) == (host, port):
            raise AlreadyExists(
                f"agent {other.name} is at {host}:{port}", asked=action, would_work="another port"
            )

    async def _met(
        self, name: str, host: str, port: int, certificate: str, action: str
    ) -> tuple[AgentRecord, int]:
        """What answers there, and the highest epoch that it has seen."""
        driver = self._registry.driver(name, host, port, certificate)
        try:
            report = await _found(driver, self._core.hardware.patience)
        except TimeoutError:
            raise WrongState(f"nothing answers at {host}:{port} in time", asked=action) from None
        except PodwrightError as error:
            raise type(error)(
                error.problem,
                asked=action,
                would_work=error.would_work or f"start it: vipu-agent --machine {name}",
            ) from None
        finally:
            await let_go(driver)
        if report.name and report.name != name:
            raise InvalidRequest(
                f"the agent at {host}:{port} says that it is {report.name}",
                asked=action,
                would_work=f"create agent {report.name}, or another address",
            )
        if not 0 <= report.fence < EPOCH_LIMIT // 2:
            raise InvalidRequest(
                f"the agent at {host}:{port} says that its devices have seen epoch {report.fence}, "
                "to which no server can have come",
                asked=action,
                would_work="move the agent's state file away, reset the machine, and start it anew",
            )
        site = self._core.inventory.by_machine.get(name)
        family = family_named(report.family)
        if family is None or (site is not None and site.cluster.family.name != family.name):
            wanted = site.cluster.family.name if site else " or ".join(family_names())
            raise InvalidRequest(
                f"its devices are of family {report.family or 'unknown'}",
                asked=action,
                would_work=f"a machine of {wanted}",
            )
        if len(report.devices) != family.devices_per_machine:
            raise InvalidRequest(
                f"it has {len(report.devices)} {family.device_noun}s",
                asked=action,
                would_work=f"a machine of this family has {family.devices_per_machine}",
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

    def _agent_info(self, known: Known) -> AgentInfo:
        core, record = self._core, known.record
        site = core.inventory.by_machine.get(record.name)
        quiet = core.now() - known.last_seen
        state, reason = "UP", ""
        if known.refused:
            state, reason = "REFUSED", known.refused
        elif not known.last_seen or quiet >= self._watch.silence or record.name in core.down:
            state = "DOWN"
            reason = f"silent for {quiet:.0f} s" if known.last_seen else "never answered"
        return AgentInfo(
            name=record.name,
            host=record.host,
            port=record.port,
            family=record.family,
            devices=len(record.chips),
            cluster=site.cluster.name if site else "",
            state=state,
            reason=reason,
            software=known.software,
            last_seen=quiet if known.last_seen else -1.0,
            chips=list(record.chips),
            certificate=record.certificate,
        )


async def _found(driver: Driver, patience: float) -> MachineReport:
    """What a driver reports; one that was started a moment ago may need another to be there.

    Raises TimeoutError when it takes longer than `patience` to answer.
    """
    until = asyncio.get_running_loop().time() + STARTING
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
