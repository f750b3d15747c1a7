"""An administrator's calls: agents, clusters made of them, and users."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeVar

from podwright.agents import Driver, RemoteMachine
from podwright.controller import _allocations as allocations
from podwright.controller import _clusters as clusters
from podwright.controller import _recovery as recovery
from podwright.controller import _registry as registry
from podwright.controller import _users as users
from podwright.controller import _views as views
from podwright.controller._caller import Caller
from podwright.controller._core import Core
from podwright.controller._discovery import Discovery
from podwright.controller._machines import check_administrator
from podwright.controller._registry import AgentRecord, ConnectAgent, Known, Registry
from podwright.controller._watch import Sleep, Watch
from podwright.fabric import FAMILIES
from podwright.store import Opened
from podwright.wire import (
    AgentInfo,
    AgentList,
    AgentRequest,
    AllocationInfo,
    AllocationRequest,
    AlreadyExists,
    Announcement,
    ClusterInfo,
    ClusterRequest,
    ClusterTest,
    DiscoveredList,
    DiscoverRequest,
    Empty,
    InvalidRequest,
    ListRequest,
    Named,
    NewUser,
    NotFound,
    PodwrightError,
    UserList,
    UserRequest,
    Value,
    WrongState,
)

_R = TypeVar("_R")
_V = TypeVar("_V")
_Call = Callable[["Administration", Caller, _R], Coroutine[Any, Any, _V]]


def _to_its_end(call: _Call[_R, _V]) -> _Call[_R, _V]:
    """A change that has begun goes on although its caller goes away."""

    @wraps(call)
    async def whole(self: Administration, caller: Caller, request: _R) -> _V:
        done: _V = await asyncio.shield(self._core.spawn(call(self, caller, request)))
        return done

    return whole


@dataclass(frozen=True)
class Machines:
    """How the controller comes to machines that an administrator registers.

    connect: makes an agent's driver. silence: seconds without an answer after which one is out
    of service. discovery: what agents announce.
    """

    connect: ConnectAgent = RemoteMachine
    silence: float = 10.0
    discovery: Discovery | None = None


class Administration:
    """The part of the controller that serves administrators."""

    _core: Core

    def _administer(self, machines: Machines, sleep: Sleep) -> None:
        core = self._core
        self._registry = Registry(core, machines.connect)
        self._watch = Watch(core, self._registry, sleep, silence=machines.silence)
        self._users = users.Users()
        self._discovery = machines.discovery or Discovery((), lambda _: "")
        self._changing = asyncio.Lock()
        core.hardware.patience = min(core.hardware.patience, machines.silence)

    def _load_machines(self, opened: Opened) -> None:
        """Take over what is written, before partitions are."""
        self._registry.load(opened.records)
        allocations.load(self._core, opened.records)
        self._users.load(opened.records)

    def _watch_machines(self) -> None:
        """Watch all agents."""
        for name in self._registry.agents:
            self._watch.begin(name)

    async def _leave_machines(self) -> None:
        """Watch nobody, let go of all agents."""
        await self._watch.close()
        for name in self._registry.agents:
            await _let_go(self._core.hardware.remove(name))

    # -- agents ------------------------------------------------------------------------------

    @_to_its_end
    async def create_agent(self, caller: Caller, request: AgentRequest) -> AgentInfo:
        """Register an agent that answers. Raises AlreadyExists, Unavailable, InvalidRequest."""
        asked = f"create agent {request.name[:80]}"
        check_administrator(caller, asked)
        registry.check_name("an agent", request.name)
        host, port = self._address(request, asked)
        async with self._changing:
            for known in self._registry.agents.values():
                self._check_other(known.record, request, host, port, asked)
            record, fence = await self._met(request.name, host, port, asked)
            changes = [registry.put_agent(record)]
            if self._core.raise_floor(fence):
                changes.append(registry.put_floor(self._core.epoch_floor))
            await self._core.journal.commit(changes)
            await _let_go(self._core.hardware.remove(request.name))
            known = self._registry.add(record)
            self._watch.begin(request.name)
            with suppress(PodwrightError):  # else the watch says what became of it
                await self._core.hardware.describe(request.name)
            return self._agent_info(known)

    async def list_agents(self, caller: Caller, request: ListRequest) -> AgentList:
        """Registered agents, by name."""
        found = [self._agent_info(known) for _, known in sorted(self._registry.agents.items())]
        if request.cluster:
            self._core.inventory.candidates(request.cluster, "", "list agents")
            found = [info for info in found if info.cluster == request.cluster]
        return AgentList(agents=found)

    @_to_its_end
    async def remove_agent(self, caller: Caller, request: Named) -> Empty:
        """Forget an agent that is in no cluster. Raises NotFound, WrongState."""
        asked = f"remove agent {request.name[:80]}"
        check_administrator(caller, asked)
        async with self._changing:
            self._registry.agent(request.name, asked)
            if (site := self._core.inventory.by_machine.get(request.name)) is not None:
                raise WrongState(
                    f"it is in cluster {site.cluster.name}",
                    asked=asked,
                    would_work=f"vipu-admin remove cluster {site.cluster.name} first",
                )
            await self._core.journal.commit([registry.drop_agent(request.name)])
            self._watch.end(request.name)
            del self._registry.agents[request.name]
            await _let_go(self._core.hardware.remove(request.name))
        return Empty()

    async def announce_agent(self, caller: Caller, request: Announcement) -> Empty:
        """An agent says where it is. It is only a hint, so anybody may."""
        self._discovery.announce(request)
        return Empty()

    async def discover_agents(self, caller: Caller, request: DiscoverRequest) -> DiscoveredList:
        """Agents that announced themselves and are not registered."""
        check_administrator(caller, "discover agent")
        found = self._discovery.list()
        return DiscoveredList(agents=[a for a in found if a.name not in self._registry.agents])

    # -- clusters ----------------------------------------------------------------------------

    @_to_its_end
    async def create_cluster(self, caller: Caller, request: ClusterRequest) -> ClusterInfo:
        """Make a cluster of agents; their devices are reset before they serve."""
        asked = f"create cluster {request.name[:80]}"
        check_administrator(caller, asked)
        async with self._changing:
            cluster = clusters.designed(self._core, self._registry, request)
            await self._core.journal.commit([registry.put_cluster(cluster)])
            site = self._registry.begin_cluster(cluster)
            for name in site.places:
                self._core.mark_down(name)
            await asyncio.gather(*(self._welcome(name) for name in site.places))
        return self._cluster(request.name)

    @_to_its_end
    async def remove_cluster(self, caller: Caller, request: Named) -> Empty:
        """Take a cluster apart; its agents stay. Raises NotFound, WrongState while it is in use."""
        asked = f"remove cluster {request.name[:80]}"
        check_administrator(caller, asked)
        core = self._core
        async with self._changing:
            core.inventory.candidates(request.name, "", asked)
            if request.name not in self._registry.clusters:
                raise WrongState(
                    "the server was started with it",
                    asked=asked,
                    would_work="start vipu-server without its --preset or --cluster-file",
                )
            inside = sorted(
                {e.name for e in core.partitions.values() if e.site is self._site(request.name)}
                | {q.partition for q in core.quarantine.values() if q.cluster == request.name}
            )
            if inside:
                raise WrongState(
                    f"it has {', '.join(inside[:8])}{' and more' if inside[8:] else ''} in it",
                    asked=asked,
                    would_work="remove these partitions first",
                    partitions=inside[:100],
                )
            await core.journal.commit([registry.drop_cluster(request.name)])
            core.lift(self._site(request.name))
            self._registry.end_cluster(request.name)
        return Empty()

    async def test_cluster(self, caller: Caller, request: Named) -> ClusterTest:
        """Ask every machine of a cluster, and say what is wrong and where."""
        asked = f"test cluster {request.name[:80]}"
        check_administrator(caller, asked)
        self._core.inventory.candidates(request.name, "", asked)
        site = self._site(request.name)
        results = await clusters.tested(self._core, self._registry, site)
        return ClusterTest(cluster=request.name, results=results)

    # -- allocations -------------------------------------------------------------------------

    @_to_its_end
    async def create_allocation(self, caller: Caller, request: AllocationRequest) -> AllocationInfo:
        """Set machines apart, for some users or for all."""
        asked = f"create allocation {request.name[:80]}"
        check_administrator(caller, asked)
        core = self._core
        async with self._changing:
            record = allocations.drafted(core, request)
            granted = [self._users.granted(name, record.name, asked) for name in request.users]
            changes = [allocations.put_allocation(record), *map(users.put_user, granted)]
            await core.journal.commit(changes)
            core.lift(core.inventory.sites[record.cluster])
            allocations.define(core.inventory.sites[record.cluster], record)
            for user in granted:
                self._users.add(user)
            core.freed(None, (), "")
        listed = views.allocations(core, ListRequest(allocation=record.name)).allocations
        return listed[0]

    @_to_its_end
    async def remove_allocation(self, caller: Caller, request: Named) -> Empty:
        """Give an allocation's machines back. Raises NotFound, WrongState while it is in use."""
        asked = f"remove allocation {request.name[:80]}"
        check_administrator(caller, asked)
        core = self._core
        async with self._changing:
            site = allocations.found(core, request.name, asked)
            await core.journal.commit([allocations.drop_allocation(request.name)])
            core.lift(site)
            allocations.undefine(site, request.name)
            core.freed(None, (), "")
        return Empty()

    # -- users -------------------------------------------------------------------------------

    @_to_its_end
    async def create_user(self, caller: Caller, request: UserRequest) -> NewUser:
        """Make a user; the access key is told this once. Raises AlreadyExists, NotFound."""
        asked = f"create user {request.name[:80]}"
        check_administrator(caller, asked)
        for allocation in request.allocations:
            self._core.inventory.candidates("", allocation, asked)
        async with self._changing:
            make = partial(
                self._users.draft, request.name, request.role, tuple(request.allocations)
            )
            record, key = await asyncio.to_thread(make, self._core.now())
            await self._core.journal.commit([users.put_user(record)])
            return NewUser(user=self._users.add(record), access_key=key)

    async def list_users(self, caller: Caller, request: ListRequest) -> UserList:
        """All users."""
        check_administrator(caller, "list users")
        return UserList(users=self._users.list())

    @_to_its_end
    async def remove_user(self, caller: Caller, request: Named) -> Empty:
        """Forget a user, whose key is worth nothing from here on. Partitions stay. NotFound."""
        asked = f"remove user {request.name[:80]}"
        check_administrator(caller, asked)
        async with self._changing:
            self._users.check_known(request.name, asked)
            await self._core.journal.commit([users.drop_user(request.name)])
            self._users.drop(request.name)
        return Empty()

    async def authenticate(self, name: str, key: str) -> Caller:
        """The caller behind a name and an access key. Raises Unauthenticated."""
        return await self._users.authenticate(name, key)

    def granted(self, caller: Caller, request: Value) -> Value:
        """The request of a user with an access key, kept to the allocations granted to that one.

        Raises Denied for another, InvalidRequest where it must be said which.
        """
        return self._users.kept_to_grants(caller, request)

    # -- inside ------------------------------------------------------------------------------

    def _address(self, request: AgentRequest, asked: str) -> tuple[str, int]:
        if request.host:
            if not 0 < request.port < 65536:
                raise InvalidRequest(f"{request.port} is no port", asked=asked)
            return request.host, request.port
        said = self._discovery.find(request.name)
        if said is None:
            raise NotFound(
                f"no agent {request.name} announced itself",
                asked=asked,
                would_work="say where it is: --host HOST --port PORT",
            )
        return said.host, said.port

    def _check_other(
        self, other: AgentRecord, request: AgentRequest, host: str, port: int, asked: str
    ) -> None:
        if other.name == request.name and not request.replace:
            raise AlreadyExists(
                f"there is an agent {other.name} already, at {other.host}:{other.port}",
                asked=asked,
                would_work="another id, or --replace if it has another address or hardware now",
            )
        if other.name != request.name and (other.host, other.port) == (host, port):
            raise AlreadyExists(
                f"agent {other.name} is at {host}:{port}", asked=asked, would_work="another port"
            )

    async def _met(self, name: str, host: str, port: int, asked: str) -> tuple[AgentRecord, int]:
        """What answers there, and the highest epoch that it has seen."""
        driver = self._registry.driver(name, host, port)
        try:
            async with asyncio.timeout(self._core.hardware.patience):
                report = await driver.describe()
        except TimeoutError:
            raise WrongState(f"nothing answers at {host}:{port} in time", asked=asked) from None
        except PodwrightError as error:
            raise type(error)(
                error.problem,
                asked=asked,
                would_work=error.would_work or f"start it: vipu-agent --machine {name}",
            ) from None
        finally:
            await _let_go(driver)
        if report.name and report.name != name:
            raise InvalidRequest(
                f"the agent at {host}:{port} says that it is {report.name}",
                asked=asked,
                would_work=f"create agent {report.name}, or another address",
            )
        site = self._core.inventory.by_machine.get(name)
        family = FAMILIES.get(report.family)
        if family is None or (site is not None and site.cluster.family.name != family.name):
            wanted = site.cluster.family.name if site else " or ".join(FAMILIES)
            raise InvalidRequest(
                f"its devices are of family {report.family or 'unknown'}",
                asked=asked,
                would_work=f"a machine of {wanted}",
            )
        if len(report.devices) != family.devices_per_machine:
            raise InvalidRequest(
                f"it has {len(report.devices)} {family.device_noun}s",
                asked=asked,
                would_work=f"a machine of this family has {family.devices_per_machine}",
            )
        chips = registry.chips_of(report)
        record = AgentRecord(name=name, host=host, port=port, family=family.name, chips=chips)
        return record, report.fence

    async def _welcome(self, machine: str) -> None:
        """Reset all that a machine has, and let it serve. A silent one is the keeper's to ask."""
        core = self._core
        try:
            report = await core.hardware.describe(machine)
        except PodwrightError:
            return
        core.inventory.by_machine[machine].learn(machine, report)
        everything = {machine: [d.index for d in report.devices if d.healthy]}
        if not await core.hardware.release(core.next_epoch(), everything) and (
            await recovery.release_strays(core, machine, report._replace(configured={}))
        ):
            core.mark_up(machine)

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
        )

    def _cluster(self, name: str) -> ClusterInfo:
        listed = views.clusters(self._core, ListRequest(cluster=name)).clusters
        return next(info for info in listed if info.name == name)

    def _site(self, name: str) -> Any:
        return self._core.inventory.sites[name]


async def _let_go(driver: Driver | None) -> None:
    close: Callable[[], Awaitable[None]] | None = getattr(driver, "close", None)
    if close is not None:
        await close()
