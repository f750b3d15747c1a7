"""The verbs and nouns of `vipu-admin`: each makes one call and prints one result."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from podwright.api import PodAdmin
from podwright.cli.admin import _maintenance
from podwright.cli.admin import _options as options
from podwright.cli.admin._tables import (
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
from podwright.cli.shared import _json
from podwright.cli.shared._arguments import complain
from podwright.cli.shared._listing import ListView
from podwright.cli.shared._noun_grammar import ListOptions, NamedOptions
from podwright.cli.shared._print_replies import names, show, success
from podwright.cli.shared._server_options import Connect
from podwright.cli.shared._verb_handlers import Action, list_of, on_admin
from podwright.cli.shared._wait_indicator import waiting
from podwright.errors import WrongState
from podwright.ground.tables import natural


def _create_agent(arguments: options.AgentOptions, admin: PodAdmin) -> int:
    agent = admin.create_agent(
        arguments.name,
        arguments.host,
        port=arguments.port,
        replace=arguments.replace,
        certificate=arguments.certificate,
    )
    return success(f"create agent ({agent.name})", agent, arguments)


def _create_cluster(arguments: options.ClusterOptions, admin: PodAdmin) -> int:
    with waiting(f"create cluster ({arguments.name})"):
        cluster = admin.create_cluster(
            arguments.name,
            names(arguments.agents),
            link_domains=arguments.num_ipulinkdomains,
            link_domain_topology=arguments.topology,
            topology=arguments.cluster_topology,
        )
    return success(f"create cluster ({cluster.name})", _json.cluster(cluster), arguments)


def _create_allocation(arguments: options.AllocationOptions, admin: PodAdmin) -> int:
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


def _remove(remove: Callable[[PodAdmin, str], None], kind: str) -> Action:
    def act(arguments: NamedOptions, admin: PodAdmin) -> int:
        remove(admin, arguments.name)
        return success(f"remove {kind} ({arguments.name})", {"name": arguments.name}, arguments)

    return on_admin(NamedOptions, act)


def _remove_cluster(arguments: options.RemoveClusterOptions, admin: PodAdmin) -> int:
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
    agents = sorted(admin.agents(), key=lambda agent: natural(agent.name))
    return ListView(agents, agent_table(agents))


def _list_users(admin: PodAdmin) -> ListView:
    users = admin.users()
    return ListView(users, user_table(users))


def _get_agent(arguments: NamedOptions, admin: PodAdmin) -> int:
    agent = admin.agent(arguments.name)
    return show(arguments, agent, lambda: agent_card(agent))


def _get_user(arguments: NamedOptions, admin: PodAdmin) -> int:
    user = admin.user(arguments.name)
    return show(arguments, user, lambda: user_card(user))


def _discover_agents(admin: PodAdmin) -> ListView:
    agents = admin.discover()
    return ListView(agents, discovered_table(agents))


def _test_cluster(arguments: NamedOptions, admin: PodAdmin) -> int:
    with waiting(f"test cluster ({arguments.name})"):
        test = admin.test_cluster(arguments.name)
    show(arguments, test, lambda: test_table(test))
    wrong = sum(result.ok is False for result in test.results)
    if wrong:
        complain(f"test cluster ({test.cluster}): failed: {wrong} of {len(test.results)} checks.")
        return 1
    if not arguments.json:
        if untold := sum(result.ok is None for result in test.results):
            print(f"{untold} of {len(test.results)} checks are UNKNOWN.")
        print(f"test cluster ({test.cluster}): success.")
    return 0


def _create_certificate(parsed: argparse.Namespace, connect: Connect) -> int:
    if (arguments := options.CertificateOptions(parsed)).agent:
        return agent_certificate(arguments)  # the server need not know that machine yet
    return on_admin(options.CertificateOptions, create_certificate)(parsed, connect)


def _list(read: Callable[[PodAdmin], ListView]) -> Action:
    return list_of(ListOptions, lambda _, pod: read(pod.admin))


#: The functions of `vipu-admin`, by verb and noun, beside those of `vipu`.
ACTIONS = {
    **OF_VIPU,
    "list agent": _list(_list_agents),
    "list user": _list(_list_users),
    "list machine": _list(_maintenance.list_machines),
    "list share": _list(_maintenance.list_shares),
    "discover agent": _list(_discover_agents),
    "create agent": on_admin(options.AgentOptions, _create_agent),
    "create cluster": on_admin(options.ClusterOptions, _create_cluster),
    "create allocation": on_admin(options.AllocationOptions, _create_allocation),
    "create user": on_admin(options.UserOptions, create_user),
    "create certificate": _create_certificate,
    "revoke certificate": on_admin(options.RevokeOptions, revoke_certificate),
    "remove agent": _remove(PodAdmin.remove_agent, "agent"),
    "remove cluster": on_admin(options.RemoveClusterOptions, _remove_cluster),
    "remove allocation": _remove(PodAdmin.remove_allocation, "allocation"),
    "remove user": _remove(PodAdmin.remove_user, "user"),
    "get agent": on_admin(NamedOptions, _get_agent),
    "get user": on_admin(NamedOptions, _get_user),
    "test cluster": on_admin(NamedOptions, _test_cluster),
    "add machine": on_admin(options.AddMachineOptions, _maintenance.add_machine),
    "replace machine": on_admin(options.ReplaceMachineOptions, _maintenance.replace_machine),
    "drain machine": on_admin(options.DrainOptions, _maintenance.drain_machine),
    "resume machine": on_admin(NamedOptions, _maintenance.resume_machine),
    "set quota": on_admin(options.SetQuotaOptions, _maintenance.set_quota),
    "remove quota": on_admin(options.QuotaOptions, _maintenance.remove_quota),
    "set share": on_admin(options.SetShareOptions, _maintenance.set_share),
    "remove share": on_admin(options.ShareOptions, _maintenance.remove_share),
    "backup store": on_admin(options.BackupOptions, _maintenance.backup_store),
    "audit verify": on_admin(options.AuditOptions, _maintenance.verify_audit),
    "moves": on_admin(options.MovesOptions, _maintenance.show_moves),
}
