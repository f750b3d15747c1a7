"""An administrator's calls about clusters and the allocations in them."""

from __future__ import annotations

import asyncio

from podwright.controller.administration import _allocations as allocations
from podwright.controller.administration import _cluster_change as change
from podwright.controller.administration import _clusters as clusters
from podwright.controller.administration import _users as users
from podwright.controller.calls import _views as views
from podwright.controller.calls._call_services import Services
from podwright.controller.calls._done_once import done_once, gone_before, gone_since
from podwright.controller.hardware import _recovery as recovery
from podwright.controller.hardware import _registry as registry
from podwright.controller.state._caller import Caller
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._journal import unless_written
from podwright.controller.state._request_ids import Remembered
from podwright.errors import InvalidRequest, PodwrightError, WrongState
from podwright.wire import (
    AllocationInfo,
    AllocationRequest,
    ClusterChange,
    ClusterInfo,
    ClusterRequest,
    ClusterTest,
    Empty,
    Named,
)


async def _cluster_before(services: Services, known: Remembered) -> ClusterInfo:
    """The cluster in its present state. Raises NotFound if it has been removed since."""
    if known.name not in services.state.inventory.clusters:
        raise gone_since(known, "cluster")
    return _cluster(services, known.name)


@done_once(_cluster_before)
async def create_cluster(
    services: Services, caller: Caller, request: ClusterRequest
) -> ClusterInfo:
    """Make a cluster of agents; their devices are reset before they serve."""
    async with services.changing:
        layout = clusters.designed(services.state, services.registry, request)
        await services.state.journal.commit([registry.put_cluster(layout)])
        cluster = services.registry.begin_cluster(layout)
        for name in cluster.places:
            services.state.mark_down(name, announce=False)  # until its devices are reset
        await asyncio.gather(*(_welcome(services, name) for name in cluster.places))
    return _cluster(services, request.name)


@done_once(gone_before)
async def remove_cluster(services: Services, caller: Caller, request: Named) -> Empty:
    """Remove a cluster; its agents stay. Raises NotFound, WrongState while it is in use."""
    action = f"remove cluster {request.name[:80]}"
    state = services.state
    async with services.changing:
        cluster = _named(services, request.name, action)
        if request.name not in services.registry.clusters:
            raise WrongState(
                "the server was started with it",
                operation=action,
                would_work="start vipu-server without its --preset or --cluster-file",
            )
        partitions = sorted(
            {e.name for e in state.partitions.values() if e.cluster is cluster}
            | {q.partition for q in state.quarantine.values() if q.cluster == request.name}
        )
        if partitions:
            raise WrongState(
                f"it has {', '.join(partitions[:8])}{' and more' if partitions[8:] else ''} in it",
                operation=action,
                would_work="remove these partitions first",
                partitions=partitions[:100],
            )
        defined = [] if allocations.implicit(cluster) else list(cluster.allocations)
        if defined and not request.force:
            raise WrongState(
                f"the allocations {', '.join(defined[:8])}{' and more' * bool(defined[8:])} "
                "are in it",
                operation=action,
                would_work="vipu-admin remove cluster --force removes them with it",
                allocations=defined[:100],
            )
        dropped = [registry.drop_cluster(request.name)]
        dropped += [allocations.drop_allocation(name) for name in defined]
        await state.journal.commit(dropped)
        state.lift(cluster)
        services.registry.end_cluster(request.name)
    return Empty()


@done_once(_cluster_before)
async def change_cluster(services: Services, caller: Caller, request: ClusterChange) -> ClusterInfo:
    """Add machines to a cluster, or put one in another's place; or say what that would be.

    Raises NotFound, InvalidRequest, WrongState.
    """
    action = f"change cluster {request.name[:80]}"
    state = services.state
    async with services.changing:
        cluster = _named(services, request.name, action)
        if request.name not in services.registry.clusters:
            raise WrongState(
                "the server was started with it",
                operation=action,
                would_work="change its --cluster-file, and restart vipu-server",
            )
        draft = change.drafted(state, services.registry, cluster, request)
        if request.dry_run:
            preview = IndexedCluster(draft.layout, draft.machines)
            preview.index = draft.index
            return views.cluster_info(state, preview)
        # In memory first, at one stroke: nobody is placed by the old cluster while the new one
        # is written down, and fresh machines take nothing before they are welcome.
        changes, undo = change.applied(state, cluster, draft)
        with unless_written(undo):
            await state.journal.commit(changes)
        state.freed(None, (), "")
        await asyncio.gather(*(_welcome(services, name) for name in draft.fresh))
    return _cluster(services, request.name)


