"""Calls about what others do: explanations, quotas, events, machines in and out of service."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from podwright.controller import _explain as explaining
from podwright.controller import _machines as machines
from podwright.controller import _partitions as partitions
from podwright.controller import _quotas as quotas
from podwright.controller import _views as views
from podwright.controller._acquire import would_acquire
from podwright.controller._audit import SERVER, Audit
from podwright.controller._caller import Caller, Role
from podwright.controller._list_pages import ListPage
from podwright.controller._shielded import shielded
from podwright.controller._spec import CheckedSpec, described
from podwright.errors import InvalidRequest, NotFound, PodwrightError
from podwright.store import Opened
from podwright.wire import (
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
)

if TYPE_CHECKING:
    from podwright.controller._core import Core
    from podwright.controller._waiting import Waiting


class AuditCalls:
    """The part of the controller that explains, limits and remembers."""

    _core: Core
    _waiting: Waiting
    _audit: Audit

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
        entry, waiter = self._core.partitions.get(name), self._waiting.named(name)
        if entry is not None and entry.record is not None:
            return entry.record.owner
        return waiter.record.name if waiter is not None else ""

    async def explain(self, caller: Caller, request: ExplainRequest) -> Explanation:
        """Why a request cannot start now, or how a waiter, lease or partition stands.

        Raises NotFound, and InvalidRequest for a request that can never start.
        """
        core = self._core
        if request.acquire is not None:
            return self._explain_acquire(caller, request.acquire)
        if request.spec is None:
            return self._explain_name(request.name)
        action = described(request.spec, core.inventory.noun)
        return self._explain_place(caller, request.spec, action, request.duration)

    def _explain_acquire(self, caller: Caller, request: AcquireRequest) -> Explanation:
        action = f"acquire {described(request.spec, self._core.inventory.noun)}"
        try:
            spec, action, words = would_acquire(self._core, caller, request)
        except InvalidRequest:
            raise
        except PodwrightError as error:
            return explaining.of_error(action, error)
        if spec is None:
            return Explanation(asked=action, starts_now=True, lines=[words])
        found = self._explain_place(caller, spec, action, request.duration)
        if found.starts_now:
            found = msgspec.structs.replace(found, lines=[words, *found.lines])
        return found

    def _explain_place(
        self, caller: Caller, spec: PartitionSpec, action: str, duration: float
    ) -> Explanation:
        core = self._core
        try:
            checked = CheckedSpec(spec, action)
            taken = partitions.place(core, checked, owner=caller.name, duration=duration)
        except InvalidRequest:
            raise
        except PodwrightError as error:
            return explaining.of_error(action, error)
        partitions.untake(core, taken)
        where = f"it would start at once, in allocation {taken.placement.allocation}"
        return Explanation(asked=action, starts_now=True, lines=[where])

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
                core, waiter.checked, owner=waiter.caller.name, duration=waiter.duration
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
        return await shielded(self._core.spawn(quotas.put(self._core, request)))

    async def list_quotas(self, caller: Caller, request: ListRequest) -> QuotaList:
        """Quotas: all for an administrator, for others those that bind them."""
        views.check_filters(self._core, request, "list quotas")
        every = caller.role is Role.ADMINISTRATOR
        page = ListPage[QuotaInfo](request)
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
        return await self._audit.list(caller, request)

    async def drain_machine(self, caller: Caller, request: MachineName) -> Empty:
        """Let a machine take nothing new. Raises Denied, NotFound."""
        await shielded(self._core.spawn(machines.drain(self._core, request.name)))
        return Empty()

    async def resume_machine(self, caller: Caller, request: MachineName) -> Empty:
        """Let a machine serve again. Raises Denied, NotFound."""
        await shielded(self._core.spawn(machines.resume(self._core, request.name)))
        return Empty()
