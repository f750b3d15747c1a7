"""What `vipu-admin` does with what is there: machines in and out of service, quotas, backups."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from podwright.api import PodAdmin
from podwright.cli import _json
from podwright.cli._admin_calls import names
from podwright.cli._admin_show import machine_table, moves_table
from podwright.cli._waiting import waiting
from podwright.errors import InvalidRequest
from podwright.wire import ClusterInfo, QuotaInfo

_Arguments = argparse.Namespace


def list_machines(arguments: _Arguments, admin: PodAdmin) -> int:
    """`vipu-admin list machines`."""
    found = admin.machines()
    rows = [row._asdict() for row in found]
    return _show(arguments, rows, lambda: machine_table(found))


def drain_machine(arguments: _Arguments, admin: PodAdmin) -> int:
    """`vipu-admin drain machine NAME`: says what is on it, which stays."""
    action = f"drain machine {arguments.name}"
    found = admin.machine(arguments.name, action=action)
    if not arguments.dry_run:
        admin.drain_machine(arguments.name)
        found = admin.machine(arguments.name, action=action)
    stays = (
        f"it still has {' '.join(found.partitions)} on it" if found.partitions else "it is empty"
    )
    if arguments.dry_run:
        text = (
            f"drain machine ({found.machine}): would take {found.free} free devices out; {stays}."
        )
    else:
        text = f"drain machine ({found.machine}): success.\n{stays[:1].upper()}{stays[1:]}."
    return _show(arguments, {**found._asdict(), "dry_run": arguments.dry_run}, lambda: text)


def resume_machine(arguments: _Arguments, admin: PodAdmin) -> int:
    """`vipu-admin resume machine NAME`."""
    admin.resume_machine(arguments.name)
    done = f"resume machine ({arguments.name}): success."
    return _show(arguments, {"name": arguments.name}, lambda: done)


def show_moves(arguments: _Arguments, admin: PodAdmin) -> int:
    """`vipu-admin moves`: who is asked to move, and who would be; or whether anybody is."""
    changes = (arguments.never or arguments.allow) and not arguments.dry_run
    found = admin.allow_moves(arguments.allow) if changes else admin.moves()
    return _show(arguments, found, lambda: moves_table(found))


def add_machine(arguments: _Arguments, admin: PodAdmin) -> int:
    """`vipu-admin add machine A,B --cluster C`."""
    what = f"add machine ({arguments.name})"
    with waiting(what):
        made = admin.add_machines(
            arguments.cluster,
            names(arguments.name),
            link_domain=arguments.link_domain,
            dry_run=arguments.dry_run,
        )
    return _changed(arguments, made, what)


def replace_machine(arguments: _Arguments, admin: PodAdmin) -> int:
    """`vipu-admin replace machine NAME --by AGENT`."""
    what = f"replace machine ({arguments.name})"
    with waiting(what):
        made = admin.replace_machine(arguments.name, arguments.by, dry_run=arguments.dry_run)
    return _changed(arguments, made, what)


def _changed(arguments: _Arguments, made: ClusterInfo, what: str) -> int:
    sizes = " ".join(map(str, made.ild_sizes))
    text = f"cluster {made.name} {'would have' if arguments.dry_run else 'has'} {made.size} devices"
    text += f" in link domains of {sizes}."
    text = (
        f"{what}: {text}"
        if arguments.dry_run
        else f"{what}: success.\n{text[:1].upper()}{text[1:]}"
    )
    value = {**_json.cluster(made), "dry_run": arguments.dry_run}
    return _show(arguments, value, lambda: text)


def set_quota(arguments: _Arguments, admin: PodAdmin) -> int:
    """`vipu-admin set quota`: what is left out has no limit."""
    if arguments.devices is None and arguments.partitions is None:
        raise InvalidRequest(
            "set quota: how much is not said",
            would_work="add --devices N, --partitions N or both; `remove quota` ends a quota",
        )
    now = admin.set_quota(
        user=arguments.user,
        allocation=arguments.allocation,
        devices=arguments.devices,
        partitions=arguments.partitions,
    )
    return _quota(arguments, now, "set")


def remove_quota(arguments: _Arguments, admin: PodAdmin) -> int:
    """`vipu-admin remove quota`."""
    now = admin.remove_quota(user=arguments.user, allocation=arguments.allocation)
    return _quota(arguments, now, "remove")


def _quota(arguments: _Arguments, now: QuotaInfo, verb: str) -> int:
    whose = " in ".join(filter(None, (now.user, now.allocation)))
    return _show(arguments, now, lambda: f"{verb} quota ({whose}): success.")


def backup_store(arguments: _Arguments, admin: PodAdmin) -> int:
    """`vipu-admin backup store FILE`: what the server keeps, as of one instant."""
    from podwright.store import read_backup, write_backup

    with waiting("backup store"):
        text = admin.backup()
        count = len(read_backup(text).records)
        write_backup(Path(arguments.name), text)
    done = {"file": arguments.name, "records": count}
    words = f"backup store ({arguments.name}): success. {count} record{'s' * (count != 1)}."
    return _show(arguments, done, lambda: words)


def _show(arguments: _Arguments, value: object, text: Callable[[], str]) -> int:
    print(_json.text(value) if getattr(arguments, "json", False) else text())
    return 0
