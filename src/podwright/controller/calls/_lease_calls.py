"""Calls about leases: taken, renewed, released, moved to other devices."""

from __future__ import annotations

from podwright.controller.calls import _object_replies as views
from podwright.controller.calls._call_context import Services
from podwright.controller.partitions import _acquire as acquiring
from podwright.controller.partitions import _lease_lifetime as ends
from podwright.controller.partitions import _repeated_requests as repeats
from podwright.controller.state._caller import Caller
from podwright.controller.state._leases import lease_info_of
from podwright.controller.state._request_ids import RememberedRequest, RequestId
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    Empty,
    LeaseInfo,
    LeaseRequest,
    MoveRequest,
    MovesAllowed,
    MovesRequest,
    MoveTable,
    PartitionInfo,
)


async def acquire(services: Services, caller: Caller, request: AcquireRequest) -> AcquireReply:
    """Find or create a partition and take a lease on it.

    Raises InvalidRequest, NotFound, Held, WrongState, NoCapacity, Denied, Fenced (parent).
    """
    state = services.state

    async def take() -> AcquireReply:
        acquisition = await acquiring.acquire(state, caller, request)
        return AcquireReply(
            lease=lease_info_of(acquisition.lease, acquisition.record.size, state.now()),
            partition=views.partition_info(
                state, acquisition.entry, acquisition.record, services.version
            ),
            created=acquisition.created,
        )

    async def taken_before(earlier_request: RememberedRequest) -> AcquireReply | None:
        earlier_acquisition = await repeats.acquired_before(state, earlier_request)
        if earlier_acquisition is None:
            return None
        entry, lease = earlier_acquisition
        return AcquireReply(
            lease=lease_info_of(lease, entry.known.size, state.now()),
            partition=services.info(entry),
            created=earlier_request.created,
        )

    request_id = RequestId(caller.name, "Acquire", request.request_id)
    return await services.requests.once(request_id, take, taken_before)


async def renew(services: Services, caller: Caller, request: LeaseRequest) -> LeaseInfo:
    """Move a lease's end to a full ttl from now. Raises Fenced when it is over, Denied."""
    renewal = ends.renew(services.state, caller, request)
    return await (services.run(renewal) if request.hosts else renewal)


async def release(services: Services, caller: Caller, request: LeaseRequest) -> Empty:
    """End a lease and those in it, or say more about one that is over and FENCING.

    Raises Fenced when it is over for good, Denied, InvalidRequest.
    """
    await services.run(ends.release(services.state, caller, request))
    return Empty()


async def move(services: Services, caller: Caller, request: MoveRequest) -> PartitionInfo:
    """Give a launch's partition the devices that it was asked to move to; nothing of it runs.

    Raises Fenced, Denied. It stays where it is if that is not wanted any more.
    """
    return services.info(await services.run(services.moves.move(caller, request)))


async def show_moves(services: Services, caller: Caller, request: MovesRequest) -> MoveTable:
    """The launches that are asked to move, and those that would be next."""
    return services.moves.show()


async def allow_moves(services: Services, caller: Caller, request: MovesAllowed) -> MoveTable:
    """Allow or forbid that launches are asked to move."""
    await services.run(services.moves.allow(request.allowed))
    return services.moves.show()
