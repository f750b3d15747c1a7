"""Calls about what others do: why something waits, quotas, events, machines in and out of service.

Every call that changes something is written into the events here, in one place, so that none can
be forgotten.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from podwright.controller import _explain as explaining
from podwright.controller import _machines as machines
from podwright.controller import _partitions as partitions
from podwright.controller import _quotas as quotas
from podwright.controller import _views as views
from podwright.controller._acquire import would_acquire
from podwright.controller._audit import SERVER, Audit
from podwright.controller._caller import Caller, Role
from podwright.controller._list_pages import Page
from podwright.controller._machines import check_administrator
from podwright.controller._shielded import shielded
from podwright.controller._spec import asked_for
from podwright.errors import InvalidRequest, NotFound, PodwrightError, Unavailable
from podwright.store import Opened
from podwright.wire import (
    METHODS,
    AcquireRequest,
    Empty,
    EventList,
    EventsRequest,
    ExplainRequest,
    Explanation,
    ListRequest,
    MachineName,
    PartitionSpec,
    QuotaInfo,
    QuotaList,
    Value,
)

if TYPE_CHECKING:
    from podwright.controller._core import Core
    from podwright.controller._waiting import Waiting

#: Calls that say nothing of what was done: a lease's heartbeat, and a waiter's question.
UNHEARD: Final = frozenset({"Renew", "Wait", "Leave"})
_C = TypeVar("_C", bound="type[Oversight]")


class Oversight:
    """The part of the controller that explains, limits and remembers."""

    _core: Core
    _waiting: Waiting
    _audit: Audit
    _check: Callable[[], None]

    def _oversee(self) -> None:
        core = self._core
        self._audit = Audit(core.journal, core.now)

        def tell(what: str, about: str, owner: str, detail: str) -> None:
            self._audit.tell(SERVER, what, about, owner=owner, detail=detail)

        core.tell = tell

    def _recall(self, opened: Opened) -> None:
        self._audit.load(opened.records)
        self._core.quotas.update(quotas.load(opened.records))

    def _owner(self, name: str) -> str:
        entry = self._core.partitions.get(name)
        return entry.record.owner if entry is not None and entry.record is not None else ""

    async def explain(self, caller: Caller, request: ExplainRequest) -> Explanation:
        """Why a request cannot start now, or how a waiter, lease or partition stands.

        Raises NotFound, and InvalidRequest for a request that can never start.
        """
        self._check()
        core = self._core
        if request.acquire is not None:
            return self._explain_acquire(caller, request.acquire)
        if request.spec is None:
            return self._explain_name(request.name)
        asked = asked_for(request.spec, core.inventory.noun)
        return self._explain_place(caller, request.spec, asked, request.duration)

    def _explain_acquire(self, caller: Caller, request: AcquireRequest) -> Explanation:
        asked = f"acquire {asked_for(request.spec, self._core.inventory.noun)}"
        try:
            spec, asked, words = would_acquire(self._core, caller, request)
        except InvalidRequest:
            raise
        except PodwrightError as error:
            return explaining.of_error(asked, error)
        if spec is None:
            return Explanation(asked=asked, starts_now=True, lines=[words])
        found = self._explain_place(caller, spec, asked, request.duration)
        if found.starts_now:
            found = msgspec.structs.replace(found, lines=[words, *found.lines])
        return found

    def _explain_place(
        self, caller: Caller, spec: PartitionSpec, asked: str, duration: float
    ) -> Explanation:
        core = self._core
        try:
            taken = partitions.place(core, spec, asked, owner=caller.name, duration=duration)
        except InvalidRequest:
            raise
        except PodwrightError as error:
            return explaining.of_error(asked, error)
        partitions.untake(core, taken)
        where = f"it would start at once, in allocation {taken.placement.allocation}"
        return Explanation(asked=asked, starts_now=True, lines=[where])

    def _explain_name(self, name: str) -> Explanation:
        core = self._core
        if name in core.partitions and core.partitions[name].record is not None:
            return explaining.of_partition(core, core.partitions[name])
        if (lease := core.leases.get(name)) is not None:
            found = explaining.of_partition(core, core.partitions[lease.record.partition])
            return Explanation(asked=f"lease {name} on {found.asked}", lines=found.lines)
        if (entry := core.fences.get(name)) is not None:
            found = explaining.of_partition(core, entry)
            return Explanation(asked=f"lease {name}, over, on {found.asked}", lines=found.lines)
        waiter = self._waiting.named(name)
        if waiter is None:
            raise NotFound(
                f"there is no waiter, lease or partition {name[:80]}",
                asked="explain",
                would_work="list waiters, list leases and list partitions show what there is",
            )
        info = self._waiting.info(waiter)
        lines = [f"place {info.place} in the waiting line, for {info.needs}"] if info.place else []
        if info.estimate:
            lines.append(f"it can start in about {info.estimate:.0f} s")
        try:
            taken = partitions.place(
                core, waiter.spec, info.asked, owner=waiter.caller.name, duration=waiter.duration
            )
        except PodwrightError as error:
            found = explaining.of_error(info.asked, error)
            return Explanation(
                **{
                    **{field: getattr(found, field) for field in found.__struct_fields__},
                    "asked": f"waiter {name}: {info.asked}",
                    "lines": [*lines, *found.lines],
                }
            )
        partitions.untake(core, taken)
        return Explanation(asked=f"waiter {name}: {info.asked}", lines=lines)

    async def set_quota(self, caller: Caller, request: QuotaInfo) -> QuotaInfo:
        """Set a quota, or end it (no limit at all). Raises Denied, InvalidRequest, NotFound."""
        self._check()
        check_administrator(caller, "set quota")
        return await shielded(self._core.spawn(quotas.put(self._core, request)))

    async def list_quotas(self, caller: Caller, request: ListRequest) -> QuotaList:
        """Quotas: all for an administrator, for others those that bind them."""
        self._check()
        views.check_filters(self._core, request, "list quotas")
        every = caller.role is Role.ADMINISTRATOR
        page = Page[QuotaInfo](request)
        places = {"/".join(key): quota for key, quota in self._core.quotas.items()}
        for place, quota in sorted(places.items()):
            if not (
                place > request.page_token
                and (every or quota.user in ("", caller.name))
                and request.allocation in ("", quota.allocation)
            ):
                continue
            if page.full:
                break
            page.add(place, quotas.show(self._core, quota))
            await asyncio.sleep(0)  # what is used of it is counted over all partitions
        return QuotaList(quotas=page.items, next_page_token=page.token)

    async def list_events(self, caller: Caller, request: EventsRequest) -> EventList:
        """What happened: all for an administrator, for others what they did or what is theirs."""
        self._check()
        return await self._audit.list(caller, request)

    async def drain_machine(self, caller: Caller, request: MachineName) -> Empty:
        """Let a machine take nothing new. Raises Denied, NotFound."""
        self._check()
        check_administrator(caller, f"drain machine {request.name[:80]}")
        await shielded(self._core.spawn(machines.drain(self._core, request.name)))
        return Empty()

    async def resume_machine(self, caller: Caller, request: MachineName) -> Empty:
        """Let a machine serve again. Raises Denied, NotFound."""
        self._check()
        check_administrator(caller, f"resume machine {request.name[:80]}")
        await shielded(self._core.spawn(machines.resume(self._core, request.name)))
        return Empty()


def audited(kind: _C) -> _C:
    """Write every call that changes something into the events, and how it ended."""
    for method in METHODS.values():
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower()
        if method.changes and method.name not in UNHEARD and hasattr(kind, name):
            setattr(kind, name, _heard(method.name, getattr(kind, name)))
    return kind


def _heard(
    what: str, call: Callable[[Any, Caller, Any], Coroutine[Any, Any, Value]]
) -> Callable[[Any, Caller, Any], Coroutine[Any, Any, Value]]:
    @wraps(call)
    async def heard(self: Oversight, caller: Caller, request: Any) -> Value:
        about = _about(request)
        owner = self._owner(about)
        try:
            reply = await call(self, caller, request)
        except Unavailable:
            raise  # it was not even tried
        except PodwrightError as error:
            self._audit.tell(caller, what, about, owner=owner, error=error)
            raise
        except asyncio.CancelledError:
            self._audit.tell(caller, what, about, owner=owner, detail="its caller went away")
            raise
        made = getattr(reply, "partition", None)
        about = getattr(made, "name", "") or about
        detail = f"lease {reply.lease.id}" if what == "Acquire" else ""  # type: ignore[attr-defined]
        self._audit.tell(caller, what, about, owner=owner or self._owner(about), detail=detail)
        return reply

    return heard


def _about(request: Any) -> str:
    """The name of what a request is about."""
    for source in (request, getattr(request, "spec", None)):
        for field in ("name", "id", "user", "allocation"):
            found = getattr(source, field, "")
            if isinstance(found, str) and found:
                return found[:80]
    return ""
