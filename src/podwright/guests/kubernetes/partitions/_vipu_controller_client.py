"""How the operator calls V-IPU controllers."""

from __future__ import annotations

from typing import Protocol

import msgspec

from podwright.client import Client, ServerOptions, UnixTransport, find_server
from podwright.guests.kubernetes.partitions._vipu_controller_list import VipuSite
from podwright.guests.shared import CALL_TIMEOUT, GuestServer, ThreadedServer
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
    """What the operator asks beyond what every guest asks. All methods raise PodwrightError."""

    async def clusters(self) -> list[str]:
        """Return the names of the server's clusters."""
        ...

    async def explain(self, spec: PartitionSpec) -> Explanation:
        """Return why such a partition cannot be made now."""
        ...

    async def reset(self, name: str) -> PartitionInfo:
        """Reset a partition's devices, and return the partition."""
        ...


class VipuController(ThreadedServer):
    """A V-IPU controller."""

    async def devices(self, cluster: str, allocation: str) -> list[DeviceInfo]:
        """Return all devices of a pod. Those of a drained machine are DRAINED even while they are
        used.
        """
        own_devices = await super().devices(cluster, allocation)
        cluster_list = await self.call("ListClusters", ListRequest(cluster=cluster), ClusterList)
        drained_machines = {
            (info.name, machine) for info in cluster_list.clusters for machine in info.drained
        }
        return [
            msgspec.structs.replace(info, state="DRAINED")
            if info.state == "IN_USE" and (info.cluster, info.device.machine) in drained_machines
            else info
            for info in own_devices
        ]

    async def clusters(self) -> list[str]:
        """Return the names of the controller's clusters."""
        reply = await self.call("ListClusters", ListRequest(), ClusterList)
        return [info.name for info in reply.clusters]

    async def explain(self, spec: PartitionSpec) -> Explanation:
        """Return why such a partition cannot be made now."""
        return await self.call("Explain", ExplainRequest(spec=spec, for_job=True), Explanation)

    async def reset(self, name: str) -> PartitionInfo:
        """Reset a partition's devices, and return the partition."""
        return await self.call("ResetPartition", ResetRequest(name=name, force=True), PartitionInfo)


def reach(site: VipuSite, credentials: str = "") -> VipuController:
    """Return a controller. credentials: a file in the form of vipu-cli.hcl, or empty."""

    def connect() -> Client:
        if site.socket:
            return Client(UnixTransport(site.socket), timeout=CALL_TIMEOUT)
        options = ServerOptions(host=site.host, port=str(site.port), config=credentials)
        return find_server(options, {}, timeout=CALL_TIMEOUT).client

    return VipuController(connect)
