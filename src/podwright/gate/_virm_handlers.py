"""The vendor's calls, one function each: it decodes a message, makes Podwright's calls, and
replies.

CreatePartition replies once the request is durable, since its clients poll. Remove and Reset reply
when they are done, as clients with timeouts of minutes expect (V-IPU 1.18 protocol; reference logs
of PopRun).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from podwright._version import __version__
from podwright.errors import NotFound, Unavailable
from podwright.wire import (
    METHODS,
    ListRequest,
    Method,
    PartitionInfo,
    PartitionName,
    RemoveRequest,
    ResetRequest,
    ServerInfoRequest,
    Value,
    joined,
    next_page,
    virm,
)

#: Asks the server. Raises wire.PodwrightError.
Asker = Callable[[Method, Value], Awaitable[Any]]
Answer = Callable[[Asker, Any], Awaitable[Any]]
_pb = virm.pb


async def _version(ask: Asker, message: Any) -> Any:
    info = await ask(METHODS["GetServerInfo"], ServerInfoRequest())
    if info.standby:  # otherwise a client would use the standby
        raise Unavailable(
            f"this server stands by for {info.active or 'another one'}",
            operation="GetVersion",
            would_work="name both servers, as in --api-host host1,host2",
            standby=True,
            active=info.active,
        )
    return _pb.VersionReply(version=__version__)


async def _list_partitions(ask: Asker, message: Any) -> Any:
    request = ListRequest(allocation=message.allocation_id)
    partitions = await _all_pages(ask, "ListPartitions", request)
    return _pb.ListPartitionsReply(
        partitions=[virm.partition_message(info) for info in partitions.partitions]
    )


async def _all_pages(ask: Asker, method: str, request: ListRequest) -> Any:
    """Return a list with all its pages, since the vendor's protocol has no pages.

    The server can answer other calls between two pages.
    """
    pages: list[Value] = []
    page: Value | None = request
    while page is not None:
        pages.append(await ask(METHODS[method], page))
        page = next_page(page, pages[-1])
    return joined(pages)


async def _list_attributes(ask: Asker, message: Any) -> Any:
    devices = (await _all_pages(ask, "ListDevices", ListRequest())).devices
    wanted = set(message.agents)
    if missing := sorted(wanted - {info.device.machine for info in devices}):
        raise NotFound(
            f"there is no agent {missing[0]}",
            operation="list IPU attributes",
            would_work="name none to see them all",
        )
    return virm.attribute_entries([i for i in devices if not wanted or i.device.machine in wanted])


async def _create(ask: Asker, message: Any) -> Any:
    info = await ask(METHODS["CreatePartition"], virm.create_request(message))
    return _pb.CreatePartitionReply(partition_id=info.name)


async def _remove(ask: Asker, message: Any) -> Any:
    request = RemoveRequest(name=message.partition_id, force=message.force)
    await ask(METHODS["RemovePartition"], request)
    return _pb.RemovePartitionReply()


async def _reset(ask: Asker, message: Any) -> Any:
    request = ResetRequest(name=message.partition_id, relocatable=message.relocatable)
    await ask(METHODS["ResetPartition"], request)
    return _pb.ResetPartitionReply()


async def _get(ask: Asker, name: str, *, attach: bool = False) -> PartitionInfo:
    request = PartitionName(name=name, attach=attach)
    info: PartitionInfo = await ask(METHODS["GetPartition"], request)
    return info


async def _config(ask: Asker, message: Any) -> Any:
    info = await _get(ask, message.partition_id, attach=True)
    gcd = message.gcd_id.id if message.HasField("gcd_id") else None
    return _pb.GetPartitionIpuofConfigReply(config=virm.config_message(info, gcd))


async def _status(ask: Asker, message: Any) -> Any:
    info = await _get(ask, message.partition_id)
    return _pb.GetPartitionStatusReply(status=virm.status_message(info))


ANSWERS: dict[str, Answer] = {
    "GetVersion": _version,
    "ListPartitions": _list_partitions,
    "ListIPUAttributes": _list_attributes,
    "CreatePartition": _create,
    "RemovePartition": _remove,
    "ResetPartition": _reset,
    "GetPartitionIpuofConfig": _config,
    "GetPartitionStatus": _status,
}
