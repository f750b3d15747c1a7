"""An administrator's calls about clusters and the allocations in them."""

from __future__ import annotations

import asyncio

from podwright.controller.administration import _allocations as allocations
from podwright.controller.administration import _cluster_change as change
from podwright.controller.administration import _cluster_validation as clusters
from podwright.controller.administration import _users as users
from podwright.controller.calls import _object_replies as views
from podwright.controller.calls._call_context import Services
from podwright.controller.calls._idempotent_calls import (
    answer_repeated_removal,
    done_once,
    removed_since_error,
)
from podwright.controller.hardware import _recovery as recovery
from podwright.controller.hardware import _registry as registry
from podwright.controller.state._caller import Caller
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._journal import unless_written
from podwright.controller.state._request_ids import RememberedRequest
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


async def _cluster_made_before(
    services: Services, earlier_request: RememberedRequest
) -> ClusterInfo:
    """The cluster in its present state. Raises NotFound if it has been removed since."""
    if earlier_request.name not in services.state.inventory.clusters:
        raise removed_since_error(earlier_request, "cluster")
    return _cluster_info(services, earlier_request.name)


@done_once(_cluster_made_before)
async def create_cluster(
    services: Services, caller: Caller, request: ClusterRequest
) -> ClusterInfo:
    """Make a cluster of agents; their devices are reset before they serve."""
    async with services.changing:
        layout = clusters.draft_cluster(services.state, services.registry, request)
        await services.state.journal.commit([registry.put_cluster(layout)])
        cluster = services.registry.begin_cluster(layout)
        for machine_name in cluster.places:
            services.state.mark_down(machine_name, announce=False)  # until its devices are reset
        await asyncio.gather(*(_put_in_service(services, name) for name in cluster.places))
    return _cluster_info(services, request.name)


@done_once(answer_repeated_removal)
async def remove_cluster(services: Services, caller: Caller, request: Named) -> Empty:
    """Remove a cluster; its agents stay. Raises NotFound, WrongState while it is in use."""
    action = f"remove cluster {request.name[:80]}"
    state = services.state
    async with services.changing:
        cluster = _find_cluster(services, request.name, action)
        if request.name not in services.registry.clusters:
            raise WrongState(
                "the server was started with it",
                operation=action,
                would_work="start vipu-server without its --preset or --cluster-file",
            )
        partitions = sorted(
            {entry.name for entry in state.partitions.values() if entry.cluster is cluster}
            | {
                record.partition
                for record in state.quarantine.values()
                if record.cluster == request.name
            }
        )
        if partitions:
            raise WrongState(
                f"it has {', '.join(partitions[:8])}{' and more' if partitions[8:] else ''} in it",
                operation=action,
                would_work="remove these partitions first",
                partitions=partitions[:100],
            )
        defined_allocations = [] if allocations.is_implicit(cluster) else list(cluster.allocations)
        if defined_allocations and not request.force:
            shown_names = ", ".join(defined_allocations[:8])
            more_text = " and more" * bool(defined_allocations[8:])
            raise WrongState(
                f"the allocations {shown_names}{more_text} are in it",
                operation=action,
                would_work="vipu-admin remove cluster --force removes them with it",
                allocations=defined_allocations[:100],
            )
        store_changes = [registry.drop_cluster(request.name)]
        store_changes += [allocations.drop_allocation(name) for name in defined_allocations]
        await state.journal.commit(store_changes)
        state.lift(cluster)
        services.registry.end_cluster(request.name)
    return Empty()


@done_once(_cluster_made_before)
async def change_cluster(services: Services, caller: Caller, request: ClusterChange) -> ClusterInfo:
    """Add machines to a cluster, or put one in another's place; or say what that would be.

    Raises NotFound, InvalidRequest, WrongState.
    """
    action = f"change cluster {request.name[:80]}"
    state = services.state
    async with services.changing:
        cluster = _find_cluster(services, request.name, action)
        if request.name not in services.registry.clusters:
            raise WrongState(
                "the server was started with it",
                operation=action,
                would_work="change its --cluster-file, and restart vipu-server",
            )
        draft = change.drafted(state, services.registry, cluster, request)
        if request.dry_run:
            preview_cluster = IndexedCluster(draft.layout, draft.machines)
            preview_cluster.index = draft.index
            return views.cluster_info(state, preview_cluster)
        # In memory first, at one stroke: nobody is placed by the old cluster while the new one
        # is written down, and fresh machines take nothing before they are welcome.
        store_changes, undo_change = change.applied(state, cluster, draft)
        with unless_written(undo_change):
            await state.journal.commit(store_changes)
        state.freed(None, (), "")
        await asyncio.gather(*(_put_in_service(services, name) for name in draft.fresh))
    return _cluster_info(services, request.name)


