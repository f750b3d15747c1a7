"""The call that explains why a request cannot start now, and what state an object is in."""

from __future__ import annotations

import msgspec

from podwright.controller.calls._call_services import Services
from podwright.controller.partitions import _partitions as partitions
from podwright.controller.partitions._acquire import would_acquire
from podwright.controller.requests import _explain as explaining
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
        return _explain_name(services, caller, request.name)
    checked = CheckedSpec(request.spec, described(request.spec, state.inventory.noun))
    return _explain_place(services, caller, checked, request.duration)


def _explain_acquire(services: Services, caller: Caller, request: AcquireRequest) -> Explanation:
    action = f"acquire {described(request.spec, services.state.inventory.noun)}"
    try:
        would = would_acquire(services.state, caller, request)
    except InvalidRequest:
        raise
    except PodwrightError as error:
        return explaining.of_error(action, error)
    if would.create is None:
        return Explanation(asked=would.action, starts_now=True, lines=[would.outcome])
    checked = CheckedSpec(would.create, would.action, hosts=request.hosts)
    explanation = _explain_place(services, caller, checked, request.duration)
    if explanation.starts_now:
        explanation = msgspec.structs.replace(
            explanation, lines=[would.outcome, *explanation.lines]
        )
    return explanation


def _explain_place(
    services: Services, caller: Caller, checked: CheckedSpec, duration: float
) -> Explanation:
    state, action = services.state, checked.action
    try:
        claim = partitions.place(state, checked, owner=caller.name, duration=duration)
    except InvalidRequest:
        raise
    except PodwrightError as error:
        return explaining.of_error(action, error)
    partitions.untake(state, claim)
    where = f"it would start at once, in allocation {claim.placement.allocation}"
    return Explanation(asked=action, starts_now=True, lines=[where])


def _explain_name(services: Services, caller: Caller, name: str) -> Explanation:
    state = services.state
    entry = state.find(caller, name)
    if entry is not None and entry.record is not None:
        return explaining.of_partition(state, entry, caller)
    if (lease := state.find_lease(caller, name)) is not None:
        explanation = explaining.of_partition(
            state, state.partitions[lease.record.partition], caller
        )
        return Explanation(asked=f"lease {name} on {explanation.asked}", lines=explanation.lines)
    if (entry := state.find_fenced(caller, name)) is not None:
        explanation = explaining.of_partition(state, entry, caller)
        return Explanation(
            asked=f"lease {name}, over, on {explanation.asked}", lines=explanation.lines
        )
    waiter = services.waiting.named(name)
    if waiter is None or not state.sight.waiter(caller, waiter.record.name):
        raise NotFound(
            f"there is no waiter, lease or partition {name[:80]}",
            operation="explain",
            would_work="list waiters, list leases and list partitions show what there is",
        )
    info = services.waiting.info(waiter)
    lines = [f"place {info.place} in the queue: {info.needs}"] if info.place else []
    if info.estimate:
        lines.append(f"it can start in about {info.estimate:.0f} s")
    try:
        claim = partitions.place(
            state, waiter.checked, owner=waiter.caller.name, duration=waiter.duration
        )
    except PodwrightError as error:
        explanation = explaining.of_error(info.asked, error)
        return Explanation(
            **{
                **{field: getattr(explanation, field) for field in explanation.__struct_fields__},
                "asked": f"waiter {name}: {info.asked}",
                "lines": [*lines, *explanation.lines],
            }
        )
    partitions.untake(state, claim)
    return Explanation(asked=f"waiter {name}: {info.asked}", lines=lines)
