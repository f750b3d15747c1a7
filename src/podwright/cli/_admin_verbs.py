"""What each verb and noun of `vipu-admin` does: one call, one print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from podwright.api import Pod
from podwright.cli import _admin_care, _json
from podwright.cli._admin_calls import call, names, one_of, show, success, users, wants_json
from podwright.cli._admin_show import (
    agent_card,
    agent_table,
    discovered_table,
    test_table,
    user_card,
    user_table,
)
from podwright.cli._admin_users import (
    agent_certificate,
    create_certificate,
    create_user,
    revoke_certificate,
)
from podwright.cli._arguments import complain
from podwright.cli._server import chosen
from podwright.cli._vipu import ACTIONS as OF_VIPU
from podwright.cli._waiting import waiting
from podwright.client import Client, FoundServer
from podwright.errors import WrongState
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
    ListRequest,
    Named,
)

_Arguments = argparse.Namespace
_Connect = Callable[[_Arguments], FoundServer]
_Action = Callable[[_Arguments, Client], int]


def _create_agent(arguments: _Arguments, client: Client) -> int:
    request = AgentRequest(
        name=arguments.name,
        host=arguments.host,
        port=arguments.port,
        replace=arguments.replace,
        certificate=arguments.certificate,
    )
    made = call(client, "CreateAgent", request, AgentInfo)
    return success(f"create agent ({made.name})", made, arguments)


def _create_cluster(arguments: _Arguments, client: Client) -> int:
    request = ClusterRequest(
        name=arguments.name,
        agents=names(arguments.agents or ""),
        num_ilds=arguments.num_ipulinkdomains,
        ild_topology=arguments.topology,
        topology=arguments.cluster_topology,
    )
    with waiting(f"create cluster ({arguments.name})"):
        made = call(client, "CreateCluster", request, ClusterInfo)
    return success(f"create cluster ({made.name})", _json.cluster(made), arguments)


def _create_allocation(arguments: _Arguments, client: Client) -> int:
    request = AllocationRequest(
        name=arguments.name,
        cluster=arguments.cluster,
        agents=names(arguments.agents),
        size=arguments.size,
        users=names(arguments.users),
        scheduler=arguments.scheduler,
    )
    made = call(client, "CreateAllocation", request, AllocationInfo)
    return success(f"create allocation ({made.name})", _json.allocation(made), arguments)


def _remove(method: str, what: str) -> _Action:
    def act(arguments: _Arguments, client: Client) -> int:
        call(client, method, Named(name=arguments.name), Empty)
        return success(f"remove {what} ({arguments.name})", {"name": arguments.name}, arguments)

    return act


def _remove_cluster(arguments: _Arguments, client: Client) -> int:
    """With allocations in it only by --force, or when the terminal says yes."""
    force = arguments.force
    try:
        call(client, "RemoveCluster", Named(name=arguments.name, force=force), Empty)
    except WrongState as refusal:
        if not refusal.data.get("allocations") or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        print(
            f"{refusal.problem}. Remove them with it? [y/N] ", end="", file=sys.stderr, flush=True
        )
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise
        call(client, "RemoveCluster", Named(name=arguments.name, force=True), Empty)
    return success(f"remove cluster ({arguments.name})", {"name": arguments.name}, arguments)


def _agents(client: Client) -> list[AgentInfo]:
    return call(client, "ListAgents", ListRequest(), AgentList).agents


def _list_agents(arguments: _Arguments, client: Client) -> int:
    found = _agents(client)
    return show(arguments, found, lambda: agent_table(found))


def _list_users(arguments: _Arguments, client: Client) -> int:
    found = users(client)
    return show(arguments, found, lambda: user_table(found))


def _get_agent(arguments: _Arguments, client: Client) -> int:
    one = one_of("agent", _agents(client), arguments)
    return show(arguments, one, lambda: agent_card(one))


def _get_user(arguments: _Arguments, client: Client) -> int:
    one = one_of("user", users(client), arguments)
    return show(arguments, one, lambda: user_card(one))


def _discover_agents(arguments: _Arguments, client: Client) -> int:
    found = call(client, "DiscoverAgents", DiscoverRequest(), DiscoveredList).agents
    return show(arguments, found, lambda: discovered_table(found))


def _test_cluster(arguments: _Arguments, client: Client) -> int:
    with waiting(f"test cluster ({arguments.name})"):
        found = call(client, "TestCluster", Named(name=arguments.name), ClusterTest)
    show(arguments, found, lambda: test_table(found))
    wrong = sum(result.ok is False for result in found.results)
    if wrong:
        complain(f"test cluster ({found.cluster}): failed: {wrong} of {len(found.results)} checks.")
        return 1
    if not wants_json(arguments):
        if untold := sum(result.ok is None for result in found.results):
            print(f"{untold} of {len(found.results)} checks are UNKNOWN.")
        print(f"test cluster ({found.cluster}): success.")
    return 0


def perform(arguments: _Arguments, connect: _Connect) -> int:
    """Do what the parsed words say. Returns the exit code; raises the errors of podwright.wire."""
    if arguments.verb == "create" and getattr(arguments, "agent", False):
        return agent_certificate(arguments)  # the server need not know that machine yet
    found = connect(arguments)
    with Pod(found, chosen(arguments)) as pod:
        if arguments.server_version:
            print(f"version: {found.info.version}\nhost: {found.address}")
            return 0
        if same := OF_VIPU.get(arguments.action):  # lists and cards of what users see as well
            return same(arguments, pod)
        return _ACTIONS[arguments.action](arguments, found.client)


_ACTIONS: dict[str, _Action] = {
    "create_agent": _create_agent,
    "create_cluster": _create_cluster,
    "create_allocation": _create_allocation,
    "create_user": create_user,
    "create_certificate": create_certificate,
    "revoke_certificate": revoke_certificate,
    "remove_agent": _remove("RemoveAgent", "agent"),
    "remove_cluster": _remove_cluster,
    "remove_allocation": _remove("RemoveAllocation", "allocation"),
    "remove_user": _remove("RemoveUser", "user"),
    "list_agents": _list_agents,
    "list_users": _list_users,
    "get_agent": _get_agent,
    "get_user": _get_user,
    "discover_agents": _discover_agents,
    "test_cluster": _test_cluster,
    "list_machines": _admin_care.list_machines,
    "add_machine": _admin_care.add_machine,
    "replace_machine": _admin_care.replace_machine,
    "drain_machine": _admin_care.drain_machine,
    "resume_machine": _admin_care.resume_machine,
    "set_quota": _admin_care.set_quota,
    "remove_quota": _admin_care.remove_quota,
    "backup_store": _admin_care.backup_store,
    "show_moves": _admin_care.show_moves,
}
