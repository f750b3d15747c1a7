"""What each verb and noun of `vipu` does: one call, one print."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable

from podwright.api import Pod
from podwright.cli import _json, _vipu_queue
from podwright.cli._arguments import complain
from podwright.cli._server import chosen
from podwright.cli._vipu_show import (
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
from podwright.cli._waiting import waiting
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
        made = pod.create(spec, wait=True, priority=priority, duration=duration, progress=_sentence)
    else:
        with waiting(f"create partition ({arguments.name})"):
            made = pod.create(spec, duration=duration)
    if made.ready_state is ReadyState.ACTIVE and not arguments.no_ipuof_files:
        from podwright.cli import _vipu_files  # tempfile, pathlib: most commands write none

        _vipu_files.write(made, system_wide=arguments.system_wide)
    return _outcome("create", made, arguments)


def _sentence(line: str) -> None:
    complain(f"{line}.")


def _reset_partition(arguments: _Arguments, pod: Pod) -> int:
    with waiting(f"reset partition ({arguments.name})"):
        info = pod.reset(arguments.name, relocatable=arguments.relocatable, force=arguments.force)
    if info.ready_state is ReadyState.ACTIVE:
        from podwright.cli import _vipu_files

        _vipu_files.rewrite(info)
    return _outcome("reset", info, arguments)


def _remove_partition(arguments: _Arguments, pod: Pod) -> int:
    from podwright.cli import _vipu_files

    with waiting(f"remove partition ({arguments.name})"):
        pod.remove(arguments.name, force=arguments.force)
    _vipu_files.remove(arguments.name)
    return _success(f"remove partition ({arguments.name})", {"name": arguments.name}, arguments)


def _remove_lease(arguments: _Arguments, pod: Pod) -> int:
    lease = pod.end_lease(arguments.name, force=arguments.force)
    if lease.state == "FENCING":
        complain(
            f"lease {lease.id} is over, and partition {lease.partition} is FENCING: nobody gets "
            f"its devices before {' and '.join(lease.waits_for)} did their part. "
            f"Look: vipu explain {lease.partition}"
        )
    return _success(f"remove lease ({lease.id})", lease, arguments)


def _outcome(verb: str, info: PartitionInfo, arguments: _Arguments) -> int:
    what = f"{verb} partition ({info.name})"
    if info.ready_state is ReadyState.ACTIVE:
        return _success(what, _json.partition(info), arguments)
    why = "; ".join(info.errors) or f"it is {info.ready_state.value}"
    complain(f"{what}: failed: {why}. Try: vipu reset partition {info.name}")
    return 1


def _success(what: str, value: object, arguments: _Arguments) -> int:
    print(_json.text(value) if _wants_json(arguments) else f"{what}: success.")
    return 0


def _list_partitions(arguments: _Arguments, pod: Pod) -> int:
    found = pod.partitions(cluster=arguments.cluster, allocation=arguments.allocation)
    return _show(arguments, [_json.partition(p) for p in found], lambda: partition_table(found))


def _list_clusters(arguments: _Arguments, pod: Pod) -> int:
    found = pod.clusters()
    return _show(arguments, [_json.cluster(c) for c in found], lambda: cluster_table(found))


def _list_allocations(arguments: _Arguments, pod: Pod) -> int:
    found = pod.allocations(cluster=arguments.cluster)
    return _show(arguments, [_json.allocation(a) for a in found], lambda: allocation_table(found))


def _list_devices(arguments: _Arguments, pod: Pod) -> int:
    found = pod.devices(cluster=arguments.cluster, allocation=arguments.allocation)
    return _show(arguments, found, lambda: device_table(found))


def _list_leases(arguments: _Arguments, pod: Pod) -> int:
    found = pod.leases()
    return _show(arguments, found, lambda: lease_table(found))


def _list_quotas(arguments: _Arguments, pod: Pod) -> int:
    found = pod.quotas(allocation=arguments.allocation)
    return _show(arguments, found, lambda: quota_table(found))


def _list_attributes(arguments: _Arguments, pod: Pod) -> int:
    found = pod.devices()
    return _show(arguments, _json.attributes(found), lambda: attribute_table(found))


def _get_partition(arguments: _Arguments, pod: Pod) -> int:
    info = pod.get(arguments.name)
    if arguments.ipuof_configs:
        return _ipuof(arguments, info)
    gcd = arguments.gcd
    if gcd is not None and gcd >= info.num_gcds:
        raise NotFound(
            f"there is no GCD {gcd}",
            asked=f"get partition {info.name}",
            would_work=f"it has {info.num_gcds}, counted from 0",
        )
    return _show(arguments, _json.partition_in_full(info), lambda: partition_card(info, gcd))


def _ipuof(arguments: _Arguments, info: PartitionInfo) -> int:
    """JSON alone for one GCD; a heading before it for all (V-IPU does so, and scripts cut it)."""
    gcds = ipuof_gcds(info, arguments.gcd)
    if arguments.gcd is None and not _wants_json(arguments):
        print(f"IPUoF configuration of partition {info.name}:")
    print(_json.text(gcds[0] if len(gcds) == 1 else gcds))
    return 0


def _get_cluster(arguments: _Arguments, pod: Pod) -> int:
    found = pod.clusters()
    info = next((c for c in found if c.name == arguments.name), None)
    if info is None:
        raise _missing("cluster", arguments.name, [c.name for c in found])
    return _show(arguments, _json.cluster(info), lambda: cluster_card(info))


def _get_allocation(arguments: _Arguments, pod: Pod) -> int:
    found = pod.allocations()
    info = next((a for a in found if a.name == arguments.name), None)
    if info is None:
        raise _missing("allocation", arguments.name, [a.name for a in found])
    return _show(arguments, _json.allocation(info), lambda: allocation_card(info))


def _explain(arguments: _Arguments, pod: Pod) -> int:
    return _vipu_queue.explain(arguments, pod, partition_spec)


def _missing(what: str, name: str, known: list[str]) -> NotFound:
    there_are = f"there are: {', '.join(known)}" if known else f"there is no {what} at all"
    return NotFound(f"there is no {what} {name!r}", would_work=there_are)


def _show(arguments: _Arguments, value: object, layout: Callable[[], str]) -> int:
    print(_json.text(value) if _wants_json(arguments) else layout())
    return 0


def _wants_json(arguments: _Arguments) -> bool:
    return getattr(arguments, "json", False)


def partition_spec(arguments: _Arguments) -> PartitionSpec:
    """What `vipu create partition` was asked for. Raises InvalidRequest where no server is needed
    to know better."""
    action = f"create partition {arguments.name}".rstrip()
    if arguments.priority and not arguments.wait:
        raise InvalidRequest(
            "--priority is for the waiting line", asked=action, would_work="add --wait"
        )
    if arguments.index is not None:
        raise InvalidRequest(
            "--index is named in V-IPU's documents, but not what it means",
            asked=action,
            would_work="--devices chooses devices one by one",
        )
    devices = parse_devices(arguments.devices) if arguments.devices else []
    if not arguments.size and not devices:
        raise InvalidRequest("--size is missing", asked=action, would_work="say --size N")
    if devices and arguments.size not in (None, len(devices)):
        raise InvalidRequest(
            f"--size says {arguments.size}, --devices names {len(devices)}",
            asked=action,
            would_work="leave out --size",
        )
    sync = _sync_type(arguments.sync_type)
    if arguments.reconfigurable:
        if sync not in (SyncType.DEFAULT, SyncType.GS2_DEFAULT):
            raise InvalidRequest(
                f"a reconfigurable partition has sync type c2-compatible, not "
                f"{arguments.sync_type}",
                asked=action,
                would_work="leave out --sync-type or --reconfigurable",
            )
        sync = SyncType.GS2_DEFAULT
    # Under host mapping a job has an allocation of its own, and nothing outside it.
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
    )


def _sync_type(text: str) -> SyncType:
    """A sync type as any of V-IPU's tools writes it: c2-compatible, ST_…, or in lower case."""
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
    """`0:0-3,1:8` as (link domain, offset) pairs, in that order."""
    found: list[tuple[int, int]] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9}):(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        first, last = (int(match[2]), int(match[3] or match[2])) if match else (1, 0)
        if match is None or not 0 <= last - first < 1 << 20:
            raise InvalidRequest(
                f"--devices: {part!r} is not DOMAIN:OFFSET or DOMAIN:FIRST-LAST",
                would_work="write, say, 0:0-3,1:8",
            )
        found += [(int(match[1]), offset) for offset in range(first, last + 1)]
    if len(set(found)) < len(found):
        twice = next(device for device in found if found.count(device) > 1)
        raise InvalidRequest(f"--devices names {twice[0]}:{twice[1]} twice")
    return found


def _server_version(found: FoundServer) -> int:
    print(f"version: {found.info.version}\nhost: {found.address}")
    return 0


def perform(arguments: _Arguments, connect: _Connect) -> int:
    """Do what the parsed words say. Returns the exit code; raises the errors of podwright.wire."""
    if arguments.server_version:
        found = connect(arguments)
        with found.client:
            return _server_version(found)
    if arguments.action == "create_partition":
        partition_spec(arguments)  # what is wrong in itself needs no server
    found = connect(arguments)
    with Pod(found, chosen(arguments)) as pod:
        return ACTIONS[arguments.action](arguments, pod)


#: Of `vipu`; what administrators see alike, `vipu-admin` shows by these, too.
ACTIONS: dict[str, _Action] = {
    "reset_partition": _reset_partition,
    "remove_partition": _remove_partition,
    "list_partitions": _list_partitions,
    "list_clusters": _list_clusters,
    "list_allocations": _list_allocations,
    "list_devices": _list_devices,
    "list_leases": _list_leases,
    "list_attributes": _list_attributes,
    "list_waiters": _vipu_queue.list_waiters,
    "get_partition": _get_partition,
    "get_cluster": _get_cluster,
    "get_allocation": _get_allocation,
    "create_partition": _create_partition,
    "remove_lease": _remove_lease,
    "remove_waiter": _vipu_queue.remove_waiter,
    "list_quotas": _list_quotas,
    "explain": _explain,
    "events": _vipu_queue.events,
}