async def test_cluster(services: Services, caller: Caller, request: Named) -> ClusterTest:
    """Test a cluster: poll all of its machines, and report what is wrong and where."""
    action = f"test cluster {request.name[:80]}"
    cluster = _named(services, request.name, action)
    results = await clusters.tested(services.state, services.registry, cluster)
    faults = [check for check in results if check.check == "cabling" and check.ok is False]
    cluster.miscabled = [(fault.machine, fault.problem) for fault in faults]
    services.state.journal.changes += 1
    return ClusterTest(cluster=request.name, results=results)


# -- allocations -------------------------------------------------------------------------


async def _allocation_before(services: Services, known: Remembered) -> AllocationInfo:
    """The allocation in its present state. Raises NotFound if it has been removed since."""
    for cluster in services.state.inventory.clusters.values():
        if known.name in cluster.allocations:
            return views.allocation_info(cluster, known.name)
    raise gone_since(known, "allocation")


@done_once(_allocation_before)
async def create_allocation(
    services: Services, caller: Caller, request: AllocationRequest
) -> AllocationInfo:
    """Create an allocation of whole machines, for some users or for all."""
    action = f"create allocation {request.name[:80]}"
    state = services.state
    async with services.changing:
        if request.scheduler:
            services.users.check_scheduler(request.scheduler, action)
        record = allocations.drafted(state, request)
        granted = [services.users.granted(name, record.name, action) for name in request.users]
        changes = [allocations.put_allocation(record), *map(users.put_user, granted)]
        await state.journal.commit(changes)
        state.lift(state.inventory.clusters[record.cluster])
        allocations.define(state.inventory.clusters[record.cluster], record)
        for user in granted:
            services.users.add(user)
        state.freed(None, (), "")
    return views.allocation_info(state.inventory.clusters[record.cluster], record.name)


@done_once(gone_before)
async def remove_allocation(services: Services, caller: Caller, request: Named) -> Empty:
    """Remove an allocation; its machines are free. Raises NotFound, WrongState while in use."""
    action = f"remove allocation {request.name[:80]}"
    state = services.state
    async with services.changing:
        cluster = allocations.removable(state, request.name, action)
        await state.journal.commit([allocations.drop_allocation(request.name)])
        state.lift(cluster)
        allocations.undefine(cluster, request.name)
        state.freed(None, (), "")
    return Empty()


# -- inside ------------------------------------------------------------------------------


async def _welcome(services: Services, machine: str) -> None:
    """Reset all devices of a machine and use it. A silent machine is left to the timer."""
    state = services.state
    try:
        report = await state.hardware.describe(machine)
    except PodwrightError:
        state.record_event("MachineDown", machine, "", "it does not answer")
        return
    state.inventory.by_machine[machine].learn(machine, report)
    everything = {machine: [d.index for d in report.devices if d.healthy]}
    if not await state.hardware.release(state.epochs.next(), everything) and (
        await recovery.release_strays(state, machine, report._replace(configured={}))
    ):
        state.mark_up(machine, announce=False)
    else:
        state.record_event("MachineDown", machine, "", "its devices could not be reset")


def _cluster(services: Services, name: str) -> ClusterInfo:
    return views.cluster_info(services.state, services.state.inventory.clusters[name])


def _named(services: Services, name: str, action: str) -> IndexedCluster:
    """The cluster of this name. Raises NotFound, and InvalidRequest without a name."""
    if not name:
        raise InvalidRequest(
            "no cluster is named",
            operation=action,
            would_work=f"name one of {', '.join(services.state.inventory.clusters)}",
        )
    return services.state.inventory.candidates(name, "", action)[0]
