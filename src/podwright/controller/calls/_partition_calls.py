"""Calls that create, reset and remove partitions, each with its effect once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from podwright.controller.calls._call_context import Services
from podwright.controller.partitions import _partition_lifecycle as partitions
from podwright.controller.partitions import _repeated_requests as repeats
from podwright.controller.requests._device_claims import claim_new
from podwright.controller.requests._reserve_devices import guest_key
from podwright.controller.requests._spec import CheckedSpec, described
from podwright.controller.state._caller import Caller, Role, in_name_of
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._request_ids import RememberedRequest, RequestId
from podwright.errors import InvalidRequest, NotFound, PodwrightError
from podwright.wire import CreateRequest, Empty, PartitionInfo, RemoveRequest, ResetRequest


async def create_partition(
    services: Services, caller: Caller, request: CreateRequest
) -> PartitionInfo:
    """Create a partition; the answer is ACTIVE or in ERROR, or PENDING without `wait`.

    Raises InvalidRequest, NotFound (cluster, allocation), AlreadyExists, NoCapacity, Denied.
    """
    state, spec = services.state, request.spec
    action = "create " + described(spec, state.inventory.noun)
    if request.owner and not request.job and caller.role is Role.SCHEDULER:
        raise InvalidRequest("a scheduler creates for a job, and none is named", operation=action)

    async def create() -> PartitionInfo:
        owner = in_name_of(caller, request.owner, request.owner_uid, request.job, action)
        checked = CheckedSpec(spec, action, for_job=bool(request.job))
        guest = guest_key(caller.name, request.guest) if request.job else ""
        claim = claim_new(state, owner, checked, guest=guest, duration=request.duration)
        entry = await partitions.begin_create(
            state,
            owner,
            claim,
            creator=caller.name,
            job=request.job,
            guest=guest,
            duration=request.duration,
        )
        return await _info_when_finished(
            services, entry, partitions.finish_create(state, entry), request.wait
        )

    return await services.requests.once(
        RequestId(caller.name, "CreatePartition", request.request_id, spec.name),
        create,
        _answer_for_repeat(services, request.wait),
    )


async def reset_partition(
    services: Services, caller: Caller, request: ResetRequest
) -> PartitionInfo:
    """Reset a partition's devices; the answer is ACTIVE or in ERROR.

    With `force`, leases on it end; what they leave behind is cut off first, or is named in the
    way of all but administrators. Raises NotFound, Held, Denied.
    """

    async def reset() -> PartitionInfo:
        state = services.state
        entry = await partitions.begin_reset(state, caller, request)
        coroutine = partitions.finish_reset(state, caller, entry, relocatable=request.relocatable)
        return await _info_when_finished(services, entry, coroutine, request.wait)

    return await services.requests.once(
        RequestId(caller.name, "ResetPartition", request.request_id, request.name),
        reset,
        _answer_for_repeat(services, request.wait),
    )


async def remove_partition(services: Services, caller: Caller, request: RemoveRequest) -> Empty:
    """Remove a partition; its devices are reset first.

    With `force`, leases on it end, and machines that do not answer are ignored: nobody gets
    their devices until they were reset. Raises NotFound, Held, Denied, WrongState.
    """

    async def remove() -> Empty:
        state = services.state
        entry = await partitions.begin_remove(
            state, caller, request.name, force=request.force, job=request.job
        )
        coroutine = partitions.finish_remove(state, caller, entry, force=request.force)
        if request.wait:
            await coroutine
        else:
            state.spawn(_finish_in_background(coroutine))
        return Empty()

    return await services.requests.once(
        RequestId(caller.name, "RemovePartition", request.request_id, request.name),
        remove,
        lambda earlier_request: repeats.removed_before(
            services.state, earlier_request, wait=request.wait
        ),
    )


def _answer_for_repeat(
    services: Services, wait: bool
) -> Callable[[RememberedRequest], Awaitable[PartitionInfo | None]]:
    """The reply for a partition that was created or reset under the same id before."""

    async def answer(earlier_request: RememberedRequest) -> PartitionInfo:
        return services.info(
            await repeats.created_before(services.state, earlier_request, wait=wait)
        )

    return answer


async def _info_when_finished(
    services: Services,
    entry: PartitionEntry,
    finish_coroutine: Coroutine[Any, Any, None],
    wait: bool,
) -> PartitionInfo:
    """The partition once its second step is done, or at once without `wait`."""
    if wait:
        await finish_coroutine
    else:
        services.state.spawn(_finish_in_background(finish_coroutine))
    if entry.record is None:
        raise NotFound(
            f"partition {entry.name} was removed meanwhile",
            operation=f"get partition {entry.name}",
            partition=entry.name,
        )
    return services.info(entry)


async def _finish_in_background(finish_coroutine: Coroutine[Any, Any, None]) -> None:
    with suppress(PodwrightError):  # it shows in the partition's state
        await finish_coroutine
