"""Allocations that are a scheduler's, or one user's: nobody else creates in them.

A scheduler must be able to give out all devices that it counts: a partition made without its
knowledge would take what it has promised to a job. A job may have machines as an allocation of its
own; they belong to its user until it ends. A request that names such an allocation is decided when
it arrives; a request that names none is never placed there (`guard`).
"""

from __future__ import annotations

import msgspec

from podwright.controller.state._caller import Caller, Role, may_change
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._partition_index import PartitionEntry
from podwright.errors import Denied, InvalidRequest
from podwright.placement import Placement
from podwright.wire import (
    AcquireRequest,
    CreateRequest,
    ExplainRequest,
    PartitionSpec,
    Value,
    WaitRequest,
)

_SUBMIT_JOB_HINT = (
    "submit a job to it (with Slurm: sbatch --ipus=N), which gets a partition of its own"
)


def restrict_to_open(state: ControllerState, caller: Caller, request: Value) -> Value:
    """The request, kept to the allocations that its caller may create in.

    Raises Denied for another's, InvalidRequest where it must be said which one.
    """
    if not any(cluster.closed or cluster.owned for cluster in state.inventory.clusters.values()):
        return request
    if isinstance(request, WaitRequest):
        inner_request = request.create or request.acquire
        if inner_request is None:
            return request
        if isinstance(inner_request, AcquireRequest):
            return msgspec.structs.replace(
                request, acquire=_restricted_acquire(state, caller, inner_request)
            )
        return msgspec.structs.replace(
            request, create=restrict_to_open(state, caller, inner_request)
        )
    if isinstance(request, ExplainRequest) and request.for_job:
        return request
    if isinstance(request, ExplainRequest) and request.acquire is not None:
        return msgspec.structs.replace(
            request, acquire=_restricted_acquire(state, caller, request.acquire)
        )
    if isinstance(request, AcquireRequest):
        if request.create or request.update:
            _check_may_create(state, caller, request.spec)
        return request  # which partition it finds is not known yet
    if isinstance(request, CreateRequest | ExplainRequest) and request.spec is not None:
        return _with_open_spec(state, caller, request, request.spec)
    return request


def open_spec(state: ControllerState, caller: Caller, spec: PartitionSpec) -> PartitionSpec:
    """What is to be created, with the allocation that its caller may use where it names none.

    Raises as `restrict_to_open`.
    """
    clusters = [
        cluster for name, cluster in state.inventory.clusters.items() if spec.cluster in ("", name)
    ]
    if not any(cluster.closed or cluster.owned for cluster in clusters):
        return spec
    _check_may_create(state, caller, spec)
    if spec.allocation:
        return spec
    if caller.role is Role.SCHEDULER:
        allocation_names = [
            name
            for cluster in clusters
            for name, scheduler in cluster.closed.items()
            if scheduler == caller.name
        ]
    else:
        allocation_names = _open_allocations(clusters, caller)
    if len(allocation_names) == 1:
        return msgspec.structs.replace(spec, allocation=allocation_names[0])
    if allocation_names:
        raise InvalidRequest(
            f"there are the allocations {', '.join(allocation_names[:8])}, and others that are not "
            "for all",
            operation=_action_text(spec),
            would_work=f"say which one, as in --allocation {allocation_names[0]}",
        )
    cluster = next(cluster for cluster in clusters if cluster.closed or cluster.owned)
    if "allocations" in state.sight.private:
        raise Denied(
            "every allocation is kept for the jobs of others",
            operation=_action_text(spec),
            would_work="submit a job of your own",
        )
    raise _denied_error(spec, cluster, next(iter([*cluster.closed, *cluster.owned])))


def guard(cluster: IndexedCluster, spec: PartitionSpec, placement: Placement) -> None:
    """Raises Denied for a placement in a scheduler's allocation that was not named."""
    if not spec.allocation and placement.allocation in cluster.closed:
        raise _denied_error(spec, cluster, placement.allocation)


def may_lend(caller: Caller, entry: PartitionEntry) -> bool:
    """Whether a scheduler may lease a partition to others: it made it, or it is among its own."""
    if caller.role is not Role.SCHEDULER:
        return False
    cluster, record = entry.cluster, entry.known
    closed_to_caller = cluster is not None and cluster.closed.get(record.allocation) == caller.name
    return closed_to_caller or record.creator == caller.name


def _restricted_acquire(state: ControllerState, caller: Caller, request: AcquireRequest) -> Value:
    """For one that is placed before it is carried out: kept to where it would create."""
    allowed_request = restrict_to_open(state, caller, request)
    return (
        _with_open_spec(state, caller, allowed_request, request.spec)
        if _will_create(state, caller, request)
        else allowed_request
    )


def _will_create(state: ControllerState, caller: Caller, request: AcquireRequest) -> bool:
    if not (request.create or request.update) or request.parent:
        return False
    if request.spec.name:
        return request.spec.name not in state.partitions
    return not state.partitions.usage(caller.name, "").partitions


def _with_open_spec(
    state: ControllerState, caller: Caller, request: Value, spec: PartitionSpec
) -> Value:
    return msgspec.structs.replace(request, spec=open_spec(state, caller, spec))


def _check_may_create(state: ControllerState, caller: Caller, spec: PartitionSpec) -> None:
    if caller.role is Role.ADMINISTRATOR:
        return
    for cluster_name, cluster in state.inventory.clusters.items():
        if spec.cluster not in ("", cluster_name):
            continue
        if scheduler := cluster.closed.get(spec.allocation):
            is_allowed = caller.role is Role.SCHEDULER and caller.name == scheduler
        else:
            owner = cluster.owned.get(spec.allocation)
            is_allowed = owner is None or may_change(caller, owner)
        if not is_allowed:
            raise _denied_error(
                spec, cluster, spec.allocation, _open_allocations([cluster], caller)
            )


def _open_allocations(clusters: list[IndexedCluster], caller: Caller) -> list[str]:
    return [
        allocation_name
        for cluster in clusters
        for allocation_name in cluster.allocations
        if allocation_name not in cluster.closed
        and cluster.owned.get(allocation_name, caller.name) == caller.name
    ]


def _denied_error(
    spec: PartitionSpec,
    cluster: IndexedCluster,
    allocation: str,
    alternatives: list[str] | None = None,
) -> Denied:
    """The error that names the owner of an allocation, or of one in the way if none was named."""
    scheduler, owner = cluster.closed.get(allocation, ""), cluster.owned.get(allocation, "")
    allocation_text = f"allocation {spec.allocation}" if spec.allocation else "every allocation"
    problem = f"{allocation_text} is kept for the jobs of {scheduler}"
    if owner:
        problem = f"{allocation_text} is a job's, {allocation} one of {owner}'s"
        if spec.allocation:
            problem = f"{allocation_text} is {owner}'s, for a job"
    return Denied(
        problem,
        operation=_action_text(spec),
        would_work=(_SUBMIT_JOB_HINT if scheduler else "submit a job of your own")
        + (f", or use allocation {' or '.join(alternatives[:5])}" if alternatives else ""),
        allocation=spec.allocation,
        **({"scheduler": scheduler} if scheduler else {"owner": owner}),
    )


def _action_text(spec: PartitionSpec) -> str:
    return f"create partition {spec.name[:80]}".rstrip()
