"""What the page shows of a large pod: link domains in numbers, and one thing when it is opened.

An overview costs what has changed since the one before, and short lists. Devices, partitions,
leases and machines are shown of a link domain that somebody opens, or in a table a part at a time;
an overview has only those of them that have a problem.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, cast

import msgspec

from podwright.controller import Caller, PodObserver
from podwright.errors import InvalidRequest, NotFound
from podwright.page import (
    FOLDED_FROM,
    TABLE_TOPICS,
    Ask,
    TableQuery,
    Who,
    domain_item,
    problems_shown,
    take,
)
from podwright.server._dispatch_calls import Calls
from podwright.wire import (
    METHODS,
    AgentInfo,
    AgentList,
    AllocationInfo,
    AllocationList,
    ClusterList,
    DeviceInfo,
    DeviceList,
    LeaseInfo,
    LeaseList,
    ListRequest,
    PartitionInfo,
    PartitionList,
    PartitionName,
)

PROBLEMS_SHOWN: Final = 100
_TROUBLED_DOMAINS: Final = 32  #: link domains that are looked into for problems
_LIST_PART: Final = 250  #: items that an overview has of a list, at most
_ALLOCATION_MACHINES: Final = 40  #: machines of an allocation that an overview names
_FOUND_PART: Final = 1000  #: items that a search looks at in one call
_DETAILS: Final = ("devices", "partitions", "leases", "machines", "readings")


class FoldedPod:
    """Answers a page of a large pod. caller_of: returns the caller behind a visitor of the page."""

    def __init__(
        self,
        calls: Calls,
        caller_of: Callable[[Who], Caller],
        list_whole: Callable[[Who, str], Awaitable[Any]],
        conditions: Callable[[Who], dict[str, object] | None],
        *,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._calls, self._caller_of, self._list_whole = calls, caller_of, list_whole
        self._conditions, self._now = conditions, wall_clock
        self._observer: PodObserver | None = None
        self._domains: dict[str, object] = {}
        self._seen = 0

    @property
    def applies(self) -> bool:
        """Whether the pod is so large that it is shown by its link domains."""
        return self._calls.controller.observer.device_count > FOLDED_FROM

    async def overview(self, who: Who) -> dict[str, dict[str, object]]:
        """Return the topics of a folded pod, as the caller may see them."""
        caller = await self._admitted(who)
        observer = self._calls.controller.observer
        await self._refresh_domains(observer)
        topics = await take(
            self._ask_of_overview(who, caller, observer),
            self._now,
            conditions=self._conditions(who),
        )
        for topic in _DETAILS:
            topics.pop(topic, None)
        for cluster in topics["clusters"].values():
            cast("dict[str, object]", cluster)["domains"] = []  # the topic says it
        topics["domains"] = dict(self._domains)
        topics["totals"] = {
            topic: {"count": count} for topic, count in observer.totals(caller).items()
        }
        topics["fragments"] = dict(observer.fits_for(caller))
        topics["totals"]["problems"] = {"count": len(topics["problems"])}
        topics["problems"] = problems_shown(topics["problems"], PROBLEMS_SHOWN)
        return topics

    async def opened(self, who: Who, domain: str) -> dict[str, dict[str, object]]:
        """Return the devices of a link domain with all that concerns them.

        Raises NotFound for a link domain that is none.
        """
        caller = await self._admitted(who)
        observer = self._calls.controller.observer
        devices = await self._devices_of(caller, observer, domain)
        names = dict.fromkeys(device.partition for device in devices if device.partition)
        partitions = [
            partition
            for name in names
            if (partition := await self._partition(caller, name)) is not None
        ]
        lists = {
            "ListDevices": DeviceList(devices=devices),
            "ListPartitions": PartitionList(partitions=partitions),
            "ListLeases": LeaseList(leases=_leases_of(partitions)),
            "ListAgents": AgentList(
                agents=observer.machines(caller, observer.domain_machines(domain))
            ),
        }
        topics = await take(_ask_of(lists), self._now, topics=_DETAILS)
        return {topic: topics.get(topic, {}) for topic in _DETAILS}

    async def table(self, who: Who, query: TableQuery) -> dict[str, object]:
        """Return `topics` with a part of a table and what belongs to it, and `next`, which the
        next part is asked for by; empty for the last one.

        Raises InvalidRequest for a table that is none.
        """
        caller = await self._admitted(who)
        if query.topic not in TABLE_TOPICS:
            raise InvalidRequest(
                f"there is no table {query.topic[:40]}", would_work=", ".join(TABLE_TOPICS)
            )
        if query.name:
            partition = await self._partition(caller, query.name)
            return {
                "topics": await self._of_partitions([partition] if partition else []),
                "next": "",
            }
        if query.topic == "machines":
            return await self._machine_table(caller, query)
        method = METHODS[TABLE_TOPICS[query.topic]]
        found: list[Any] = []
        token = query.after
        while True:
            size = _FOUND_PART if query.find else query.limit
            request = ListRequest(page_size=size, page_token=token)
            page = await self._calls(caller, method, request)
            token = page.next_page_token
            for item in getattr(page, page.__struct_fields__[0]):
                if _has_text(item, query.find):
                    found.append(item)
                    if len(found) == query.limit:
                        token = token and (item.name if query.topic == "partitions" else item.id)
                        break
            if not token or len(found) >= query.limit or not query.find:
                break
            await asyncio.sleep(0)
        if query.topic == "partitions":
            return {"topics": await self._of_partitions(found), "next": token}
        topics = await take(
            _ask_of({method.name: LeaseList(leases=found)}), self._now, topics=("leases",)
        )
        return {"topics": topics, "next": token}

    async def _machine_table(self, caller: Caller, query: TableQuery) -> dict[str, object]:
        observer = self._calls.controller.observer
        names = observer.machine_names(caller)
        found: list[AgentInfo] = []
        token = ""
        for looked_at, name in enumerate(names[bisect_right(names, query.after) :], 1):
            if len(found) == query.limit:
                token = found[-1].name
                break
            found += [
                one for one in observer.machines(caller, [name]) if _has_text(one, query.find)
            ]
            if looked_at % _FOUND_PART == 0:
                await asyncio.sleep(0)
        ask = _ask_of({"ListAgents": AgentList(agents=found)})
        return {"topics": await take(ask, self._now, topics=("machines",)), "next": token}

    # -- inside ------------------------------------------------------------------------------

    async def _admitted(self, who: Who) -> Caller:
        """Return the caller. Raises wire.PodwrightError where this server shows nothing now."""
        caller, method = self._caller_of(who), METHODS["ListClusters"]
        request = ListRequest(page_size=1)
        await self._calls(caller, METHODS["ListWaiters"], request)
        return self._calls.controller.admitted(caller, method.request())[0]

    async def _refresh_domains(self, observer: PodObserver) -> None:
        await observer.summary.refresh()
        if observer is not self._observer:
            self._observer, self._domains, self._seen = observer, {}, -1
        keys = observer.summary.feed.since(self._seen)
        if keys is None:
            self._domains, keys = {}, observer.summary.keys()
        self._seen = observer.summary.feed.revision
        for key in keys:
            counts = observer.summary.counts(key)
            if counts is None:
                self._domains.pop(key, None)
            else:
                self._domains[key] = domain_item(counts)

    def _ask_of_overview(self, who: Who, caller: Caller, observer: PodObserver) -> Ask:
        """Return lists as an overview needs them: whole where they are short."""
        partitions = observer.partitions_in_trouble(caller, PROBLEMS_SHOWN)

        async def ask(method_name: str) -> Any:
            match method_name:
                case "ListClusters":
                    return ClusterList(clusters=observer.cluster_infos())
                case "ListAgents":
                    agents = observer.agents_in_trouble(caller, PROBLEMS_SHOWN)
                    return AgentList(agents=agents)
                case "ListPartitions":
                    return PartitionList(partitions=partitions)
                case "ListLeases":
                    return LeaseList(leases=_leases_of(partitions))
                case "ListDevices":
                    devices = await self._devices_in_trouble(caller, observer)
                    partitions.extend(await self._partitions_of(caller, devices))
                    return DeviceList(devices=devices)
                case "ListEvents":
                    return await self._list_whole(who, method_name)
            method, request = METHODS[method_name], METHODS[method_name].request()
            if isinstance(request, ListRequest):
                request = msgspec.structs.replace(request, page_size=_LIST_PART)
            reply = await self._calls(caller, method, request)
            if isinstance(reply, AllocationList):
                allocations = [_shortened(allocation) for allocation in reply.allocations]
                return msgspec.structs.replace(reply, allocations=allocations)
            return reply

        return ask

    async def _devices_in_trouble(self, caller: Caller, observer: PodObserver) -> list[DeviceInfo]:
        return [
            device
            for domain in observer.troubled_domains(_TROUBLED_DOMAINS)
            for device in await self._devices_of(caller, observer, domain)
        ]

    async def _partitions_of(
        self, caller: Caller, devices: Iterable[DeviceInfo]
    ) -> list[PartitionInfo]:
        """Return partitions that have devices which are down, as many as problems are shown."""
        lost = (one.partition for one in devices if one.state == "DOWN" and one.partition)
        names = list(dict.fromkeys(lost))[:PROBLEMS_SHOWN]
        found = [await self._partition(caller, name) for name in names]
        return [partition for partition in found if partition is not None]

    async def _devices_of(
        self, caller: Caller, observer: PodObserver, domain: str
    ) -> list[DeviceInfo]:
        """Return the devices of a link domain. Raises NotFound."""
        place = observer.domain_place(domain)
        if place is None:
            raise NotFound(
                f"there is no link domain {domain[:80]}", would_work="CLUSTER/NUMBER, from 0 on"
            )
        cluster_name, number, size, token = place
        devices: list[DeviceInfo] = []
        while len(devices) < size:
            request = ListRequest(cluster=cluster_name, page_size=size, page_token=token)
            page = await self._calls(caller, METHODS["ListDevices"], request)
            devices += [device for device in page.devices if device.device.domain == number]
            token = page.next_page_token
            if not token or page.devices[-1].device.domain != number:
                break
        return devices

    async def _partition(self, caller: Caller, name: str) -> PartitionInfo | None:
        """Return a partition that the caller may know of; None: there is none of this name."""
        try:
            found = await self._calls(caller, METHODS["GetPartition"], PartitionName(name=name))
        except NotFound:
            return None
        assert isinstance(found, PartitionInfo)
        return found

    async def _of_partitions(self, partitions: list[PartitionInfo]) -> dict[str, dict[str, object]]:
        """Return the topics of partitions: with their leases, and the devices that they have."""
        lists = {
            "ListPartitions": PartitionList(partitions=partitions),
            "ListLeases": LeaseList(leases=_leases_of(partitions)),
            "ListDevices": DeviceList(
                devices=[
                    DeviceInfo(cluster=partition.cluster, device=device, partition=partition.name)
                    for partition in partitions
                    for gcd in partition.gcds
                    for device in gcd
                ]
            ),
        }
        return await take(_ask_of(lists), self._now, topics=("partitions", "leases", "devices"))


def _ask_of(lists: dict[str, Any]) -> Ask:
    async def ask(method_name: str) -> Any:
        return lists.get(method_name) or METHODS[method_name].reply()

    return ask


def _leases_of(partitions: Iterable[PartitionInfo]) -> list[LeaseInfo]:
    return [lease for partition in partitions for lease in partition.leases]


def _shortened(allocation: AllocationInfo) -> AllocationInfo:
    """Return an allocation that names some of its machines."""
    if (more := len(allocation.agents) - _ALLOCATION_MACHINES) <= 0:
        return allocation
    agents = [*allocation.agents[:_ALLOCATION_MACHINES], f"and {more} more"]
    return msgspec.structs.replace(allocation, agents=agents)


def _has_text(item: Any, text: str) -> bool:
    """Return whether a text is in the short values of an item."""
    values = (getattr(item, field) for field in item.__struct_fields__)
    return not text or any(
        text.lower() in str(value).lower() for value in values if isinstance(value, str)
    )
