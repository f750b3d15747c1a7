"""The verbs and nouns of `vipu`: each makes one call and prints one result."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable

from podwright.api import Pod
from podwright.cli.partitions import _queue as _vipu_queue
from podwright.cli.partitions._show import (
    allocation_card,
    allocation_table,
    attribute_table,
    cluster_card,
    cluster_table,
    device_table,
    lease_table,
    partition_card,
    partition_table,
    quota_table,
)
from podwright.cli.shared import _json
from podwright.cli.shared._arguments import complain
from podwright.cli.shared._listing import ListView, show_list
from podwright.cli.shared._replies import show, success, wants_json
from podwright.cli.shared._server import chosen
from podwright.cli.shared._waiting import waiting
from podwright.client import FoundServer
from podwright.errors import InvalidRequest, NotFound
from podwright.wire import (
    GatewayRouting,
    PartitionInfo,
    PartitionSpec,
    ReadyState,
    Routing,
    SyncType,
    ipuof_gcds,
)

_Arguments = argparse.Namespace
_Connect = Callable[[_Arguments], FoundServer]
_Action = Callable[[_Arguments, Pod], int]


def _create_partition(arguments: _Arguments, pod: Pod) -> int:
    spec, duration = partition_spec(arguments), arguments.duration
    if arguments.wait:
        priority = arguments.priority
        created = pod.create(
            spec, wait=True, priority=priority, duration=duration, progress=_sentence
        )
    else:
        with waiting(f"create partition ({arguments.name})"):
            created = pod.create(spec, duration=duration)
    if created.ready_state is ReadyState.ACTIVE and not arguments.no_ipuof_files:
        from podwright.api import _ipuof_files  # tempfile, pathlib: most commands write no files

        _ipuof_files.write(created, system_wide=arguments.system_wide, report=complain)
    return _outcome("create", created, arguments)


def _sentence(line: str) -> None:
    complain(f"{line}.")


def _reset_partition(arguments: _Arguments, pod: Pod) -> int:
    with waiting(f"reset partition ({arguments.name})"):
        info = pod.reset(arguments.name, relocatable=arguments.relocatable, force=arguments.force)
    if info.ready_state is ReadyState.ACTIVE:
        from podwright.api import _ipuof_files

        _ipuof_files.rewrite(info, complain)
    return _outcome("reset", info, arguments)


def _remove_partition(arguments: _Arguments, pod: Pod) -> int:
    from podwright.api import _ipuof_files

    with waiting(f"remove partition ({arguments.name})"):
        pod.remove(arguments.name, force=arguments.force)
    _ipuof_files.remove(arguments.name, complain)
    return success(f"remove partition ({arguments.name})", {"name": arguments.name}, arguments)


def _remove_lease(arguments: _Arguments, pod: Pod) -> int:
    lease = pod.end_lease(arguments.name, force=arguments.force)
    if lease.state == "FENCING":
        complain(
            f"lease {lease.id} is over, and partition {lease.partition} is FENCING: nobody gets "
            f"its devices before {' and '.join(lease.waits_for)} did their part. "
            f"Look: vipu explain {lease.partition}"
        )
    return success(f"remove lease ({lease.id})", lease, arguments)


def _outcome(verb: str, info: PartitionInfo, arguments: _Arguments) -> int:
    action = f"{verb} partition ({info.name})"
    if info.ready_state is ReadyState.ACTIVE:
        return success(action, _json.partition(info), arguments)
    reason = "; ".join(info.errors) or f"it is {info.ready_state.value}"
    complain(f"{action}: failed: {reason}. Try: vipu reset partition {info.name}")
    return 1


def _list_partitions(arguments: _Arguments, pod: Pod) -> ListView:
    partitions = pod.partitions(cluster=arguments.cluster, allocation=arguments.allocation)
    return ListView([_json.partition(p) for p in partitions], partition_table(partitions))


def _list_clusters(arguments: _Arguments, pod: Pod) -> ListView:
    clusters = pod.clusters()
    return ListView([_json.cluster(c) for c in clusters], cluster_table(clusters))


def _list_allocations(arguments: _Arguments, pod: Pod) -> ListView:
    allocations = pod.allocations(cluster=arguments.cluster)
    return ListView([_json.allocation(a) for a in allocations], allocation_table(allocations))


def _list_devices(arguments: _Arguments, pod: Pod) -> ListView:
    devices = pod.devices(cluster=arguments.cluster, allocation=arguments.allocation)
    return ListView(devices, device_table(devices))


def _list_leases(arguments: _Arguments, pod: Pod) -> ListView:
    leases = pod.leases()
    return ListView(leases, lease_table(leases))


def _list_quotas(arguments: _Arguments, pod: Pod) -> ListView:
    quotas = pod.quotas(allocation=arguments.allocation)
    return ListView(quotas, quota_table(quotas))


def _list_attributes(arguments: _Arguments, pod: Pod) -> ListView:
    devices = pod.devices()
    return ListView(_json.attributes(devices), attribute_table(devices))


def _list_waiters(arguments: _Arguments, pod: Pod) -> ListView:
    return _vipu_queue.list_waiters(pod)


def _list_queue(arguments: _Arguments, pod: Pod) -> ListView:
    return _vipu_queue.list_queue(pod)


def _get_partition(arguments: _Arguments, pod: Pod) -> int:
    info = pod.get(arguments.name)
    if arguments.ipuof_configs:
        return _ipuof(arguments, info)
    gcd = arguments.gcd
    if gcd is not None and gcd >= info.num_gcds:
        raise NotFound(
            f"there is no GCD {gcd}",
            operation=f"get partition {info.name}",
            would_work=f"it has {info.num_gcds}, counted from 0",
        )
    return show(arguments, _json.partition_in_full(info), lambda: partition_card(info, gcd))


def _ipuof(arguments: _Arguments, info: PartitionInfo) -> int:
    """Print JSON only for one GCD, and a heading before it for each of all GCDs.

    V-IPU does so, and scripts cut that output.
    """
    gcds = ipuof_gcds(info, arguments.gcd)
    if arguments.gcd is None and not wants_json(arguments):
        print(f"IPUoF configuration of partition {info.name}:")
    print(_json.text(gcds[0] if len(gcds) == 1 else gcds))
    return 0


def _get_cluster(arguments: _Arguments, pod: Pod) -> int:
    clusters = pod.clusters()
    info = next((c for c in clusters if c.name == arguments.name), None)
    if info is None:
        raise _missing("cluster", arguments.name, [c.name for c in clusters])
    return show(arguments, _json.cluster(info), lambda: cluster_card(info))


def _get_allocation(arguments: _Arguments, pod: Pod) -> int:
    allocations = pod.allocations()
    info = next((a for a in allocations if a.name == arguments.name), None)
    if info is None:
        raise _missing("allocation", arguments.name, [a.name for a in allocations])
    return show(arguments, _json.allocation(info), lambda: allocation_card(info))


def _explain(arguments: _Arguments, pod: Pod) -> int:
    return _vipu_queue.explain(arguments, pod, partition_spec)


def _missing(kind: str, name: str, known: list[str]) -> NotFound:
    there_are = f"there are: {', '.join(known)}" if known else f"there is no {kind} at all"
    return NotFound(f"there is no {kind} {name!r}", would_work=there_are)


def partition_spec(arguments: _Arguments) -> PartitionSpec:
    """Return the request of `vipu create partition`.

    Raises InvalidRequest for mistakes that are visible without a server.
    """
    action = f"create partition {arguments.name}".rstrip()
    if arguments.priority and not arguments.wait:
        raise InvalidRequest(
            "--priority is for the queue", operation=action, would_work="add --wait"
        )
    if arguments.index is not None:
        raise InvalidRequest(
            "--index is named in V-IPU's documents, but not what it means",
            operation=action,
            would_work="--devices chooses devices one by one",
        )
    devices = parse_devices(arguments.devices) if arguments.devices else []
    if not arguments.size and not devices:
        raise InvalidRequest("--size is missing", operation=action, would_work="say --size N")
    if devices and arguments.size not in (None, len(devices)):
        raise InvalidRequest(
            f"--size says {arguments.size}, --devices names {len(devices)}",
            operation=action,
            would_work="leave out --size",
        )
    sync = _sync_type(arguments.sync_type)
    if arguments.reconfigurable:
        if sync not in (SyncType.DEFAULT, SyncType.GS2_DEFAULT):
            raise InvalidRequest(
                f"a reconfigurable partition has sync type c2-compatible, not "
                f"{arguments.sync_type}",
                operation=action,
                would_work="leave out --sync-type or --reconfigurable",
            )
        sync = SyncType.GS2_DEFAULT
    # Under host mapping, a job has an allocation of its own, and cannot create anything outside it.
    own = "" if arguments.cluster else os.environ.get("PODWRIGHT_ALLOCATION", "")
    return PartitionSpec(
        name=arguments.name,
        size=arguments.size or len(devices),
        cluster=arguments.cluster,
        allocation=arguments.allocation or own,
        num_gcds=arguments.num_gcds,
        num_replicas=arguments.num_replicas,
        num_ilds=arguments.num_ilds,
        routing=Routing[arguments.routing.upper()],
        gw_routing=GatewayRouting[arguments.gw_routing.upper()],
        sync_type=sync,
        reconfigurable=arguments.reconfigurable,
        devices=devices,
        auto_reset=not arguments.no_auto_reset,
        relocatable=arguments.relocatable,
        movable=arguments.movable,
        profile=arguments.profile,
        hosts=[host.strip() for host in arguments.host.split(",")] if arguments.host else [],
    )


def _sync_type(text: str) -> SyncType:
    """Return a sync type, as any of V-IPU's tools writes it: c2-compatible, ST_…, or in lower
    case.
    """
    word = text.upper().replace("-", "_").removeprefix("ST_")
    if word in ("", "UNDEFINED"):
        return SyncType.DEFAULT
    if word == "C2_COMPATIBLE":
        return SyncType.GS2_DEFAULT
    if word in SyncType.__members__:
        return SyncType[word]
    names = ["c2-compatible", *(name.lower().replace("_", "-") for name in SyncType.__members__)]
    raise InvalidRequest(
        f"{text!r} is not a sync type", would_work=f"it is one of: {', '.join(names)}"
    )


def parse_devices(text: str) -> list[tuple[int, int]]:
    """Return `0:0-3,1:8` as (link domain, offset) pairs, in that order."""
    devices: list[tuple[int, int]] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9}):(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        first, last = (int(match[2]), int(match[3] or match[2])) if match else (1, 0)
        if match is None or not 0 <= last - first < 1 << 20:
            raise InvalidRequest(
                f"--devices: {part!r} is not DOMAIN:OFFSET or DOMAIN:FIRST-LAST",
                would_work="write, say, 0:0-3,1:8",
            )
        devices += [(int(match[1]), offset) for offset in range(first, last + 1)]
    if len(set(devices)) < len(devices):
        twice = next(device for device in devices if devices.count(device) > 1)
        raise InvalidRequest(f"--devices names {twice[0]}:{twice[1]} twice")
    return devices


def _server_version(server: FoundServer) -> int:
    print(f"version: {server.info.version}\nhost: {server.address}")
    return 0


def perform(arguments: _Arguments, connect: _Connect) -> int:
    """Carry out the parsed verb. Returns the exit code; raises the errors of podwright.wire."""
    if arguments.server_version:
        server = connect(arguments)
        with server.client:
            return _server_version(server)
    if arguments.action == "create_partition":
        partition_spec(arguments)  # these mistakes need no server to be found
    server = connect(arguments)
    with Pod(server, chosen(arguments)) as pod:
        return act(arguments, pod)


def act(arguments: _Arguments, pod: Pod) -> int:
    """Carry out one of ACTIONS or LISTS, as the arguments name it."""
    if (read := LISTS.get(arguments.action)) is not None:
        return show_list(arguments, lambda: read(arguments, pod))
    return ACTIONS[arguments.action](arguments, pod)


#: The lists that `vipu list` and `vipu-admin list` have in common.
LISTS: dict[str, Callable[[_Arguments, Pod], ListView]] = {
    "list_partitions": _list_partitions,
    "list_clusters": _list_clusters,
    "list_allocations": _list_allocations,
    "list_devices": _list_devices,
    "list_leases": _list_leases,
    "list_attributes": _list_attributes,
    "list_waiters": _list_waiters,
    "list_queue": _list_queue,
    "list_quotas": _list_quotas,
}
#: The actions of `vipu`. `vipu-admin` uses these too for what administrators see as users do.
ACTIONS: dict[str, _Action] = {
    "reset_partition": _reset_partition,
    "remove_partition": _remove_partition,
    "get_partition": _get_partition,
    "get_cluster": _get_cluster,
    "get_allocation": _get_allocation,
    "create_partition": _create_partition,
    "remove_lease": _remove_lease,
    "remove_waiter": _vipu_queue.remove_waiter,
    "explain": _explain,
    "events": _vipu_queue.events,
}
