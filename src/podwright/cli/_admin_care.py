"""What `vipu-admin` does with what is there: machines in and out of service, quotas, backups."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

from podwright.cli import _json
from podwright.cli._admin_calls import call, names
from podwright.cli._admin_show import MachineRow, machine_table, moves_table
from podwright.cli._waiting import waiting
from podwright.client import Client
from podwright.errors import InvalidRequest, NotFound
from podwright.wire import (
    ClusterChange,
    ClusterInfo,
    MovesAllowed,
    MovesRequest,
    MoveTable,
    QuotaInfo,
)

_Arguments = argparse.Namespace


def list_machines(arguments: _Arguments, client: Client) -> int:
    """`vipu-admin list machines`."""
    found = machines(client)
    rows = [row._asdict() for row in found]
    return _show(arguments, rows, lambda: machine_table(found))


def machines(client: Client) -> list[MachineRow]:
    """All machines, in the order of their clusters, and what is on them."""
    states = {}
    for cluster in client.list_clusters():
        states.update({(cluster.name, name): "DRAINED" for name in cluster.drained})
        states.update({(cluster.name, name): "DOWN" for name in cluster.down})
    rows = []
    devices = client.list_devices()
    for (cluster_name, machine), group in groupby(
        devices, key=lambda one: (one.cluster, one.device.machine)
    ):
        own = list(group)
        rows.append(
            MachineRow(
                machine=machine,
                cluster=cluster_name,
                allocation=own[0].allocation,
                state=states.get((cluster_name, machine), "UP"),
                devices=len(own),
                free=sum(one.state == "FREE" for one in own),
                partitions=sorted({one.partition for one in own if one.partition}),
            )
        )
    return rows


def drain_machine(arguments: _Arguments, client: Client) -> int:
    """`vipu-admin drain machine NAME`: says what is on it, which stays."""
    found = _machine(client, arguments.name)
    if not arguments.dry_run:
        client.drain_machine(arguments.name)
        found = _machine(client, arguments.name)
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


def resume_machine(arguments: _Arguments, client: Client) -> int:
    """`vipu-admin resume machine NAME`."""
    client.resume_machine(arguments.name)
    done = f"resume machine ({arguments.name}): success."
    return _show(arguments, {"name": arguments.name}, lambda: done)


def show_moves(arguments: _Arguments, client: Client) -> int:
    """`vipu-admin moves`: who is asked to move, and who would be; or whether anybody is."""
    changes = (arguments.never or arguments.allow) and not arguments.dry_run
    if changes:
        found = call(client, "AllowMoves", MovesAllowed(allowed=arguments.allow), MoveTable)
    else:
        found = call(client, "ShowMoves", MovesRequest(), MoveTable)
    return _show(arguments, found, lambda: moves_table(found))


def add_machine(arguments: _Arguments, client: Client) -> int:
    """`vipu-admin add machine A,B --cluster C`."""
    request = ClusterChange(
        name=arguments.cluster,
        add=names(arguments.name),
        link_domain=arguments.link_domain,
        dry_run=arguments.dry_run,
    )
    return _change(arguments, client, request, f"add machine ({arguments.name})")


def replace_machine(arguments: _Arguments, client: Client) -> int:
    """`vipu-admin replace machine NAME --by AGENT`."""
    clusters = client.list_clusters()
    cluster = next((c.name for c in clusters if arguments.name in c.machines), "")
    if not cluster:
        _machine(client, arguments.name, "replace")
    request = ClusterChange(
        name=cluster, replace=arguments.name, by=arguments.by, dry_run=arguments.dry_run
    )
    return _change(arguments, client, request, f"replace machine ({arguments.name})")


def _change(arguments: _Arguments, client: Client, request: ClusterChange, what: str) -> int:
    with waiting(what):
        made = call(client, "ChangeCluster", request, ClusterInfo)
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


def _machine(client: Client, name: str, verb: str = "drain") -> MachineRow:
    rows = machines(client)
    for row in rows:
        if row.machine == name:
            return row
    have = ", ".join(row.machine for row in rows[:8]) or "none"
    raise NotFound(
        f"there is no machine {name}",
        asked=f"{verb} machine {name}",
        would_work=f"there are: {have}",
    )


def set_quota(arguments: _Arguments, client: Client) -> int:
    """`vipu-admin set quota`: what is left out has no limit."""
    if arguments.devices is None and arguments.partitions is None:
        raise InvalidRequest(
            "set quota: how much is not said",
            would_work="add --devices N, --partitions N or both; `remove quota` ends a quota",
        )
    return _quota(
        arguments,
        client,
        "set",
        devices=-1 if arguments.devices is None else arguments.devices,
        partitions=-1 if arguments.partitions is None else arguments.partitions,
    )


def remove_quota(arguments: _Arguments, client: Client) -> int:
    """`vipu-admin remove quota`."""
    whose = (arguments.user, arguments.allocation)
    there = [q for q in client.list_quotas() if (q.user, q.allocation) == whose]
    if any(whose) and not there:
        raise NotFound(
            f"there is no quota of {_whose(*whose)}", would_work="vipu-admin list quotas shows all"
        )
    return _quota(arguments, client, "remove", devices=-1, partitions=-1)


def _quota(
    arguments: _Arguments, client: Client, verb: str, *, devices: int, partitions: int
) -> int:
    asked = QuotaInfo(
        user=arguments.user,
        allocation=arguments.allocation,
        devices=devices,
        partitions=partitions,
    )
    now = client.set_quota(asked)
    whose = _whose(now.user, now.allocation)
    return _show(arguments, now, lambda: f"{verb} quota ({whose}): success.")


def _whose(user: str, allocation: str) -> str:
    return " in ".join(filter(None, (user, allocation)))


def backup_store(arguments: _Arguments, client: Client) -> int:
    """`vipu-admin backup store FILE`: what the server keeps, as of one instant."""
    from podwright.store import read_backup, write_backup

    with waiting("backup store"):
        text = client.backup()
        count = len(read_backup(text).records)
        write_backup(Path(arguments.name), text)
    done = {"file": arguments.name, "records": count}
    words = f"backup store ({arguments.name}): success. {count} record{'s' * (count != 1)}."
    return _show(arguments, done, lambda: words)


def _show(arguments: _Arguments, value: object, text: Callable[[], str]) -> int:
    print(_json.text(value) if getattr(arguments, "json", False) else text())
    return 0
