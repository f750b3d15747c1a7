"""What an administrator asks of a server, from Python: `vipu-admin` is built on it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from podwright.errors import NotFound
from podwright.wire import (
    AgentInfo,
    AgentList,
    AgentRequest,
    AllocationInfo,
    AllocationRequest,
    ClusterChange,
    ClusterInfo,
    ClusterRequest,
    ClusterTest,
    DiscoveredAgent,
    DiscoveredList,
    DiscoverRequest,
    Empty,
    ListRequest,
    MovesAllowed,
    MovesRequest,
    MoveTable,
    Named,
    NewUser,
    QuotaInfo,
    RevokeRequest,
    UserInfo,
    UserList,
    UserRequest,
    Value,
)

if TYPE_CHECKING:
    from _thread import LockType

    from podwright.client import Client

_V = TypeVar("_V", bound=Value)
_N = TypeVar("_N", AgentInfo, UserInfo)


class MachineRow(NamedTuple):
    """A machine in a listing. state: UP, DRAINED, DOWN. devices, free: how many it has, and how
    many of them are free. partitions: names of those that are on it."""

    machine: str
    cluster: str
    allocation: str
    state: str
    devices: int
    free: int
    partitions: list[str]


class PodAdmin:
    """Agents, clusters, allocations, users, machines, quotas: what administrators may do.

    It is `Pod.admin`, and goes with its `Pod`. Any thread may use it. What is made, changed or
    removed is so when a method returns. Every method raises the errors of `podwright.errors`:
    `Denied` for who is no administrator, `NotFound` for a name that is not there,
    `AlreadyExists` for one that is, `WrongState` for what is in use.
    """

    def __init__(self, client: Client, lock: LockType) -> None:
        self._client, self._lock = client, lock

    def _call(self, method: str, request: Value, reply: type[_V]) -> _V:
        with self._lock:
            answer = self._client.call(method, request)
        assert isinstance(answer, reply)
        return answer

    # Agents

    def agents(self) -> list[AgentInfo]:
        """The registered agents, by name."""
        return self._call("ListAgents", ListRequest(), AgentList).agents

    def agent(self, name: str) -> AgentInfo:
        """One agent. Raises `NotFound`."""
        return _named("agent", name, self.agents())

    def discover(self) -> list[DiscoveredAgent]:
        """Agents that announced themselves lately and are not registered."""
        return self._call("DiscoverAgents", DiscoverRequest(), DiscoveredList).agents

    def create_agent(
        self,
        name: str,
        host: str = "",
        *,
        port: int = 8080,
        replace: bool = False,
        certificate: str = "",
    ) -> AgentInfo:
        """Register the agent of a machine, which must answer.

        host: its address; empty: where it announced itself. replace: one of that name has another
        address, hardware or certificate from now on. certificate: with TLS, the number of the one
        that is believed for it, and no other. Raises `Unavailable` where it does not answer.
        """
        request = AgentRequest(
            name=name, host=host, port=port, replace=replace, certificate=certificate
        )
        return self._call("CreateAgent", request, AgentInfo)

    def remove_agent(self, name: str) -> None:
        """Forget an agent. Raises `WrongState` while a cluster has it."""
        self._call("RemoveAgent", Named(name=name), Empty)

    # Clusters and the machines in them

    def create_cluster(
        self,
        name: str,
        agents: Sequence[str],
        *,
        link_domains: int = 1,
        link_domain_topology: str = "",
        topology: str = "",
    ) -> ClusterInfo:
        """Make a cluster of registered agents.

        agents: their names in the order of their links, link domain by link domain.
        link_domain_topology: inside one, `mesh` or `torus`. topology: between them, `looped`,
        `switched` or `none`. Empty: what the size suggests.
        """
        request = ClusterRequest(
            name=name,
            agents=list(agents),
            num_ilds=link_domains,
            ild_topology=link_domain_topology,
            topology=topology,
        )
        return self._call("CreateCluster", request, ClusterInfo)

    def remove_cluster(self, name: str, *, force: bool = False) -> None:
        """Remove a cluster. force: with its allocations; without, they raise `WrongState`."""
        self._call("RemoveCluster", Named(name=name, force=force), Empty)

    def test_cluster(self, name: str) -> ClusterTest:
        """Test connectivity, hardware and cabling: a result for each check of each machine."""
        return self._call("TestCluster", Named(name=name), ClusterTest)

    def add_machines(
        self, cluster: str, agents: Sequence[str], *, link_domain: str = "", dry_run: bool = False
    ) -> ClusterInfo:
        """Add registered agents to a cluster, in which everything goes on; how it is then.

        link_domain: the one that they join, or a new one's name; empty: what their number suggests.
        dry_run: say what it would be, and change nothing.
        """
        request = ClusterChange(
            name=cluster, add=list(agents), link_domain=link_domain, dry_run=dry_run
        )
        return self._call("ChangeCluster", request, ClusterInfo)

    def replace_machine(self, machine: str, by: str, *, dry_run: bool = False) -> ClusterInfo:
        """Put a registered agent in the place of a machine that is empty; how the cluster is then.

        dry_run: say what it would be, and change nothing.
        """
        with self._lock:
            clusters = self._client.list_clusters()
        cluster = next((one.name for one in clusters if machine in one.machines), "")
        if not cluster:
            self.machine(machine, action=f"replace machine {machine}")
        request = ClusterChange(name=cluster, replace=machine, by=by, dry_run=dry_run)
        return self._call("ChangeCluster", request, ClusterInfo)

    def machines(self) -> list[MachineRow]:
        """All machines, in the order of their clusters, and what is on them."""
        with self._lock:
            clusters, devices = self._client.list_clusters(), self._client.list_devices()
        states = {}
        for cluster in clusters:
            states.update({(cluster.name, name): "DRAINED" for name in cluster.drained})
            states.update({(cluster.name, name): "DOWN" for name in cluster.down})
        rows = []
        for where, group in groupby(devices, key=lambda one: (one.cluster, one.device.machine)):
            own = list(group)
            rows.append(
                MachineRow(
                    machine=where[1],
                    cluster=where[0],
                    allocation=own[0].allocation,
                    state=states.get(where, "UP"),
                    devices=len(own),
                    free=sum(one.state == "FREE" for one in own),
                    partitions=sorted({one.partition for one in own if one.partition}),
                )
            )
        return rows

    def machine(self, name: str, *, action: str = "") -> MachineRow:
        """One machine. action: what it is wanted for, as the refusal says. Raises `NotFound`."""
        rows = self.machines()
        if found := next((row for row in rows if row.machine == name), None):
            return found
        raise _missing("machine", name, [row.machine for row in rows], action)

    def drain_machine(self, name: str) -> None:
        """Place nothing new on a machine; what is there stays, or moves if it can."""
        with self._lock:
            self._client.drain_machine(name)

    def resume_machine(self, name: str) -> None:
        """Place partitions on a machine again."""
        with self._lock:
            self._client.resume_machine(name)

    # Allocations, users, quotas

    def create_allocation(
        self,
        name: str,
        *,
        cluster: str = "",
        agents: Sequence[str] = (),
        size: int = 0,
        users: Sequence[str] = (),
        scheduler: str = "",
    ) -> AllocationInfo:
        """Set machines of a cluster apart.

        cluster: may be left out where there is one. agents: these machines; or size: so many
        devices, chosen by the server. users: who may use it; none: everybody. scheduler: the user
        of that role who alone creates in it. Raises `NoCapacity`.
        """
        request = AllocationRequest(
            name=name,
            cluster=cluster,
            agents=list(agents),
            size=size,
            users=list(users),
            scheduler=scheduler,
        )
        return self._call("CreateAllocation", request, AllocationInfo)

    def remove_allocation(self, name: str) -> None:
        """Remove an allocation. Raises `WrongState` while partitions are in it."""
        self._call("RemoveAllocation", Named(name=name), Empty)

    def users(self) -> list[UserInfo]:
        """All users, by name."""
        return self._call("ListUsers", ListRequest(), UserList).users

    def user(self, name: str) -> UserInfo:
        """One user. Raises `NotFound`."""
        return _named("user", name, self.users())

    def create_user(
        self,
        name: str,
        *,
        role: str = "user",
        allocations: Sequence[str] = (),
        uid: int = -1,
    ) -> NewUser:
        """Make a user, with an access key that nobody is told again.

        role: `administrator`, `user`, `reader` or `scheduler`. allocations: those that the user may
        use; none: all. uid: of the account that is this user without a key; -1: none.
        """
        request = UserRequest(name=name, role=role, allocations=list(allocations), uid=uid)
        return self._call("CreateUser", request, NewUser)

    def remove_user(self, name: str) -> None:
        """Remove a user; the key is worth nothing any more."""
        self._call("RemoveUser", Named(name=name), Empty)

    def revoke_certificate(self, user: str, number: str) -> UserInfo:
        """From now on one certificate of a user's is worth nothing. number: as it was made with."""
        return self._call("RevokeCertificate", RevokeRequest(name=user, number=number), UserInfo)

    def set_quota(
        self,
        *,
        user: str = "",
        allocation: str = "",
        devices: int | None = None,
        partitions: int | None = None,
    ) -> QuotaInfo:
        """Limit what a user has in all allocations, all users in one, or a user in one.

        devices, partitions: at most so many; None: no limit. Without either the quota is gone.
        `Pod.quotas` lists them.
        """
        quota = QuotaInfo(
            user=user,
            allocation=allocation,
            devices=-1 if devices is None else devices,
            partitions=-1 if partitions is None else partitions,
        )
        with self._lock:
            return self._client.set_quota(quota)

    def remove_quota(self, *, user: str = "", allocation: str = "") -> QuotaInfo:
        """End a quota. Raises `NotFound`."""
        with self._lock:
            there = self._client.list_quotas()
        whose = [name for name in (user, allocation) if name]
        if whose and (user, allocation) not in [(one.user, one.allocation) for one in there]:
            raise NotFound(
                f"there is no quota of {' in '.join(whose)}",
                would_work="vipu-admin list quotas shows all",
            )
        return self.set_quota(user=user, allocation=allocation)

    # The server

    def moves(self) -> MoveTable:
        """Which launches are asked to move to other devices, and how many could be."""
        return self._call("ShowMoves", MovesRequest(), MoveTable)

    def allow_moves(self, allowed: bool) -> MoveTable:
        """Ask launches that can to move, as at first; or none from now on, which is kept."""
        return self._call("AllowMoves", MovesAllowed(allowed=allowed), MoveTable)

    def backup(self) -> str:
        """All that the server keeps, as of one instant: the text of a file to restore from.

        It has secrets in it: keep it from others.
        """
        with self._lock:
            return self._client.backup()


def _named(what: str, name: str, found: Sequence[_N]) -> _N:
    for one in found:
        if one.name == name:
            return one
    raise _missing(what, name, [one.name for one in found])


def _missing(what: str, name: str, there: Sequence[str], action: str = "") -> NotFound:
    have = ", ".join(there[:8]) or "none"
    return NotFound(
        f"there is no {what} {name}",
        asked=action or f"get {what} {name}",
        would_work=f"there are: {have}",
    )
