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


async def _get_version(ask_server: Asker, vendor_request: Any) -> Any:
    info = await ask_server(METHODS["GetServerInfo"], ServerInfoRequest())
    if info.standby:  # otherwise a client would use the standby
        raise Unavailable(
            f"this server stands by for {info.active or 'another one'}",
            operation="GetVersion",
            would_work="name both servers, as in --api-host host1,host2",
            standby=True,
            active=info.active,
        )
    return _pb.VersionReply(version=__version__)


async def _list_partitions(ask_server: Asker, vendor_request: Any) -> Any:
    request = ListRequest(allocation=vendor_request.allocation_id)
    partition_list = await _all_pages(ask_server, "ListPartitions", request)
    return _pb.ListPartitionsReply(
        partitions=[virm.partition_message(info) for info in partition_list.partitions]
    )


async def _all_pages(ask_server: Asker, method_name: str, request: ListRequest) -> Any:
    """Return a list with all its pages, since the vendor's protocol has no pages.

    The server can answer other calls between two pages.
    """
    replies: list[Value] = []
    page_request: Value | None = request
    while page_request is not None:
        replies.append(await ask_server(METHODS[method_name], page_request))
        page_request = next_page(page_request, replies[-1])
    return joined(replies)


async def _list_attributes(ask_server: Asker, vendor_request: Any) -> Any:
    devices = (await _all_pages(ask_server, "ListDevices", ListRequest())).devices
    machine_names = set(vendor_request.agents)
    if missing_machines := sorted(machine_names - {info.device.machine for info in devices}):
        raise NotFound(
            f"there is no agent {missing_machines[0]}",
            operation="list IPU attributes",
            would_work="name none to see them all",
        )
    return virm.attribute_entries(
        [
            device
            for device in devices
            if not machine_names or device.device.machine in machine_names
        ]
    )


async def _create_partition(ask_server: Asker, vendor_request: Any) -> Any:
    info = await ask_server(METHODS["CreatePartition"], virm.create_request(vendor_request))
    return _pb.CreatePartitionReply(partition_id=info.name)


async def _remove_partition(ask_server: Asker, vendor_request: Any) -> Any:
    request = RemoveRequest(name=vendor_request.partition_id, force=vendor_request.force)
    await ask_server(METHODS["RemovePartition"], request)
    return _pb.RemovePartitionReply()


async def _reset_partition(ask_server: Asker, vendor_request: Any) -> Any:
    request = ResetRequest(name=vendor_request.partition_id, relocatable=vendor_request.relocatable)
    await ask_server(METHODS["ResetPartition"], request)
    return _pb.ResetPartitionReply()


async def _get_partition(
    ask_server: Asker, partition_name: str, *, attach: bool = False
) -> PartitionInfo:
    request = PartitionName(name=partition_name, attach=attach)
    info: PartitionInfo = await ask_server(METHODS["GetPartition"], request)
    return info


async def _get_ipuof_config(ask_server: Asker, vendor_request: Any) -> Any:
    info = await _get_partition(ask_server, vendor_request.partition_id, attach=True)
    gcd_id = vendor_request.gcd_id.id if vendor_request.HasField("gcd_id") else None
    return _pb.GetPartitionIpuofConfigReply(config=virm.config_message(info, gcd_id))


async def _get_partition_status(ask_server: Asker, vendor_request: Any) -> Any:
    info = await _get_partition(ask_server, vendor_request.partition_id)
    return _pb.GetPartitionStatusReply(status=virm.status_message(info))


ANSWERS: dict[str, Answer] = {
    "GetVersion": _get_version,
    "ListPartitions": _list_partitions,
    "ListIPUAttributes": _list_attributes,
    "CreatePartition": _create_partition,
    "RemovePartition": _remove_partition,
    "ResetPartition": _reset_partition,
    "GetPartitionIpuofConfig": _get_ipuof_config,
    "GetPartitionStatus": _get_partition_status,
}
