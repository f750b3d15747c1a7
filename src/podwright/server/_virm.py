"""The vendor's calls, one function each: a message in, our calls, a message out.

CreatePartition answers once the request is durable, since its clients poll; Remove and Reset
answer when they are done, as clients with timeouts of minutes expect (V-IPU 1.18 protocol;
reference logs of PopRun).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from podwright import __version__
from podwright.controller import Caller
from podwright.server._calls import Calls
from podwright.wire import (
    METHODS,
    ListRequest,
    NotFound,
    PartitionInfo,
    PartitionName,
    RemoveRequest,
    ResetRequest,
    Value,
    next_page,
    virm,
)

Answer = Callable[[Calls, Caller, Any], Awaitable[Any]]
_pb = virm.pb


async def _version(calls: Calls, caller: Caller, message: Any) -> Any:
    if (standby := calls.standby) is not None:
        raise standby.refusal("GetVersion")  # else a client would think it had found its server
    return _pb.VersionReply(version=__version__)


async def _list_partitions(calls: Calls, caller: Caller, message: Any) -> Any:
    request = ListRequest(allocation=message.allocation_id)
    reply = _pb.ListPartitionsReply()
    page: Value | None = request
    while page is not None:  # the protocol knows no pages; others are answered between two of ours
        found = await calls(caller, METHODS["ListPartitions"], page)
        reply.partitions.extend(virm.partition_message(info) for info in found.partitions)
        page = next_page(page, found)
        await asyncio.sleep(0)
    return reply


async def _list_attributes(calls: Calls, caller: Caller, message: Any) -> Any:
    devices = (await calls.whole(caller, METHODS["ListDevices"], ListRequest())).devices
    wanted = set(message.agents)
    if missing := sorted(wanted - {info.device.machine for info in devices}):
        raise NotFound(
            f"there is no agent {missing[0]}",
            asked="list IPU attributes",
            would_work="name none to see them all",
        )
    return virm.attribute_entries([i for i in devices if not wanted or i.device.machine in wanted])


async def _create(calls: Calls, caller: Caller, message: Any) -> Any:
    info = await calls(caller, METHODS["CreatePartition"], virm.create_request(message))
    return _pb.CreatePartitionReply(partition_id=info.name)


async def _remove(calls: Calls, caller: Caller, message: Any) -> Any:
    request = RemoveRequest(name=message.partition_id, force=message.force)
    await calls(caller, METHODS["RemovePartition"], request)
    return _pb.RemovePartitionReply()


async def _reset(calls: Calls, caller: Caller, message: Any) -> Any:
    request = ResetRequest(name=message.partition_id, relocatable=message.relocatable)
    await calls(caller, METHODS["ResetPartition"], request)
    return _pb.ResetPartitionReply()


async def _get(calls: Calls, caller: Caller, name: str) -> PartitionInfo:
    info: PartitionInfo = await calls(caller, METHODS["GetPartition"], PartitionName(name=name))
    return info


async def _config(calls: Calls, caller: Caller, message: Any) -> Any:
    info = await _get(calls, caller, message.partition_id)
    gcd = message.gcd_id.id if message.HasField("gcd_id") else None
    return _pb.GetPartitionIpuofConfigReply(config=virm.config_message(info, gcd))


async def _status(calls: Calls, caller: Caller, message: Any) -> Any:
    info = await _get(calls, caller, message.partition_id)
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
