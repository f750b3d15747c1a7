"""Allocations that are a scheduler's: nobody else creates in them.

What a scheduler counts it must be able to give: a partition made behind its back would take what
it has promised to a job. A request that names such an allocation is decided when it comes in; one
that names none never lands there (`guard`).
"""

from __future__ import annotations

import msgspec

from podwright.controller._caller import Caller, Role
from podwright.controller._core import Core, Entry
from podwright.controller._inventory import Site
from podwright.placement import Placement
from podwright.wire import (
    AcquireRequest,
    CreateRequest,
    Denied,
    ExplainRequest,
    InvalidRequest,
    PartitionSpec,
    Value,
    WaitRequest,
)

_JOB = "submit a job to it (with Slurm: sbatch --ipus=N), which gets a partition of its own"


def kept_out(core: Core, caller: Caller, request: Value) -> Value:
    """The request, kept to the allocations that its caller may create in.

    Raises Denied for a scheduler's, InvalidRequest where it must be said which one.
    """
    if not any(site.closed for site in core.inventory.sites.values()):
        return request
    if isinstance(request, WaitRequest):
        inner = request.create or request.acquire
        if inner is None:
            return request
        if isinstance(inner, AcquireRequest):
            return msgspec.structs.replace(request, acquire=_acquired(core, caller, inner))
        return msgspec.structs.replace(request, create=kept_out(core, caller, inner))
    if isinstance(request, ExplainRequest) and request.for_job:
        return request
    if isinstance(request, ExplainRequest) and request.acquire is not None:
        return msgspec.structs.replace(request, acquire=_acquired(core, caller, request.acquire))
    if isinstance(request, AcquireRequest):
        if request.create or request.update:
            _check(core, caller, request.spec)
        return request  # which partition it finds is not known yet
    if isinstance(request, CreateRequest | ExplainRequest) and request.spec is not None:
        return _with_spec(core, caller, request, request.spec)
    return request


def open_spec(core: Core, caller: Caller, spec: PartitionSpec) -> PartitionSpec:
    """What is to be created, with the allocation that its caller may use where it names none.

    Raises as `kept_out`.
    """
    sites = [site for name, site in core.inventory.sites.items() if spec.cluster in ("", name)]
    if not any(site.closed for site in sites):
        return spec
    _check(core, caller, spec)
    if spec.allocation:
        return spec
    if caller.role is Role.SCHEDULER:
        choice = [name for site in sites for name, who in site.closed.items() if who == caller.name]
    else:
        choice = _others(sites)
    if len(choice) == 1:
        return msgspec.structs.replace(spec, allocation=choice[0])
    if choice:
        raise InvalidRequest(
            f"there are the allocations {', '.join(choice[:8])}, and others that are a scheduler's",
            asked=_asked(spec),
            would_work=f"say which one, as in --allocation {choice[0]}",
        )
    raise _denied(spec, next(who for site in sites for who in site.closed.values()))


def guard(site: Site, spec: PartitionSpec, found: Placement) -> None:
    """Raises Denied for a placement in a scheduler's allocation that was not named."""
    if not spec.allocation and (who := site.closed.get(found.allocation)):
        raise _denied(spec, who)


def lends(caller: Caller, entry: Entry) -> bool:
    """Whether a scheduler may lease a partition to others: it made it, or it is among its own."""
    if caller.role is not Role.SCHEDULER:
        return False
    site, record = entry.site, entry.known
    mine = site is not None and site.closed.get(record.allocation) == caller.name
    return mine or record.creator == caller.name


def _acquired(core: Core, caller: Caller, request: AcquireRequest) -> Value:
    """For one that is placed before it is carried out: kept to where it would create."""
    kept = kept_out(core, caller, request)
    return (
        _with_spec(core, caller, kept, request.spec)
        if _will_create(core, caller, request)
        else kept
    )


def _will_create(core: Core, caller: Caller, request: AcquireRequest) -> bool:
    if not (request.create or request.update) or request.parent:
        return False
    if request.spec.name:
        return request.spec.name not in core.partitions
    return not any(record.owner == caller.name for record in core.records())


def _with_spec(core: Core, caller: Caller, request: Value, spec: PartitionSpec) -> Value:
    return msgspec.structs.replace(request, spec=open_spec(core, caller, spec))


def _check(core: Core, caller: Caller, spec: PartitionSpec) -> None:
    for name, site in core.inventory.sites.items():
        who = site.closed.get(spec.allocation)
        if who is None or spec.cluster not in ("", name) or caller.role is Role.ADMINISTRATOR:
            continue
        if caller.role is Role.SCHEDULER and caller.name == who:
            continue
        raise _denied(spec, who, _others([site]))


def _others(sites: list[Site]) -> list[str]:
    return [name for site in sites for name in site.allocations if name not in site.closed]


def _denied(spec: PartitionSpec, who: str, others: list[str] | None = None) -> Denied:
    where = f"allocation {spec.allocation}" if spec.allocation else "every allocation"
    return Denied(
        f"{where} is kept for the jobs of {who}",
        asked=_asked(spec),
        would_work=_JOB + (f", or use allocation {' or '.join(others[:5])}" if others else ""),
        allocation=spec.allocation,
        scheduler=who,
    )


def _asked(spec: PartitionSpec) -> str:
    return f"create partition {spec.name[:80]}".rstrip()
