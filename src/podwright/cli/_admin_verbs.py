"""What each verb and noun of `vipu-admin` does: one call, one print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from podwright.api import Pod, PodAdmin
from podwright.cli import _admin_care, _json
from podwright.cli._admin_calls import names, show, success, wants_json
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
from podwright.client import FoundServer
from podwright.errors import WrongState

_Arguments = argparse.Namespace
_Connect = Callable[[_Arguments], FoundServer]
_Action = Callable[[_Arguments, PodAdmin], int]


def _create_agent(arguments: _Arguments, admin: PodAdmin) -> int:
    made = admin.create_agent(
        arguments.name,
        arguments.host,
        port=arguments.port,
        replace=arguments.replace,
        certificate=arguments.certificate,
    )
    return success(f"create agent ({made.name})", made, arguments)


def _create_cluster(arguments: _Arguments, admin: PodAdmin) -> int:
    with waiting(f"create cluster ({arguments.name})"):
        made = admin.create_cluster(
            arguments.name,
            names(arguments.agents or ""),
            link_domains=arguments.num_ipulinkdomains,
            link_domain_topology=arguments.topology,
            topology=arguments.cluster_topology,
        )
    return success(f"create cluster ({made.name})", _json.cluster(made), arguments)


def _create_allocation(arguments: _Arguments, admin: PodAdmin) -> int:
    made = admin.create_allocation(
        arguments.name,
        cluster=arguments.cluster,
        agents=names(arguments.agents),
        size=arguments.size,
        users=names(arguments.users),
        scheduler=arguments.scheduler,
    )
    return success(f"create allocation ({made.name})", _json.allocation(made), arguments)


def _remove(remove: Callable[[PodAdmin, str], None], what: str) -> _Action:
    def act(arguments: _Arguments, admin: PodAdmin) -> int:
        remove(admin, arguments.name)
        return success(f"remove {what} ({arguments.name})", {"name": arguments.name}, arguments)

    return act


def _remove_cluster(arguments: _Arguments, admin: PodAdmin) -> int:
    """With allocations in it only by --force, or when the terminal says yes."""
    try:
        admin.remove_cluster(arguments.name, force=arguments.force)
    except WrongState as refusal:
        if not refusal.data.get("allocations") or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        print(
            f"{refusal.problem}. Remove them with it? [y/N] ", end="", file=sys.stderr, flush=True
        )
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise
        admin.remove_cluster(arguments.name, force=True)
    return success(f"remove cluster ({arguments.name})", {"name": arguments.name}, arguments)


def _list_agents(arguments: _Arguments, admin: PodAdmin) -> int:
    found = admin.agents()
    return show(arguments, found, lambda: agent_table(found))


def _list_users(arguments: _Arguments, admin: PodAdmin) -> int:
    found = admin.users()
    return show(arguments, found, lambda: user_table(found))


def _get_agent(arguments: _Arguments, admin: PodAdmin) -> int:
    one = admin.agent(arguments.name)
    return show(arguments, one, lambda: agent_card(one))


def _get_user(arguments: _Arguments, admin: PodAdmin) -> int:
    one = admin.user(arguments.name)
    return show(arguments, one, lambda: user_card(one))


def _discover_agents(arguments: _Arguments, admin: PodAdmin) -> int:
    found = admin.discover()
    return show(arguments, found, lambda: discovered_table(found))


def _test_cluster(arguments: _Arguments, admin: PodAdmin) -> int:
    with waiting(f"test cluster ({arguments.name})"):
        found = admin.test_cluster(arguments.name)
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
        return _ACTIONS[arguments.action](arguments, pod.admin)


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
