"""What the options of `vipu create partition` ask for."""

from __future__ import annotations

import os
import re

from podwright.cli.partitions._options import RequestOptions
from podwright.errors import InvalidRequest
from podwright.wire import GatewayRouting, PartitionSpec, Routing, SyncType


def partition_spec(arguments: RequestOptions, name: str) -> PartitionSpec:
    """Return the request of `vipu create partition NAME`.

    Raises InvalidRequest for mistakes that are visible without a server.
    """
    action = f"create partition {name}".rstrip()
    if arguments.priority and not arguments.wait:
        raise InvalidRequest(
            "--priority is for the queue", operation=action, would_work="add --wait"
        )
    if arguments.index is not None:
        raise InvalidRequest(
            "--index is named in V-IPU's documents, but not what it means",
            operation=action,
            would_work="--devices chooses devices one by one",
        )
    devices = _devices(arguments.devices) if arguments.devices else []
    if not arguments.size and not devices:
        raise InvalidRequest("--size is missing", operation=action, would_work="say --size N")
    if devices and arguments.size not in (None, len(devices)):
        raise InvalidRequest(
            f"--size says {arguments.size}, --devices names {len(devices)}",
            operation=action,
            would_work="leave out --size",
        )
    sync = _sync_type(arguments.sync_type)
    if arguments.reconfigurable:
        if sync not in (SyncType.DEFAULT, SyncType.GS2_DEFAULT):
            raise InvalidRequest(
                f"a reconfigurable partition has sync type c2-compatible, not "
                f"{arguments.sync_type}",
                operation=action,
                would_work="leave out --sync-type or --reconfigurable",
            )
        sync = SyncType.GS2_DEFAULT
    # Under host mapping, a job has an allocation of its own, and cannot create anything outside it.
    own = "" if arguments.cluster else os.environ.get("PODWRIGHT_ALLOCATION", "")
    return PartitionSpec(
        name=name,
        size=arguments.size or len(devices),
        cluster=arguments.cluster,
        allocation=arguments.allocation or own,
        num_gcds=arguments.num_gcds,
        num_replicas=arguments.num_replicas,
        num_ilds=arguments.num_ilds,
        routing=Routing[arguments.routing.upper()],
        gw_routing=GatewayRouting[arguments.gw_routing.upper()],
        sync_type=sync,
        reconfigurable=arguments.reconfigurable,
        devices=devices,
        auto_reset=not arguments.no_auto_reset,
        relocatable=arguments.relocatable,
        movable=arguments.movable,
        profile=arguments.profile,
        hosts=[host.strip() for host in arguments.host.split(",")] if arguments.host else [],
    )


def _sync_type(text: str) -> SyncType:
    """Return a sync type, as any of V-IPU's tools writes it: c2-compatible, ST_…, or in lower
    case.
    """
    word = text.upper().replace("-", "_").removeprefix("ST_")
    if word in ("", "UNDEFINED"):
        return SyncType.DEFAULT
    if word == "C2_COMPATIBLE":
        return SyncType.GS2_DEFAULT
    if word in SyncType.__members__:
        return SyncType[word]
    names = ["c2-compatible", *(name.lower().replace("_", "-") for name in SyncType.__members__)]
    raise InvalidRequest(
        f"{text!r} is not a sync type", would_work=f"it is one of: {', '.join(names)}"
    )


def _devices(text: str) -> list[tuple[int, int]]:
    """Return `0:0-3,1:8` as (link domain, offset) pairs, in that order."""
    devices: list[tuple[int, int]] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9}):(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        first, last = (int(match[2]), int(match[3] or match[2])) if match else (1, 0)
        if match is None or not 0 <= last - first < 1 << 20:
            raise InvalidRequest(
                f"--devices: {part!r} is not DOMAIN:OFFSET or DOMAIN:FIRST-LAST",
                would_work="write, say, 0:0-3,1:8",
            )
        devices += [(int(match[1]), offset) for offset in range(first, last + 1)]
    if len(set(devices)) < len(devices):
        twice = next(device for device in devices if devices.count(device) > 1)
        raise InvalidRequest(f"--devices names {twice[0]}:{twice[1]} twice")
    return devices
