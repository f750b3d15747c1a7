"""The partition that a launch will request.

A launch without a server, `--dry-run` and `--help` do not load the modules of the server's
protocol. A launch with a server loads them while mpirun starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from podwright.errors import InvalidRequest

if TYPE_CHECKING:
    from podwright.wire import AcquireRequest


class WantedPartition(NamedTuple):
    """The fields that a plan has; the others are as in `AcquireRequest` and `PartitionSpec`."""

    name: str
    devices: int
    allocation: str
    instances: int
    ilds: int
    sync_type: str
    movable: bool
    parent: str
    create: bool
    update: bool
    keep: bool
    reset: bool | None
    ttl: float

    def request(self) -> AcquireRequest:
        """Return the request to the server."""
        from podwright.wire import AcquireRequest, PartitionSpec, SyncType

        spec = PartitionSpec(
            name=self.name,
            size=self.devices,
            allocation=self.allocation,
            num_gcds=self.instances,
            num_replicas=self.instances,
            num_ilds=self.ilds,
            sync_type=SyncType(self.sync_type),
            movable=self.movable,
        )
        return AcquireRequest(
            spec=spec,
            parent=self.parent,
            create=self.create,
            update=self.update,
            keep=self.keep,
            reset=self.reset,
            ttl=self.ttl,
        )


def check_sync_type(sync_type: str) -> None:
    """Raise InvalidRequest for a sync type that does not exist."""
    from podwright.wire import SyncType

    if sync_type not in SyncType.__members__:
        raise InvalidRequest(
            f"--sync-type: there is no sync type {sync_type!r}",
            would_work="There are "
            f"{', '.join(f'ST_{known_type}' for known_type in SyncType.__members__)}",
        )


def check_server_host(hosts: str, port: int | None) -> None:
    """Raise InvalidRequest for what is not a host, or several with commas."""
    from podwright.client import parse_addresses

    parse_addresses(hosts, str(port or ""), "--vipu-server-host")


def size_notes(devices: int, gcds: int, ilds: int | None) -> list[str]:
    """Return what a pod of IPUs would refuse, by the rule that its server applies.

    A plan is made without a server, and a pod of GPUs has other sizes; so this is no refusal.
    """
    from podwright.fabric import preset
    from podwright.placement import Index, Refusal, Request

    pod = preset("pod256")
    if devices > pod.size:
        return []
    answer = Index(pod).plan(Request(devices, gcds=gcds, domains=ilds or None))
    if not isinstance(answer, Refusal):
        return []
    nearest = " or ".join(map(str, answer.nearest_sizes))
    return [
        f"a pod of IPUs has no partition of {devices} in {gcds} GCDs: {answer.rule}"
        + (f"; the nearest sizes are {nearest}" if nearest else "")
        + ". --dry-run=server asks yours"
    ]
