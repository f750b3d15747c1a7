"""How the operator asks V-IPU controllers."""

from __future__ import annotations

from typing import Protocol

import msgspec

from podwright.client import Client, ServerOptions, UnixTransport, find_server
from podwright.guests import CALL_TIMEOUT, GuestServer, ThreadedServer
from podwright.kubernetes._sites import VipuSite
from podwright.wire import (
    ClusterList,
    DeviceInfo,
    ExplainRequest,
    Explanation,
    ListRequest,
    PartitionInfo,
    PartitionSpec,
    ResetRequest,
)


class JobServer(GuestServer, Protocol):
    """What the operator asks beyond what every guest does. Everything raises PodwrightError."""

    async def clusters(self) -> list[str]:
        """The names of its clusters."""
        ...

    async def explain(self, spec: PartitionSpec) -> Explanation:
        """Why such a partition cannot be made now."""
        ...

    async def reset(self, name: str) -> PartitionInfo:
        """A partition's devices are as new; its state then."""
        ...


class VipuController(ThreadedServer):
    """The real one."""

    async def devices(self, cluster: str, allocation: str) -> list[DeviceInfo]:
        """All devices of a pod; those of a drained machine are DRAINED also while they are used."""
        found = await super().devices(cluster, allocation)
        clusters = await self.call("ListClusters", ListRequest(cluster=cluster), ClusterList)
        drained = {(one.name, machine) for one in clusters.clusters for machine in one.drained}
        return [
            msgspec.structs.replace(one, state="DRAINED")
            if one.state == "IN_USE" and (one.cluster, one.device.machine) in drained
            else one
            for one in found
        ]

    async def clusters(self) -> list[str]:
        """The names of its clusters."""
        found = await self.call("ListClusters", ListRequest(), ClusterList)
        return [one.name for one in found.clusters]

    async def explain(self, spec: PartitionSpec) -> Explanation:
        """Why such a partition cannot be made now."""
        return await self.call("Explain", ExplainRequest(spec=spec, for_job=True), Explanation)

    async def reset(self, name: str) -> PartitionInfo:
        """A partition's devices are as new; its state then."""
        return await self.call("ResetPartition", ResetRequest(name=name, force=True), PartitionInfo)


def reach(site: VipuSite, credentials: str = "") -> VipuController:
    """A controller. credentials: a file in the form of vipu-cli.hcl, or empty."""

    def connect() -> Client:
        if site.socket:
            return Client(UnixTransport(site.socket), timeout=CALL_TIMEOUT)
        options = ServerOptions(host=site.host, port=str(site.port), config=credentials)
        return find_server(options, {}, timeout=CALL_TIMEOUT).client

    return VipuController(connect)
