"""The calls of an administrator, from Python. `vipu-admin` is built on them."""

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
    AuditReport,
    AuditRequest,
    BackupReply,
    BackupRequest,
    ClusterChange,
    ClusterInfo,
    ClusterRequest,
    ClusterTest,
    DiscoveredAgent,
    DiscoveredList,
    DiscoverRequest,
    DrainRequest,
    Empty,
    ListRequest,
    MachineName,
    MovesAllowed,
    MovesRequest,
    MoveTable,
    Named,
    NewUser,
    QuotaInfo,
    QuotaList,
    RevokeRequest,
    ShareInfo,
    ShareList,
    ShareRequest,
    UserInfo,
    UserList,
    UserRequest,
)

if TYPE_CHECKING:
    from podwright.client import Client

_N = TypeVar("_N", AgentInfo, UserInfo)


class MachineRow(NamedTuple):
    """A machine in a listing.

    state: UP, DRAINED or DOWN. devices: number of its devices. free: number of those that are free.
    partitions: names of the partitions on it. reason: why it is drained, if somebody said so.
    """

    machine: str
    cluster: str
    allocation: str
    state: str
    devices: int
    free: int
    partitions: list[str]
    reason: str = ""


class PodAdmin:
    """The calls for administrators: agents, clusters, allocations, users, machines, quotas,
    shares.

    It is `Pod.admin` and closes with its `Pod`. Any thread may use it. A change is in force when
    its method returns. Every method raises the errors of `podwright.errors`: `Denied` for a caller
    who is not an administrator, `NotFound` for a name that does not exist, `AlreadyExists` for a
    name that is taken, `WrongState` for a thing that is in use.

    >>> with podwright.connect() as pod:
    ...     {row.state for row in pod.admin.machines()}
    {'UP'}
    """

    def __init__(self, client: Client) -> None:
        self._client, self._ask = client, client.ask

    @property
    def address(self) -> str:
        """The address of the server: its socket, or `host:port`."""
        return self._client.where

    # Agents

    def agents(self) -> list[AgentInfo]:
        """Return the registered agents, by name."""
        return self._ask("ListAgents", ListRequest(), AgentList).agents

    def agent(self, name: str) -> AgentInfo:
        """Return one agent. Raises `NotFound`."""
        return _find_named("agent", name, self.agents())

    def discover(self) -> list[DiscoveredAgent]:
        """Return the agents that announced themselves lately and are not registered."""
        return self._ask("DiscoverAgents", DiscoverRequest(), DiscoveredList).agents

    def create_agent(
        self,
        name: str,
        host: str = "",
        *,
        port: int = 8080,
        replace: bool = False,
        certificate: str = "",
    ) -> AgentInfo:
        """Register the agent of a machine. The agent must answer.

        host: its address; empty: the address from which it announced itself. replace: an agent of
        that name gets another address, hardware or certificate from now on. certificate: with TLS,
        the number of the only certificate that the server accepts from this agent. Raises
        `Unavailable` where the agent does not answer.
        """
        request = AgentRequest(
            name=name, host=host, port=port, replace=replace, certificate=certificate
        )
        return self._ask("CreateAgent", request, AgentInfo)

    def remove_agent(self, name: str) -> None:
        """Forget an agent. Raises `WrongState` while a cluster contains it."""
        self._ask("RemoveAgent", Named(name=name), Empty)

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
        link_domain_topology: the cabling inside a link domain, `mesh` or `torus`. topology: the
        cabling between link domains, `looped`, `switched` or `none`. An empty topology is derived
        from the size.
        """
        request = ClusterRequest(
            name=name,
            agents=list(agents),
            num_ilds=link_domains,
            ild_topology=link_domain_topology,
            topology=topology,
        )
        return self._ask("CreateCluster", request, ClusterInfo)

    def remove_cluster(self, name: str, *, force: bool = False) -> None:
        """Remove a cluster.

        force: remove its allocations too; without it they raise `WrongState`.
        """
        self._ask("RemoveCluster", Named(name=name, force=force), Empty)

    def test_cluster(self, name: str) -> ClusterTest:
        """Test connectivity, hardware and cabling.

        Return a result for each check of each machine.
        """
        return self._ask("TestCluster", Named(name=name), ClusterTest)

    def add_machines(
        self, cluster: str, agents: Sequence[str], *, link_domain: str = "", dry_run: bool = False
    ) -> ClusterInfo:
        """Add registered agents to a cluster without interrupting it.

        Return the cluster as it is then.

        link_domain: the link domain that they join, or the name of a new one; empty: derived from
        their number. dry_run: return what the cluster would be, and change nothing.
        """
        request = ClusterChange(
            name=cluster, add=list(agents), link_domain=link_domain, dry_run=dry_run
        )
        return self._ask("ChangeCluster", request, ClusterInfo)

    def replace_machine(self, machine: str, by: str, *, dry_run: bool = False) -> ClusterInfo:
        """Put a registered agent in the place of an empty machine.

        Return the cluster as it is then.

        dry_run: return what the cluster would be, and change nothing.
        """
        clusters = self._client.list_clusters()
        cluster = next((cluster.name for cluster in clusters if machine in cluster.machines), "")
        if not cluster:
            self.machine(machine, action=f"replace machine {machine}")
        request = ClusterChange(name=cluster, replace=machine, by=by, dry_run=dry_run)
        return self._ask("ChangeCluster", request, ClusterInfo)

    def machines(self) -> list[MachineRow]:
        """Return all machines and what is on them, in the order of their clusters."""
        clusters, devices = self._client.list_clusters(), self._client.list_devices()
        states, reasons = {}, {}
        for cluster in clusters:
            reasons.update({(cluster.name, one.machine): one.reason for one in cluster.drains})
            states.update({(cluster.name, name): "DRAINED" for name in cluster.drained})
            states.update({(cluster.name, name): "DOWN" for name in cluster.down})
        rows = []
        for cluster_and_machine, device_group in groupby(
            devices, key=lambda device_info: (device_info.cluster, device_info.device.machine)
        ):
            machine_devices = list(device_group)
            rows.append(
                MachineRow(
                    machine=cluster_and_machine[1],
                    cluster=cluster_and_machine[0],
                    allocation=machine_devices[0].allocation,
                    state=states.get(cluster_and_machine, "UP"),
                    devices=len(machine_devices),
                    free=sum(info.state == "FREE" for info in machine_devices),
                    partitions=sorted(
                        {info.partition for info in machine_devices if info.partition}
                    ),
                    reason=reasons.get(cluster_and_machine, ""),
                )
            )
        return rows

    def machine(self, name: str, *, action: str = "") -> MachineRow:
        """Return one machine. action: the caller's purpose, for the refusal. Raises `NotFound`."""
        rows = self.machines()
        if match := next((row for row in rows if row.machine == name), None):
            return match
        raise _not_found_error("machine", name, [row.machine for row in rows], action)

    def drain_machine(self, name: str, *, reason: str = "") -> None:
        """Place nothing new on a machine. What is on it stays, or moves if it can.

        reason: shown to everybody wherever the machine is shown as drained.
        """
        self._ask("DrainMachine", DrainRequest(name=name, reason=reason), Empty)

    def resume_machine(self, name: str) -> None:
        """Place partitions on a machine again."""
        self._ask("ResumeMachine", MachineName(name=name), Empty)

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
        """Set machines of a cluster apart under a name.

        cluster: may be left out where there is only one. agents: these machines. size: that many
        devices, chosen by the server, in place of agents. users: who may use it; none: everybody.
        scheduler: the only user, of the role `scheduler`, who may create partitions in it. Raises
        `NoCapacity`.
        """
        request = AllocationRequest(
            name=name,
            cluster=cluster,
            agents=list(agents),
            size=size,
            users=list(users),
            scheduler=scheduler,
        )
        return self._ask("CreateAllocation", request, AllocationInfo)

    def remove_allocation(self, name: str) -> None:
        """Remove an allocation. Raises `WrongState` while partitions are in it."""
        self._ask("RemoveAllocation", Named(name=name), Empty)

    def users(self) -> list[UserInfo]:
        """Return all users, by name."""
        return self._ask("ListUsers", ListRequest(), UserList).users

    def user(self, name: str) -> UserInfo:
        """Return one user. Raises `NotFound`."""
        return _find_named("user", name, self.users())

    def create_user(
        self,
        name: str,
        *,
        role: str = "user",
        allocations: Sequence[str] = (),
        uid: int = -1,
    ) -> NewUser:
        """Make a user, with an access key that is shown this once.

        role: `administrator`, `user`, `reader` or `scheduler`. allocations: those that the user may
        use; none: all. uid: the account that acts as this user without a key; -1: none.
        """
        request = UserRequest(name=name, role=role, allocations=list(allocations), uid=uid)
        return self._ask("CreateUser", request, NewUser)

    def remove_user(self, name: str) -> None:
        """Remove a user. The user's access key is no longer valid."""
        self._ask("RemoveUser", Named(name=name), Empty)

    def revoke_certificate(self, user: str, number: str) -> UserInfo:
        """Revoke one certificate of a user. number: the one that was given when it was made."""
        return self._ask("RevokeCertificate", RevokeRequest(name=user, number=number), UserInfo)

    def set_quota(
        self,
        *,
        user: str = "",
        allocation: str = "",
        devices: int | None = None,
        partitions: int | None = None,
    ) -> QuotaInfo:
        """Limit a user in all allocations, all users in one allocation, or a user in one.

        devices, partitions: the most that are allowed; None: no limit. Without either, the quota is
        removed. `Pod.quotas` lists the quotas.
        """
        quota = QuotaInfo(
            user=user,
            allocation=allocation,
            devices=-1 if devices is None else devices,
            partitions=-1 if partitions is None else partitions,
        )
        return self._ask("SetQuota", quota, QuotaInfo)

    def remove_quota(self, *, user: str = "", allocation: str = "") -> QuotaInfo:
        """Remove a quota. Raises `NotFound`."""
        quotas = self._ask("ListQuotas", ListRequest(), QuotaList).quotas
        scope = [name for name in (user, allocation) if name]
        if scope and (user, allocation) not in [(quota.user, quota.allocation) for quota in quotas]:
            raise NotFound(
                f"there is no quota of {' in '.join(scope)}",
                would_work="vipu-admin list quotas shows all",
            )
        return self.set_quota(user=user, allocation=allocation)

    # The common queue

    def shares(self) -> list[ShareInfo]:
        """Return the weights of those who share the pods, by the guest's name."""
        return self._ask("ListShares", ListRequest(), ShareList).shares

    def set_share(self, guest: str, weight: float) -> ShareInfo:
        """Set the weight of a scheduler (`slurm`, `kubernetes NAME`), or of `people`.

        It is stored, and comes before `vipu-server --share`. Raises `InvalidRequest`.
        """
        return self._ask("SetShare", ShareRequest(guest=guest, weight=weight), ShareInfo)

    def remove_share(self, guest: str) -> ShareInfo:
        """Forget the stored weight of a guest. Return its weight from now on. Raises `NotFound`."""
        if guest not in [share.guest for share in self.shares() if share.source == "STORED"]:
            raise NotFound(
                f"nobody has set the weight of {guest[:80]}",
                would_work="vipu-admin list shares shows all",
            )
        return self._ask("SetShare", ShareRequest(guest=guest, remove=True), ShareInfo)

    # The server

    def moves(self) -> MoveTable:
        """Return which launches are asked to move to other devices, and how many could be asked."""
        return self._ask("ShowMoves", MovesRequest(), MoveTable)

    def allow_moves(self, allowed: bool) -> MoveTable:
        """Allow or forbid the server to ask launches to move.

        It is allowed at first; the choice is stored.
        """
        return self._ask("AllowMoves", MovesAllowed(allowed=allowed), MoveTable)

    def verify_audit(self, *heads: str) -> AuditReport:
        """Check that the audit was not changed. heads: hashes that its chains must contain."""
        return self._ask("VerifyAudit", AuditRequest(heads=list(heads)), AuditReport)

    def backup(self) -> str:
        """Return the text of a file to restore from: all that the server keeps, as of one instant.

        The text contains secrets: keep it from others.
        """
        return self._ask("Backup", BackupRequest(), BackupReply).content


def _find_named(noun: str, wanted_name: str, candidates: Sequence[_N]) -> _N:
    for candidate in candidates:
        if candidate.name == wanted_name:
            return candidate
    raise _not_found_error(noun, wanted_name, [candidate.name for candidate in candidates])


def _not_found_error(
    noun: str, missing_name: str, known_names: Sequence[str], action: str = ""
) -> NotFound:
    text = ", ".join(known_names[:8]) or "none"
    return NotFound(
        f"there is no {noun} {missing_name}",
        operation=action or f"get {noun} {missing_name}",
        would_work=f"there are: {text}",
    )
