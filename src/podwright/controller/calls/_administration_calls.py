"""Calls of administrators: quotas, events, the audit, machines in and out of service."""

from __future__ import annotations

import asyncio

from podwright.controller.administration._audit import EVENT_KIND, INTENT_KIND
from podwright.controller.administration._audit_chain import read_head, verify_chains
from podwright.controller.calls import _object_replies as views
from podwright.controller.calls._call_context import Services
from podwright.controller.calls._list_pages import ListPage
from podwright.controller.hardware import _machine_drain as machines
from podwright.controller.requests import _quotas as quotas
from podwright.controller.state._caller import Caller, Role
from podwright.controller.state._shielded_tasks import await_shielded
from podwright.wire import (
    AuditChain,
    AuditReport,
    AuditRequest,
    DrainRequest,
    Empty,
    EventList,
    EventsRequest,
    ListRequest,
    MachineName,
    QuotaInfo,
    QuotaList,
)


async def set_quota(services: Services, caller: Caller, request: QuotaInfo) -> QuotaInfo:
    """Set a quota, or end it (no limit at all). Raises Denied, InvalidRequest, NotFound."""
    return await await_shielded(services.state.spawn(quotas.put(services.state, request)))


async def list_quotas(services: Services, caller: Caller, request: ListRequest) -> QuotaList:
    """Return all quotas to an administrator, and to others the quotas that limit them."""
    views.check_filters(services.state, request, "list quotas")
    sees_all = caller.role is Role.ADMINISTRATOR
    page = ListPage[QuotaInfo](request)
    quotas_by_place = {
        "/".join(user_and_allocation): quota
        for user_and_allocation, quota in services.state.quotas.items()
    }
    for quota_place, quota in sorted(quotas_by_place.items()):
        if not (
            quota_place > request.page_token
            and (sees_all or quota.user in ("", caller.name))
            and request.allocation in ("", quota.allocation)
            and services.privacy.sees_allocation(caller, quota.allocation)
        ):
            continue
        if page.full:
            break
        page.add(quota_place, quotas.show(services.state, quota))
        await asyncio.sleep(0)  # what is used of it is counted over all partitions
    return QuotaList(quotas=page.items, next_page_token=page.token)


async def list_events(services: Services, caller: Caller, request: EventsRequest) -> EventList:
    """Events: all of them for an administrator, else those by the caller or on its things."""
    return await services.audit.list(caller, request)


async def verify_audit(services: Services, caller: Caller, request: AuditRequest) -> AuditReport:
    """Whether the audit is as it was written, and contains these heads. Raises InvalidRequest."""
    chain_heads = [read_head(text) for text in request.heads]
    store_snapshot = await services.state.store.read()
    chain_reports = await asyncio.to_thread(
        verify_chains, store_snapshot.records, (EVENT_KIND, INTENT_KIND), chain_heads
    )
    chains = [
        AuditChain(
            head=str(report.head),
            entries=report.entries,
            anchor=report.anchor,
            problems=list(report.problems),
        )
        for report in chain_reports
    ]
    return AuditReport(chains=chains)


async def drain_machine(services: Services, caller: Caller, request: DrainRequest) -> Empty:
    """Place nothing new on a machine. Raises Denied, InvalidRequest, NotFound."""
    draining = machines.drain(services.state, request.name, request.reason, caller.name)
    await await_shielded(services.state.spawn(draining))
    return Empty()


async def resume_machine(services: Services, caller: Caller, request: MachineName) -> Empty:
    """Place partitions on a machine again. Raises Denied, NotFound."""
    await await_shielded(services.state.spawn(machines.resume(services.state, request.name)))
    return Empty()
