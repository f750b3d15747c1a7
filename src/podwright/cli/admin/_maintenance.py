"""The verbs of `vipu-admin` for running a pod: machines in and out of service, quotas, shares,
backups."""

from __future__ import annotations

from pathlib import Path

from podwright.api import PodAdmin
from podwright.cli.admin import _options as options
from podwright.cli.admin._tables import machine_table, moves_table, share_table
from podwright.cli.shared import _json
from podwright.cli.shared._listing import ListView
from podwright.cli.shared._noun_grammar import NamedOptions
from podwright.cli.shared._print_replies import names, show
from podwright.cli.shared._wait_indicator import waiting
from podwright.errors import InvalidRequest
from podwright.ground.plural import counted
from podwright.wire import ClusterInfo, QuotaInfo, ShareInfo


def list_machines(admin: PodAdmin) -> ListView:
    """`vipu-admin list machines`."""
    machines = admin.machines()
    return ListView([row._asdict() for row in machines], machine_table(machines))


def drain_machine(arguments: options.DrainOptions, admin: PodAdmin) -> int:
    """`vipu-admin drain machine NAME`: also prints what is on the machine and stays there."""
    action = f"drain machine {arguments.name}"
    machine = admin.machine(arguments.name, action=action)
    if not arguments.dry_run:
        admin.drain_machine(arguments.name, reason=arguments.reason)
        machine = admin.machine(arguments.name, action=action)
    stays = (
        f"it still has {' '.join(machine.partitions)} on it"
        if machine.partitions
        else "it is empty"
    )
    if arguments.dry_run:
        text = (
            f"drain machine ({machine.machine}): would take {machine.free} free devices out; "
            f"{stays}."
        )
    else:
        text = f"drain machine ({machine.machine}): success.\n{stays[:1].upper()}{stays[1:]}."
    return show(arguments, {**machine._asdict(), "dry_run": arguments.dry_run}, lambda: text)


def resume_machine(arguments: NamedOptions, admin: PodAdmin) -> int:
    """`vipu-admin resume machine NAME`."""
    admin.resume_machine(arguments.name)
    done = f"resume machine ({arguments.name}): success."
    return show(arguments, {"name": arguments.name}, lambda: done)


def show_moves(arguments: options.MovesOptions, admin: PodAdmin) -> int:
    """`vipu-admin moves`: prints which launches are asked to move, and which would be; or that
    moves are off.
    """
    changes = (arguments.never or arguments.allow) and not arguments.dry_run
    moves = admin.allow_moves(arguments.allow) if changes else admin.moves()
    return show(arguments, moves, lambda: moves_table(moves))


def add_machine(arguments: options.AddMachineOptions, admin: PodAdmin) -> int:
    """`vipu-admin add machine A,B --cluster C`."""
    action = f"add machine ({arguments.name})"
    with waiting(action):
        cluster = admin.add_machines(
            arguments.cluster,
            names(arguments.name),
            link_domain=arguments.link_domain,
            dry_run=arguments.dry_run,
        )
    return _changed(arguments, cluster, action)


def replace_machine(arguments: options.ReplaceMachineOptions, admin: PodAdmin) -> int:
    """`vipu-admin replace machine NAME --by AGENT`."""
    action = f"replace machine ({arguments.name})"
    with waiting(action):
        cluster = admin.replace_machine(arguments.name, arguments.by, dry_run=arguments.dry_run)
    return _changed(arguments, cluster, action)


def _changed(
    arguments: options.AddMachineOptions | options.ReplaceMachineOptions,
    cluster: ClusterInfo,
    action: str,
) -> int:
    sizes = " ".join(map(str, cluster.ild_sizes))
    verb = "would have" if arguments.dry_run else "has"
    text = f"cluster {cluster.name} {verb} {counted(cluster.size, 'device')}"
    text += f" in link domains of {sizes}."
    text = (
        f"{action}: {text}"
        if arguments.dry_run
        else f"{action}: success.\n{text[:1].upper()}{text[1:]}"
    )
    value = {**_json.cluster(cluster), "dry_run": arguments.dry_run}
    return show(arguments, value, lambda: text)


def set_quota(arguments: options.SetQuotaOptions, admin: PodAdmin) -> int:
    """`vipu-admin set quota`: limits that are left out do not apply."""
    if arguments.devices is None and arguments.partitions is None:
        raise InvalidRequest(
            "set quota: no limit is named",
            would_work="add --devices N, --partitions N or both; `remove quota` ends a quota",
        )
    now = admin.set_quota(
        user=arguments.user,
        allocation=arguments.allocation,
        devices=arguments.devices,
        partitions=arguments.partitions,
    )
    return _quota(arguments, now, "set")


def remove_quota(arguments: options.QuotaOptions, admin: PodAdmin) -> int:
    """`vipu-admin remove quota`."""
    now = admin.remove_quota(user=arguments.user, allocation=arguments.allocation)
    return _quota(arguments, now, "remove")


def _quota(arguments: options.QuotaOptions, now: QuotaInfo, verb: str) -> int:
    whose = " in ".join(filter(None, (now.user, now.allocation)))
    return show(arguments, now, lambda: f"{verb} quota ({whose}): success.")


def list_shares(admin: PodAdmin) -> ListView:
    """`vipu-admin list shares`."""
    shares = admin.shares()
    return ListView(shares, share_table(shares))


def set_share(arguments: options.SetShareOptions, admin: PodAdmin) -> int:
    """`vipu-admin set share`: also prints that a weight has no effect yet."""
    return _share(arguments, admin.set_share(arguments.guest, arguments.weight), "set")


def remove_share(arguments: options.ShareOptions, admin: PodAdmin) -> int:
    """`vipu-admin remove share`: prints which weight the guest has now."""
    return _share(arguments, admin.remove_share(arguments.guest), "remove")


def _share(arguments: options.ShareOptions, now: ShareInfo, verb: str) -> int:
    lines = [f"{verb} share ({now.guest}): success. Its weight is {now.weight:g}."]
    if verb == "remove" and now.source == "OPTION":
        lines.append("That is what vipu-server --share says.")
    if not now.active:
        lines.append(
            "It has no effect now: no scheduler of this name calls the server. vipu-admin list "
            "shares shows all."
        )
    return show(arguments, now, lambda: "\n".join(lines))


def backup_store(arguments: options.BackupOptions, admin: PodAdmin) -> int:
    """`vipu-admin backup store FILE`: writes what the server stores, as of one instant."""
    from podwright.store import read_backup, write_backup

    with waiting("backup store"):
        text = admin.backup()
        count = len(read_backup(text).records)
        write_backup(Path(arguments.name), text)
    done = {"file": arguments.name, "records": count}
    words = f"backup store ({arguments.name}): success. {count} record{'s' * (count != 1)}."
    return show(arguments, done, lambda: words)


def verify_audit(arguments: options.AuditOptions, admin: PodAdmin) -> int:
    """`vipu-admin audit verify`: checks that nobody changed the audit. Returns 1 if somebody
    did.
    """
    with waiting("audit verify"):
        report = admin.verify_audit(*arguments.head)
    lines = []
    for chain in report.chains:
        text = f", {chain.anchor}" if chain.anchor else ""
        lines.append(f"{chain.head}: {counted(chain.entries, 'entry')}{text}")
        lines += [f"  {problem}" for problem in chain.problems]
    damaged = any(chain.problems for chain in report.chains)
    lines.append("audit verify: it was changed." if damaged else "audit verify: success.")
    show(arguments, report, lambda: "\n".join(lines))
    return 1 if damaged else 0
