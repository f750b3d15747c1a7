"""The values of podwright.v1 for administrators: machines, clusters and users."""

from __future__ import annotations

from podwright.wire._method import EVERYBODY, About, Method, ObjectKind, Repeat
from podwright.wire._value import Value
from podwright.wire._values import (
    AllocationInfo,
    ClusterInfo,
    Empty,
    ListRequest,
)


class AgentRequest(Value):
    """Register the agent of a machine. name: the machine's, unique. It must answer at host, port.

    host empty: where the agent of that name announced itself. replace: one that is registered
    is known by its new address and hardware from now on. certificate: the number of the one that
    is believed for this machine, and no other; empty: as it was, at first any of the authority's.
    request_id: as `CreateRequest` has it; so in the requests below.
    """

    name: str
    host: str = ""
    port: int = 0
    replace: bool = False
    certificate: str = ""
    request_id: str = ""


class AgentInfo(Value):
    """An agent in a listing.

    state: UP; DOWN: it does not answer; REFUSED: it has other hardware than when it was
    registered. reason: why it is not UP. devices: how many. last_seen: seconds ago, -1 for never.
    certificate: the number of the one that is believed; empty: any that names the machine.
    """

    name: str
    host: str = ""
    port: int = 0
    family: str = ""
    devices: int = 0
    cluster: str = ""
    state: str = "DOWN"
    reason: str = ""
    software: str = ""
    last_seen: float = -1.0
    chips: list[str] = []
    certificate: str = ""


class AgentList(Value):
    """Agents, in the order of their names."""

    agents: list[AgentInfo] = []
    next_page_token: str = ""


class Announcement(Value):
    """An agent says where it is, so that it can be discovered."""

    name: str
    host: str
    port: int


class DiscoveredAgent(Value):
    """An agent that announced itself. interface: by which the server reaches it. seen: seconds
    ago. Columns as `vipu-admin discover agent` has them (V-IPU administrator guide)."""

    name: str
    host: str
    port: int
    interface: str = ""
    seen: float = 0.0


class DiscoveredList(Value):
    """Agents that announced themselves lately and are not registered."""

    agents: list[DiscoveredAgent] = []


class DiscoverRequest(Value):
    """Which agents announced themselves."""


class ClusterRequest(Value):
    """Make a cluster of registered agents. agents: in the order of their links, domain by domain.

    num_ilds: link domains; the agents are divided evenly. ild_topology: mesh or torus. topology:
    none, looped or switched. Empty: what the size suggests.
    """

    name: str
    agents: list[str] = []
    num_ilds: int = 1
    ild_topology: str = ""
    topology: str = ""
    request_id: str = ""


class ClusterChange(Value):
    """Add machines to a cluster that is in use, or put one in another's place.

    add: registered agents, in the order of their links. link_domain: which they join, or the name
    of a new one; empty: what their number suggests. replace, by: a machine without partitions, and
    the agent that takes its place. dry_run: say what the cluster would be, and change nothing.
    """

    name: str
    add: list[str] = []
    link_domain: str = ""
    replace: str = ""
    by: str = ""
    dry_run: bool = False
    request_id: str = ""


class Named(Value):
    """A machine, cluster or user, by its name. force: to remove a cluster with its allocations."""

    name: str
    force: bool = False
    request_id: str = ""


class CheckResult(Value):
    """One check of one machine. check: connectivity, hardware, cabling, health.

    ok None: it cannot be told. problem: what is wrong, and where.
    """

    check: str
    machine: str
    ok: bool | None = None
    problem: str = ""


class ClusterTest(Value):
    """What a test of a cluster found."""

    cluster: str
    results: list[CheckResult] = []


class AllocationRequest(Value):
    """Set machines of a cluster apart. agents: these; or size: so many devices, chosen by the
    server. users: who may use it. cluster: may be left out where there is only one.
    scheduler: a user of that role, who alone creates in it. owner: a user of any kind, by the name
    by which the kernel or MUNGE knows him, who alone creates in it; one of the two at most.
    """

    name: str
    cluster: str = ""
    agents: list[str] = []
    size: int = 0
    users: list[str] = []
    scheduler: str = ""
    owner: str = ""
    request_id: str = ""


