"""What each verb and noun of `vipu-admin` does: one call, one print."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from podwright.cli import _admin_care, _json
from podwright.cli._admin_show import (
    agent_card,
    agent_table,
    discovered_table,
    test_table,
    user_card,
    user_table,
)
from podwright.cli._arguments import complain
from podwright.cli._vipu import list_quotas
from podwright.cli._vipu_show import (
    allocation_card,
    allocation_table,
    cluster_card,
    cluster_table,
)
from podwright.cli._waiting import waiting
from podwright.client import Client, Found
from podwright.wire import (
    AgentInfo,
    AgentList,
    AgentRequest,
    AllocationInfo,
    AllocationRequest,
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
    UserInfo,
    UserList,
    UserRequest,
    Value,
)

_Arguments = argparse.Namespace
_Connect = Callable[[_Arguments], Found]
_Action = Callable[[_Arguments, Client], int]
_V = TypeVar("_V", bound=Value)
_N = TypeVar("_N", AgentInfo, ClusterInfo, AllocationInfo, UserInfo)


def _call(client: Client, method: str, request: Value, reply: type[_V]) -> _V:
    answer = client.call(method, request)
    assert isinstance(answer, reply)
    return answer


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _create_agent(arguments: _Arguments, client: Client) -> int:
    request = AgentRequest(
        name=arguments.name,
        host=arguments.host,
        port=arguments.port,
        replace=arguments.replace,
    )
    made = _call(client, "CreateAgent", request, AgentInfo)
    return _success(f"create agent ({made.name})", made, arguments)


def _create_cluster(arguments: _Arguments, client: Client) -> int:
    request = ClusterRequest(
        name=arguments.name,
        agents=_names(arguments.agents or ""),
        num_ilds=arguments.num_ipulinkdomains,
        ild_topology=arguments.topology,
        topology=arguments.cluster_topology,
    )
    with waiting(f"create cluster ({arguments.name})"):
        made = _call(client, "CreateCluster", request, ClusterInfo)
    return _success(f"create cluster ({made.name})", _json.cluster(made), arguments)


def _create_allocation(arguments: _Arguments, client: Client) -> int:
    request = AllocationRequest(
        name=arguments.name,
        cluster=arguments.cluster,
        agents=_names(arguments.agents),
        size=arguments.size,
        users=_names(arguments.users),
        scheduler=arguments.scheduler,
    )
    made = _call(client, "CreateAllocation", request, AllocationInfo)
    return _success(f"create allocation ({made.name})", _json.allocation(made), arguments)


def _create_user(arguments: _Arguments, client: Client) -> int:
    path = Path(f"{arguments.name}.vipu-cli.hcl")
    if path.exists():
        raise InvalidRequest(
            f"{path} is there already", would_work="move it away, or work in another folder"
        )
    request = UserRequest(
        name=arguments.name,
        role=arguments.role,
        allocations=_names(arguments.allocations),
        uid=_uid(arguments.uid),
    )
    made = _call(client, "CreateUser", request, NewUser)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(f'api-user-id="{made.user.name}"\napi-access-key="{made.access_key}"\n')
    if _wants_json(arguments):
        print(_json.text(made))
        return 0
    print(f"create user ({made.user.name}): success. Access key is '{made.access_key}'.")
    print(f"It is written to {path}, for {made.user.name} alone; it is not shown again.")
    print(f"Use it with: vipu --config {path} list partitions")
    return 0


def _uid(account: str) -> int:
    """The user id of an account, by number or name. Raises NotFound."""
    if not account:
        return -1
    if account.isdecimal() and len(account) < 10:
        return int(account)
    import pwd

    try:
        return pwd.getpwnam(account).pw_uid
    except KeyError:
        raise NotFound(
            f"this machine has no account {account}", asked="--uid", would_work="its number"
        ) from None


def _remove(method: str, what: str) -> _Action:
    def act(arguments: _Arguments, client: Client) -> int:
        _call(client, method, Named(name=arguments.name), Empty)
        return _success(f"remove {what} ({arguments.name})", {"name": arguments.name}, arguments)

    return act


def _agents(client: Client) -> list[AgentInfo]:
    return _call(client, "ListAgents", ListRequest(), AgentList).agents


def _users(client: Client) -> list[UserInfo]:
    return _call(client, "ListUsers", ListRequest(), UserList).users


def _list_agents(arguments: _Arguments, client: Client) -> int:
    found = _agents(client)
    return _show(arguments, found, lambda: agent_table(found))


def _list_users(arguments: _Arguments, client: Client) -> int:
    found = _users(client)
    return _show(arguments, found, lambda: user_table(found))


def _list_clusters(arguments: _Arguments, client: Client) -> int:
    found = client.list_clusters()
    return _show(arguments, [_json.cluster(c) for c in found], lambda: cluster_table(found))


def _list_allocations(arguments: _Arguments, client: Client) -> int:
    found = client.list_allocations()
    return _show(arguments, [_json.allocation(a) for a in found], lambda: allocation_table(found))


def _get_agent(arguments: _Arguments, client: Client) -> int:
    one = _one("agent", _agents(client), arguments)
    return _show(arguments, one, lambda: agent_card(one))


def _get_user(arguments: _Arguments, client: Client) -> int:
    one = _one("user", _users(client), arguments)
    return _show(arguments, one, lambda: user_card(one))


def _get_cluster(arguments: _Arguments, client: Client) -> int:
    one = _one("cluster", client.list_clusters(), arguments)
    return _show(arguments, _json.cluster(one), lambda: cluster_card(one))


def _get_allocation(arguments: _Arguments, client: Client) -> int:
    one = _one("allocation", client.list_allocations(), arguments)
    return _show(arguments, _json.allocation(one), lambda: allocation_card(one))


def _discover_agents(arguments: _Arguments, client: Client) -> int:
    found = _call(client, "DiscoverAgents", DiscoverRequest(), DiscoveredList).agents
    return _show(arguments, found, lambda: discovered_table(found))


def _test_cluster(arguments: _Arguments, client: Client) -> int:
    with waiting(f"test cluster ({arguments.name})"):
        found = _call(client, "TestCluster", Named(name=arguments.name), ClusterTest)
    _show(arguments, found, lambda: test_table(found))
    wrong = sum(result.ok is False for result in found.results)
    if wrong:
        complain(f"test cluster ({found.cluster}): failed: {wrong} of {len(found.results)} checks.")
        return 1
    if not _wants_json(arguments):
        print(f"test cluster ({found.cluster}): success.")
    return 0


def _one(what: str, found: Sequence[_N], arguments: _Arguments) -> _N:
    for one in found:
        if one.name == arguments.name:
            return one
    have = ", ".join(one.name for one in found[:8]) or "none"
    raise NotFound(
        f"there is no {what} {arguments.name}",
        asked=f"get {what} {arguments.name}",
        would_work=f"there are: {have}",
    )


def _success(what: str, value: object, arguments: _Arguments) -> int:
    print(_json.text(value) if _wants_json(arguments) else f"{what}: success.")
    return 0


def _show(arguments: _Arguments, value: object, text: Callable[[], str]) -> int:
    print(_json.text(value) if _wants_json(arguments) else text())
    return 0


def _wants_json(arguments: _Arguments) -> bool:
    """Is JSON wanted?"""
    return bool(getattr(arguments, "json", False))


def perform(arguments: _Arguments, connect: _Connect) -> int:
    """Do what the parsed words say. Returns the exit code; raises the errors of podwright.wire."""
    found = connect(arguments)
    with found.client:
        if arguments.server_version:
            print(f"version: {found.info.version}\nhost: {found.address}")
            return 0
        return _ACTIONS[arguments.action](arguments, found.client)


_ACTIONS: dict[str, _Action] = {
    "create_agent": _create_agent,
    "create_cluster": _create_cluster,
    "create_allocation": _create_allocation,
    "create_user": _create_user,
    "remove_agent": _remove("RemoveAgent", "agent"),
    "remove_cluster": _remove("RemoveCluster", "cluster"),
    "remove_allocation": _remove("RemoveAllocation", "allocation"),
    "remove_user": _remove("RemoveUser", "user"),
    "list_agents": _list_agents,
    "list_clusters": _list_clusters,
    "list_allocations": _list_allocations,
    "list_users": _list_users,
    "get_agent": _get_agent,
    "get_cluster": _get_cluster,
    "get_allocation": _get_allocation,
    "get_user": _get_user,
    "discover_agents": _discover_agents,
    "test_cluster": _test_cluster,
    "list_machines": _admin_care.list_machines,
    "drain_machine": _admin_care.drain_machine,
    "resume_machine": _admin_care.resume_machine,
    "set_quota": _admin_care.set_quota,
    "remove_quota": _admin_care.remove_quota,
    "list_quotas": list_quotas,
    "backup_store": _admin_care.backup_store,
}
