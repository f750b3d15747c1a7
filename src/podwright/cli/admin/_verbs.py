"""The verbs and nouns of `vipu-admin`: each makes one call and prints one result."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from podwright.api import Pod, PodAdmin
from podwright.cli.admin import _care as _admin_care
from podwright.cli.admin._show import (
    agent_card,
    agent_table,
    discovered_table,
    test_table,
    user_card,
    user_table,
)
from podwright.cli.admin._users import (
    agent_certificate,
    create_certificate,
    create_user,
    revoke_certificate,
)
from podwright.cli.partitions._verbs import ACTIONS as OF_VIPU
from podwright.cli.partitions._verbs import LISTS as LISTS_OF_VIPU
from podwright.cli.partitions._verbs import act
from podwright.cli.shared import _json
from podwright.cli.shared._arguments import complain
from podwright.cli.shared._listing import ListView, show_list
from podwright.cli.shared._replies import names, show, success, wants_json
from podwright.cli.shared._server import chosen
from podwright.cli.shared._waiting import waiting
from podwright.client import FoundServer
from podwright.errors import WrongState

_Arguments = argparse.Namespace
_Connect = Callable[[_Arguments], FoundServer]
_Action = Callable[[_Arguments, PodAdmin], int]


def _create_agent(arguments: _Arguments, admin: PodAdmin) -> int:
    agent = admin.create_agent(
        arguments.name,
        arguments.host,
        port=arguments.port,
        replace=arguments.replace,
        certificate=arguments.certificate,
    )
    return success(f"create agent ({agent.name})", agent, arguments)


def _create_cluster(arguments: _Arguments, admin: PodAdmin) -> int:
    with waiting(f"create cluster ({arguments.name})"):
        cluster = admin.create_cluster(
            arguments.name,
            names(arguments.agents or ""),
            link_domains=arguments.num_ipulinkdomains,
            link_domain_topology=arguments.topology,
            topology=arguments.cluster_topology,
        )
    return success(f"create cluster ({cluster.name})", _json.cluster(cluster), arguments)


def _create_allocation(arguments: _Arguments, admin: PodAdmin) -> int:
    allocation = admin.create_allocation(
        arguments.name,
        cluster=arguments.cluster,
        agents=names(arguments.agents),
        size=arguments.size,
        users=names(arguments.users),
        scheduler=arguments.scheduler,
    )
    return success(
        f"create allocation ({allocation.name})", _json.allocation(allocation), arguments
    )


def _remove(remove: Callable[[PodAdmin, str], None], kind: str) -> _Action:
    def act(arguments: _Arguments, admin: PodAdmin) -> int:
        remove(admin, arguments.name)
        return success(f"remove {kind} ({arguments.name})", {"name": arguments.name}, arguments)

    return act


def _remove_cluster(arguments: _Arguments, admin: PodAdmin) -> int:
    """Remove a cluster. If it has allocations, this needs --force or a confirmation at the
    terminal.
    """
    try:
        admin.remove_cluster(arguments.name, force=arguments.force)
    except WrongState as refusal:
        if not refusal.data.get("allocations") or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        print(
            f"{refusal.problem}. Remove them with it, on the server {admin.address}? [y/N] ",
            end="",
            file=sys.stderr,
            flush=True,
        )
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise
        admin.remove_cluster(arguments.name, force=True)
    return success(f"remove cluster ({arguments.name})", {"name": arguments.name}, arguments)


def _list_agents(admin: PodAdmin) -> ListView:
    agents = admin.agents()
    return ListView(agents, agent_table(agents))


def _list_users(admin: PodAdmin) -> ListView:
    users = admin.users()
    return ListView(users, user_table(users))


def _get_agent(arguments: _Arguments, admin: PodAdmin) -> int:
    agent = admin.agent(arguments.name)
    return show(arguments, agent, lambda: agent_card(agent))


def _get_user(arguments: _Arguments, admin: PodAdmin) -> int:
    user = admin.user(arguments.name)
    return show(arguments, user, lambda: user_card(user))


def _discover_agents(admin: PodAdmin) -> ListView:
    agents = admin.discover()
    return ListView(agents, discovered_table(agents))


def _test_cluster(arguments: _Arguments, admin: PodAdmin) -> int:
    with waiting(f"test cluster ({arguments.name})"):
        test = admin.test_cluster(arguments.name)
    show(arguments, test, lambda: test_table(test))
    wrong = sum(result.ok is False for result in test.results)
    if wrong:
        complain(f"test cluster ({test.cluster}): failed: {wrong} of {len(test.results)} checks.")
        return 1
    if not wants_json(arguments):
        if untold := sum(result.ok is None for result in test.results):
            print(f"{untold} of {len(test.results)} checks are UNKNOWN.")
        print(f"test cluster ({test.cluster}): success.")
    return 0


def perform(arguments: _Arguments, connect: _Connect) -> int:
    """Carry out the parsed verb. Returns the exit code; raises the errors of podwright.wire."""
    if arguments.verb == "create" and getattr(arguments, "agent", False):
        return agent_certificate(arguments)  # the server need not know that machine yet
    server = connect(arguments)
    with Pod(server, chosen(arguments)) as pod:
        if arguments.server_version:
            print(f"version: {server.info.version}\nhost: {server.address}")
            return 0
        if arguments.action in OF_VIPU or arguments.action in LISTS_OF_VIPU:
            return act(arguments, pod)  # lists and cards that users see too
        if (read := _LISTS.get(arguments.action)) is not None:
            return show_list(arguments, lambda: read(pod.admin))
        return _ACTIONS[arguments.action](arguments, pod.admin)


_LISTS: dict[str, Callable[[PodAdmin], ListView]] = {
    "list_agents": _list_agents,
    "list_users": _list_users,
    "list_machines": _admin_care.list_machines,
    "list_shares": _admin_care.list_shares,
    "discover_agents": _discover_agents,
}
_ACTIONS: dict[str, _Action] = {
    "create_agent": _create_agent,
    "create_cluster": _create_cluster,
    "create_allocation": _create_allocation,
    "create_user": create_user,
    "create_certificate": create_certificate,
    "revoke_certificate": revoke_certificate,
    "remove_agent": _remove(PodAdmin.remove_agent, "agent"),
    "remove_cluster": _remove_cluster,
    "remove_allocation": _remove(PodAdmin.remove_allocation, "allocation"),
    "remove_user": _remove(PodAdmin.remove_user, "user"),
    "get_agent": _get_agent,
    "get_user": _get_user,
    "test_cluster": _test_cluster,
    "add_machine": _admin_care.add_machine,
    "replace_machine": _admin_care.replace_machine,
    "drain_machine": _admin_care.drain_machine,
    "resume_machine": _admin_care.resume_machine,
    "set_quota": _admin_care.set_quota,
    "remove_quota": _admin_care.remove_quota,
    "set_share": _admin_care.set_share,
    "remove_share": _admin_care.remove_share,
    "backup_store": _admin_care.backup_store,
    "verify_audit": _admin_care.verify_audit,
    "show_moves": _admin_care.show_moves,
}