class UserRequest(Value):
    """Make a user with an access key. role: administrator, user, reader or scheduler.

    allocations: those that the user may use; none: all. uid: of the account that is this user
    where the kernel or MUNGE says who calls; -1: none.

    Asked again under the same request_id, the same user gets a new access key, and the first key,
    of which nobody heard, is worth nothing.
    """

    name: str
    role: str = "user"
    allocations: list[str] = []
    uid: int = -1
    request_id: str = ""


class RevokeRequest(Value):
    """Revoke one certificate of a user's. number: the last part of the certificate's URI."""

    name: str
    number: str


class UserInfo(Value):
    """A user in a listing. revoked: numbers of certificates that are worth nothing any more."""

    name: str
    role: str = "user"
    allocations: list[str] = []
    created_at: float = 0.0
    uid: int = -1
    revoked: list[str] = []


class NewUser(Value):
    """A user and the access key, which is shown this once."""

    user: UserInfo
    access_key: str


class UserList(Value):
    """Users, in the order of their names."""

    users: list[UserInfo] = []
    next_page_token: str = ""


_ABOUT_AGENT, _ABOUT_NEW_AGENT = About(ObjectKind.AGENT), About(ObjectKind.AGENT, new=True)
_ABOUT_CLUSTER, _ABOUT_NEW_CLUSTER = About(ObjectKind.CLUSTER), About(ObjectKind.CLUSTER, new=True)
_ABOUT_ALLOCATION, _ABOUT_NEW_ALLOCATION = (
    About(ObjectKind.ALLOCATION),
    About(ObjectKind.ALLOCATION, new=True),
)
_ABOUT_USER, _ABOUT_NEW_USER = About(ObjectKind.USER), About(ObjectKind.USER, new=True)

CALLS = (
    Method(
        "CreateAgent", AgentRequest, AgentInfo, repeat=Repeat.REQUEST_ID, about=_ABOUT_NEW_AGENT
    ),
    Method("ListAgents", ListRequest, AgentList, EVERYBODY, Repeat.CHANGES_NOTHING),
    Method("RemoveAgent", Named, Empty, repeat=Repeat.REQUEST_ID, about=_ABOUT_AGENT),
    # A hint. It changes nothing that is served.
    Method("AnnounceAgent", Announcement, Empty, EVERYBODY, Repeat.CHANGES_NOTHING, _ABOUT_AGENT),
    Method("DiscoverAgents", DiscoverRequest, DiscoveredList, repeat=Repeat.CHANGES_NOTHING),
    Method(
        "CreateCluster",
        ClusterRequest,
        ClusterInfo,
        repeat=Repeat.REQUEST_ID,
        about=_ABOUT_NEW_CLUSTER,
    ),
    Method(
        "ChangeCluster", ClusterChange, ClusterInfo, repeat=Repeat.REQUEST_ID, about=_ABOUT_CLUSTER
    ),
    Method("RemoveCluster", Named, Empty, repeat=Repeat.REQUEST_ID, about=_ABOUT_CLUSTER),
    Method("TestCluster", Named, ClusterTest, repeat=Repeat.CHANGES_NOTHING, about=_ABOUT_CLUSTER),
    Method(
        "CreateAllocation",
        AllocationRequest,
        AllocationInfo,
        repeat=Repeat.REQUEST_ID,
        about=_ABOUT_NEW_ALLOCATION,
    ),
    Method("RemoveAllocation", Named, Empty, repeat=Repeat.REQUEST_ID, about=_ABOUT_ALLOCATION),
    Method("CreateUser", UserRequest, NewUser, repeat=Repeat.REQUEST_ID, about=_ABOUT_NEW_USER),
    Method("ListUsers", ListRequest, UserList, repeat=Repeat.CHANGES_NOTHING),
    Method("RemoveUser", Named, Empty, repeat=Repeat.REQUEST_ID, about=_ABOUT_USER),
    Method("RevokeCertificate", RevokeRequest, UserInfo, repeat=Repeat.SAME, about=_ABOUT_USER),
)