async def test_cluster(services: Services, caller: Caller, request: Named) -> ClusterTest:
    """Test a cluster: poll all of its machines, and report what is wrong and where."""
    action = f"test cluster {request.name[:80]}"
    cluster = _find_cluster(services, request.name, action)
    check_results = await clusters.tested(services.state, services.registry, cluster)
    cabling_faults = [
        check_result
        for check_result in check_results
        if check_result.check == "cabling" and check_result.ok is False
    ]
    cluster.miscabled = [(fault.machine, fault.problem) for fault in cabling_faults]
    services.state.journal.changes += 1
    return ClusterTest(cluster=request.name, results=check_results)


# -- allocations -------------------------------------------------------------------------


async def _allocation_made_before(
    services: Services, earlier_request: RememberedRequest
) -> AllocationInfo:
    """The allocation in its present state. Raises NotFound if it has been removed since."""
    for cluster in services.state.inventory.clusters.values():
        if earlier_request.name in cluster.allocations:
            return views.allocation_info(cluster, earlier_request.name)
    raise removed_since_error(earlier_request, "allocation")


@done_once(_allocation_made_before)
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
        granted_users = [
            services.users.granted(name, record.name, action) for name in request.users
        ]
        store_changes = [allocations.put_allocation(record), *map(users.put_user, granted_users)]
        await state.journal.commit(store_changes)
        state.lift(state.inventory.clusters[record.cluster])
        allocations.define(state.inventory.clusters[record.cluster], record)
        for user in granted_users:
            services.users.add(user)
        state.freed(None, (), "")
    return views.allocation_info(state.inventory.clusters[record.cluster], record.name)


@done_once(answer_repeated_removal)
async def remove_allocation(services: Services, caller: Caller, request: Named) -> Empty:
    """Remove an allocation; its machines are free. Raises NotFound, WrongState while in use."""
    action = f"remove allocation {request.name[:80]}"
    state = services.state
    async with services.changing:
        cluster = allocations.check_removable(state, request.name, action)
        await state.journal.commit([allocations.drop_allocation(request.name)])
        state.lift(cluster)
        allocations.undefine(cluster, request.name)
        state.freed(None, (), "")
    return Empty()


# -- inside ------------------------------------------------------------------------------


async def _put_in_service(services: Services, machine: str) -> None:
    """Reset all devices of a machine and use it. A silent machine is left to the timer."""
    state = services.state
    try:
        machine_report = await state.hardware.describe(machine)
    except PodwrightError:
        state.record_event("MachineDown", machine, "", "it does not answer")
        return
    state.inventory.by_machine[machine].learn(machine, machine_report)
    devices_to_reset = {
        machine: [device.index for device in machine_report.devices if device.healthy]
    }
    if not await state.hardware.release(state.epochs.next(), devices_to_reset) and (
        await recovery.release_strays(state, machine, machine_report._replace(configured={}))
    ):
        state.mark_up(machine, announce=False)
    else:
        state.record_event("MachineDown", machine, "", "its devices could not be reset")


def _cluster_info(services: Services, cluster_name: str) -> ClusterInfo:
    return views.cluster_info(services.state, services.state.inventory.clusters[cluster_name])


def _find_cluster(services: Services, cluster_name: str, action: str) -> IndexedCluster:
    """The cluster of this name. Raises NotFound, and InvalidRequest without a name."""
    if not cluster_name:
        raise InvalidRequest(
            "no cluster is named",
            operation=action,
            would_work=f"name one of {', '.join(services.state.inventory.clusters)}",
        )
    return services.state.inventory.candidates(cluster_name, "", action)[0]
