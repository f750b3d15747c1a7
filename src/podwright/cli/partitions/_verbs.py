"""The verbs and nouns of `vipu`: each makes one call and prints one result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from podwright.api import Pod
from podwright.cli.partitions import _options as options
from podwright.cli.partitions import _queue
from podwright.cli.partitions._create_request import partition_spec
from podwright.cli.partitions._tables import (
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
from podwright.cli.shared._listing import ListView
from podwright.cli.shared._noun_grammar import GroupedListOptions, ListOptions, NamedOptions
from podwright.cli.shared._print_replies import show, success
from podwright.cli.shared._server_options import JsonEverywhere
from podwright.cli.shared._verb_handlers import list_of, on_pod
from podwright.cli.shared._wait_indicator import waiting
from podwright.errors import NotFound
from podwright.wire import PartitionInfo, ReadyState, ipuof_gcds

_Info = TypeVar("_Info")


def _create_partition(arguments: options.CreateOptions, pod: Pod) -> int:
    spec, duration = partition_spec(arguments, arguments.name), arguments.duration
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


def _reset_partition(arguments: options.ResetOptions, pod: Pod) -> int:
    with waiting(f"reset partition ({arguments.name})"):
        info = pod.reset(arguments.name, relocatable=arguments.relocatable, force=arguments.force)
    if info.ready_state is ReadyState.ACTIVE:
        from podwright.api import _ipuof_files

        _ipuof_files.rewrite_existing_files(info, complain)
    return _outcome("reset", info, arguments)


def _remove_partition(arguments: options.RemovePartitionOptions, pod: Pod) -> int:
    from podwright.api import _ipuof_files

    with waiting(f"remove partition ({arguments.name})"):
        pod.remove(arguments.name, force=arguments.force)
    _ipuof_files.remove(arguments.name, complain)
    return success(f"remove partition ({arguments.name})", {"name": arguments.name}, arguments)


def _remove_lease(arguments: options.EndLeaseOptions, pod: Pod) -> int:
    lease = pod.end_lease(arguments.name, force=arguments.force)
    if lease.state == "FENCING":
        complain(
            f"lease {lease.id} is over, and partition {lease.partition} is FENCING: nobody gets "
            f"its devices before {' and '.join(lease.waits_for)} did their part. "
            f"Look: vipu explain {lease.partition}"
        )
    return success(f"remove lease ({lease.id})", lease, arguments)


def _outcome(verb: str, info: PartitionInfo, arguments: JsonEverywhere) -> int:
    action = f"{verb} partition ({info.name})"
    if info.ready_state is ReadyState.ACTIVE:
        return success(action, _json.partition(info), arguments)
    reason = "; ".join(info.errors) or f"it is {info.ready_state.value}"
    complain(
        f"{action}: failed: {reason}. Try: vipu reset partition {info.name}; "
        "with --relocatable it gets other devices"
    )
    return 1


def _list_partitions(arguments: options.InBothOptions, pod: Pod) -> ListView:
    partitions = pod.partitions(cluster=arguments.cluster, allocation=arguments.allocation)
    table = partition_table(partitions, with_owner=arguments.output == "wide")
    return ListView([_json.partition(p) for p in partitions], table)


def _list_clusters(_: ListOptions, pod: Pod) -> ListView:
    clusters = pod.clusters()
    return ListView([_json.cluster(c) for c in clusters], cluster_table(clusters))


def _list_allocations(arguments: options.InClusterOptions, pod: Pod) -> ListView:
    allocations = pod.allocations(cluster=arguments.cluster)
    return ListView([_json.allocation(a) for a in allocations], allocation_table(allocations))


def _list_devices(arguments: options.InBothOptions, pod: Pod) -> ListView:
    devices = pod.devices(cluster=arguments.cluster, allocation=arguments.allocation)
    owners = None
    if arguments.output == "wide":
        owners = {partition.name: partition.owner for partition in pod.partitions()}
    return ListView(devices, device_table(devices, owners))


def _list_leases(_: ListOptions, pod: Pod) -> ListView:
    leases = pod.leases()
    return ListView(leases, lease_table(leases))


def _list_quotas(arguments: options.InAllocationOptions, pod: Pod) -> ListView:
    quotas = pod.quotas(allocation=arguments.allocation)
    return ListView(quotas, quota_table(quotas))


def _list_attributes(_: GroupedListOptions, pod: Pod) -> ListView:
    devices = pod.devices()
    return ListView(_json.attributes(devices), attribute_table(devices))


def _get_partition(arguments: options.PartitionOptions, pod: Pod) -> int:
    info = pod.get(arguments.name)
    if arguments.ipuof_configs:
        return _ipuof(arguments, info)
    gcd = arguments.gcd
    if gcd is not None and gcd >= info.num_gcds:
        raise NotFound(
            f"there is no GCD {gcd}",
            operation=f"get partition {info.name}",
            would_work="it has GCD 0 alone"
            if info.num_gcds == 1
            else f"it has GCDs 0 to {info.num_gcds - 1}",
        )
    return show(arguments, _json.partition_with_devices(info), lambda: partition_card(info, gcd))


def _ipuof(arguments: options.PartitionOptions, info: PartitionInfo) -> int:
    """Print JSON only for one GCD, and a heading before it for each of all GCDs.

    V-IPU does so, and scripts cut that output.
    """
    gcds = ipuof_gcds(info, arguments.gcd)
    if arguments.gcd is None and not arguments.json:
        print(f"IPUoF configuration of partition {info.name}:")
    print(_json.text(gcds[0] if len(gcds) == 1 else gcds))
    return 0


def _get_cluster(arguments: NamedOptions, pod: Pod) -> int:
    info = _named("cluster", arguments.name, {c.name: c for c in pod.clusters()})
    return show(arguments, _json.cluster(info), lambda: cluster_card(info))


def _get_allocation(arguments: NamedOptions, pod: Pod) -> int:
    info = _named("allocation", arguments.name, {a.name: a for a in pod.allocations()})
    return show(arguments, _json.allocation(info), lambda: allocation_card(info))


def _named(kind: str, name: str, known: Mapping[str, _Info]) -> _Info:
    if name in known:
        return known[name]
    are = f"there are: {', '.join(known)}" if known else f"there is no {kind} at all"
    raise NotFound(f"there is no {kind} {name!r}", would_work=are)


def _check_request(arguments: options.CreateOptions) -> None:
    partition_spec(arguments, arguments.name)  # these mistakes need no server to be found


#: The functions of `vipu`, by verb and noun. `vipu-admin` has some of them, for what administrators
#: see as users do.
ACTIONS = {
    "list partition": list_of(options.InBothOptions, _list_partitions),
    "list cluster": list_of(ListOptions, _list_clusters),
    "list allocation": list_of(options.InClusterOptions, _list_allocations),
    "list device": list_of(options.InBothOptions, _list_devices),
    "list lease": list_of(ListOptions, _list_leases),
    "list ipu-attr": list_of(GroupedListOptions, _list_attributes),
    "list waiter": list_of(ListOptions, _queue.list_waiters),
    "list queue": list_of(ListOptions, _queue.list_queue),
    "list quota": list_of(options.InAllocationOptions, _list_quotas),
    "create partition": on_pod(options.CreateOptions, _create_partition, _check_request),
    "reset partition": on_pod(options.ResetOptions, _reset_partition),
    "remove partition": on_pod(options.RemovePartitionOptions, _remove_partition),
    "remove lease": on_pod(options.EndLeaseOptions, _remove_lease),
    "remove waiter": on_pod(NamedOptions, _queue.remove_waiter),
    "get partition": on_pod(options.PartitionOptions, _get_partition),
    "get cluster": on_pod(NamedOptions, _get_cluster),
    "get allocation": on_pod(NamedOptions, _get_allocation),
    "explain": on_pod(options.ExplainOptions, _queue.explain),
    "events": on_pod(options.EventOptions, _queue.events),
}
