"""The call that explains why a request cannot start now, and what state an object is in."""

from __future__ import annotations

import msgspec

from podwright.controller.calls._call_context import Services
from podwright.controller.partitions._acquire import would_acquire
from podwright.controller.requests import _explain as explaining
from podwright.controller.requests._device_claims import place, undo_claim
from podwright.controller.requests._spec import CheckedSpec, described
from podwright.controller.state._caller import Caller
from podwright.errors import InvalidRequest, NotFound, PodwrightError
from podwright.wire import (
    AcquireRequest,
    ExplainRequest,
    Explanation,
)


async def explain(services: Services, caller: Caller, request: ExplainRequest) -> Explanation:
    """Return why a request cannot start now, or the state of a waiter, lease or partition.

    Raises NotFound, and InvalidRequest for a request that can never start.
    """
    state = services.state
    if request.acquire is not None:
        return _explain_acquire(services, caller, request.acquire)
    if request.spec is None:
        return _explain_named_object(services, caller, request.name)
    spec = CheckedSpec(request.spec, described(request.spec, state.inventory.noun))
    return _explain_placement(services, caller, spec)


def _explain_acquire(services: Services, caller: Caller, request: AcquireRequest) -> Explanation:
    action = f"acquire {described(request.spec, services.state.inventory.noun)}"
    try:
        acquire_outcome = would_acquire(services.state, caller, request)
    except InvalidRequest:
        raise
    except PodwrightError as error:
        return explaining.explanation_of_error(action, error)
    if acquire_outcome.create is None:
        return Explanation(
            asked=acquire_outcome.action, starts_now=True, lines=[acquire_outcome.outcome]
        )
    checked_spec = CheckedSpec(
        acquire_outcome.create, acquire_outcome.action, launch_hosts=request.hosts
    )
    explanation = _explain_placement(services, caller, checked_spec)
    if explanation.starts_now:
        explanation = msgspec.structs.replace(
            explanation, lines=[acquire_outcome.outcome, *explanation.lines]
        )
    return explanation


def _explain_placement(
    services: Services, caller: Caller, checked_spec: CheckedSpec
) -> Explanation:
    state, action = services.state, checked_spec.action
    try:
        claim = place(state, checked_spec, owner=caller.name)
    except InvalidRequest:
        raise
    except PodwrightError as error:
        return explaining.explanation_of_error(action, error)
    undo_claim(state, claim)
    text = f"it would start at once, in allocation {claim.placement.allocation}"
    layout = claim.cluster.layout
    free, largest = claim.cluster.index.room(checked_spec.at(layout).request)
    return Explanation(asked=action, starts_now=True, lines=[text], free=free, largest=largest)


def _explain_named_object(services: Services, caller: Caller, object_name: str) -> Explanation:
    state = services.state
    entry = state.find(caller, object_name)
    if entry is not None and entry.record is not None:
        return explaining.of_partition(state, entry, caller)
    if (lease := state.find_lease(caller, object_name)) is not None:
        explanation = explaining.of_partition(
            state, state.partitions[lease.record.partition], caller
        )
        return Explanation(
            asked=f"lease {object_name} on {explanation.asked}", lines=explanation.lines
        )
    if (entry := state.find_fenced(caller, object_name)) is not None:
        explanation = explaining.of_partition(state, entry, caller)
        return Explanation(
            asked=f"lease {object_name}, over, on {explanation.asked}", lines=explanation.lines
        )
    waiter = services.waiting.named(object_name)
    if waiter is None or not state.sight.waiter(caller, waiter.record.name):
        raise NotFound(
            f"there is no waiter, lease or partition {object_name[:80]}",
            operation="explain",
            would_work="look: vipu list partitions, vipu list leases, vipu list waiters",
        )
    waiter_info = services.waiting.info(waiter)
    sentences = (
        [f"place {waiter_info.place} in the queue: {waiter_info.needs}"]
        if waiter_info.place
        else []
    )
    if waiter_info.estimate:
        sentences.append(f"it can start in about {waiter_info.estimate:.0f} s")
    explanation = Explanation(asked="", lines=[])
    try:
        claim = place(state, waiter.checked, owner=waiter.caller.name)
        undo_claim(state, claim)
    except PodwrightError as error:
        explanation = explaining.explanation_of_error(waiter_info.asked, error)
    return msgspec.structs.replace(
        explanation,
        asked=f"waiter {object_name}: {waiter_info.asked}",
        would_work="",  # it waits already
        lines=[*sentences, *explanation.lines],
    )
