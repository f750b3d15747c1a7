"""Allocations of an administrator: whole machines of one cluster, under a name.

A cluster without any has one, named like itself, that holds all of its machines. It makes room
for the first that is defined, and comes back when the last one goes. Sizes are V-IPU's: those of
a family inside one link domain, or whole link domains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from podwright.controller.hardware._registry import check_name
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._records import Record, decode
from podwright.errors import AlreadyExists, InvalidRequest, NoCapacity, NotFound, WrongState
from podwright.fabric import Cluster
from podwright.store import Delete, Put
from podwright.wire import AllocationRequest

ALLOCATION: Final = "allocation"


class AllocationRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """An allocation. agents: its machines. scheduler, owner: the user who alone creates in it."""

    name: str
    cluster: str
    agents: tuple[str, ...]
    scheduler: str = ""
    owner: str = ""


def load(state: ControllerState, records: Mapping[tuple[str, str], bytes]) -> None:
    """Load allocations from the store, after the clusters."""
    for (record_kind, _), record_bytes in sorted(records.items()):
        if record_kind == ALLOCATION:
            record = decode(AllocationRecord, record_bytes)
            cluster = state.inventory.clusters.get(record.cluster)
            if cluster is not None and all(name in cluster.places for name in record.agents):
                define(cluster, record)


def define(cluster: IndexedCluster, record: AllocationRecord) -> None:
    """Add an allocation to its cluster."""
    whole_cluster = cluster.layout.name
    if is_implicit(cluster):
        cluster.index.remove_allocation(whole_cluster)
        del cluster.allocations[whole_cluster]
    cluster.index.define_allocation(record.name, record.agents)
    cluster.allocations[record.name] = list(record.agents)
    if record.scheduler:
        cluster.closed[record.name] = record.scheduler
    if record.owner:
        cluster.owned[record.name] = record.owner
    cluster.redefined_now()


def undefine(cluster: IndexedCluster, allocation_name: str) -> None:
    """Remove an allocation from its cluster."""
    cluster.closed.pop(allocation_name, None)
    cluster.owned.pop(allocation_name, None)
    cluster.index.remove_allocation(allocation_name)
    del cluster.allocations[allocation_name]
    if not cluster.allocations:
        cluster.index.define_allocation(cluster.layout.name, cluster.machines())
        cluster.allocations[cluster.layout.name] = cluster.machines()
    cluster.redefined_now()


def drafted(state: ControllerState, request: AllocationRequest) -> AllocationRecord:
    """The requested allocation, checked. Raises for one that is not possible."""
    action = f"create allocation {request.name[:80]}"
    check_name("an allocation", request.name)
    (cluster,) = state.inventory.candidates(request.cluster, "", action)[:1]
    for other_cluster in state.inventory.clusters.values():
        if request.name in other_cluster.allocations or request.name == other_cluster.layout.name:
            raise AlreadyExists(
                f"there is an allocation {request.name} already",
                operation=action,
                would_work="choose another name",
            )
    if not request.cluster and len(state.inventory.clusters) > 1:
        raise InvalidRequest(
            f"there are the clusters {', '.join(state.inventory.clusters)}",
            operation=action,
            would_work="say which one: --cluster",
        )
    if request.scheduler and request.owner:
        raise InvalidRequest(
            "it is either a scheduler's or somebody's",
            operation=action,
            would_work="choose one of the two",
        )
    if bool(request.agents) == bool(request.size):
        raise InvalidRequest(
            "it needs either agents or a size",
            operation=action,
            would_work="say --agents or --size",
        )
    if is_implicit(cluster) and (partition_names := names_in(state, cluster, cluster.layout.name)):
        raise WrongState(
            f"{', '.join(partition_names[:8])} of cluster {cluster.layout.name} "
            "lie outside any allocation",
            operation=action,
            would_work="remove them first",
            partitions=partition_names[:100],
        )
    allocation_of = (
        {}
        if is_implicit(cluster)
        else {
            machine_name: allocation_name
            for allocation_name, machine_names in cluster.allocations.items()
            for machine_name in machine_names
        }
    )
    if request.agents:
        agent_names = _check_machines(cluster, request.agents, allocation_of, action)
    else:
        _check_size(cluster.layout, request.size, action)
        agent_names = _choose_machines(cluster.layout, request.size, allocation_of, action)
    return AllocationRecord(
        name=request.name,
        cluster=cluster.layout.name,
        agents=tuple(agent_names),
        scheduler=request.scheduler,
        owner=request.owner,
    )


def check_removable(state: ControllerState, allocation_name: str, action: str) -> IndexedCluster:
    """The cluster of an allocation that may be removed. Raises NotFound, WrongState if in use."""
    (cluster,) = state.inventory.candidates("", allocation_name, action)[:1]
    if is_implicit(cluster):
        raise WrongState(
            f"it stands for all of cluster {allocation_name}",
            operation=action,
            would_work=f"vipu-admin remove cluster {allocation_name}",
        )
    if partition_names := names_in(state, cluster, allocation_name):
        raise WrongState(
            f"it has {', '.join(partition_names[:8])}{' and more' if partition_names[8:] else ''} "
            "in it",
            operation=action,
            would_work="remove these partitions first",
            partitions=partition_names[:100],
        )
    return cluster


def names_in(state: ControllerState, cluster: IndexedCluster, allocation_name: str) -> list[str]:
    """Partitions in an allocation, and those whose devices there still have to be reset."""
    key = (cluster.layout.name, allocation_name)
    partition_names = {entry.name for entry in state.partitions.in_pool(*key)}
    quarantined_names = {
        quarantined.partition
        for quarantined in state.quarantine.values()
        if (quarantined.cluster, quarantined.allocation) == key
    }
    return sorted(partition_names | quarantined_names)


def put_allocation(record: AllocationRecord) -> Put:
    """The change that writes an allocation."""
    return Put(ALLOCATION, record.name, msgspec.json.encode(record))


def allocation_puts(
    cluster: IndexedCluster, machines_by_allocation: Mapping[str, Sequence[str]]
) -> list[Put]:
    """The changes that write allocations of a cluster whose machines have changed."""
    return [
        put_allocation(
            AllocationRecord(
                name=name,
                cluster=cluster.layout.name,
                agents=tuple(names),
                scheduler=cluster.closed.get(name, ""),
                owner=cluster.owned.get(name, ""),
            )
        )
        for name, names in machines_by_allocation.items()
        if list(names) != cluster.allocations.get(name)
    ]


def drop_allocation(allocation_name: str) -> Delete:
    """The change that forgets an allocation."""
    return Delete(ALLOCATION, allocation_name)


def is_implicit(cluster: IndexedCluster) -> bool:
    return list(cluster.allocations) == [cluster.layout.name]


def _check_machines(
    cluster: IndexedCluster,
    agent_names: Sequence[str],
    allocation_of: Mapping[str, str],
    action: str,
) -> Sequence[str]:
    for agent_name in agent_names:
        if agent_name not in cluster.places:
            raise NotFound(
                f"there is no agent {agent_name} in cluster {cluster.layout.name}",
                operation=action,
                would_work=f"there are: {', '.join(cluster.machines()[:8])}",
            )
        if agent_names.count(agent_name) > 1:
            raise InvalidRequest(
                f"agent {agent_name} is named {agent_names.count(agent_name)} times",
                operation=action,
                would_work="name each agent once",
            )
        if agent_name in allocation_of:
            raise WrongState(
                f"agent {agent_name} is in allocation {allocation_of[agent_name]}", operation=action
            )
    _check_size(
        cluster.layout, len(agent_names) * cluster.layout.family.devices_per_machine, action
    )
    return agent_names


def _check_size(cluster: Cluster, size: int, action: str) -> None:
    family = cluster.family
    sizes_in_domain, domain_size = family.allocation_sizes_in_domain, family.max_domain_devices
    if size not in sizes_in_domain and size % domain_size:
        raise InvalidRequest(
            f"an allocation cannot have {size} {family.device_noun}s",
            operation=action,
            would_work=f"{', '.join(map(str, sizes_in_domain))}, or a multiple of {domain_size}",
        )


def _choose_machines(
    cluster: Cluster, size: int, allocation_of: Mapping[str, str], action: str
) -> list[str]:
    """The first machines that are in no other allocation, in an aligned block."""
    devices_per_machine = cluster.family.devices_per_machine
    machine_rows = [[machine.name for machine in domain.machines] for domain in cluster.domains]
    if size > cluster.family.max_domain_devices:
        machine_rows = [[name for row in machine_rows for name in row]]
    machine_count = size // devices_per_machine
    for machine_row in machine_rows:
        for block_start in range(0, len(machine_row) - machine_count + 1, machine_count):
            block = machine_row[block_start : block_start + machine_count]
            if not any(name in allocation_of for name in block):
                return block
    raise NoCapacity(
        f"cluster {cluster.name} has no {size} {cluster.family.device_noun}s side by side outside "
        "other allocations",
        operation=action,
        would_work="choose a smaller one, or another cluster",
    )
