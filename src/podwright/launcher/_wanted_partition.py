"""The partition that a launch wants, before it is asked for.

A launch without a server, `--dry-run` and `--help` load none of the server's words; one with a
server loads them while mpirun starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from podwright.errors import InvalidRequest

if TYPE_CHECKING:
    from podwright.wire import AcquireRequest


class WantedPartition(NamedTuple):
    """What a plan has of it; the rest as `AcquireRequest` and `PartitionSpec` have it."""

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
        """In the server's words."""
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


def check_sync_type(name: str) -> None:
    """Raises InvalidRequest for one that does not exist."""
    from podwright.wire import SyncType

    if name not in SyncType.__members__:
        raise InvalidRequest(
            f"--sync-type: there is no sync type {name!r}",
            would_work=f"There are {', '.join(f'ST_{known}' for known in SyncType.__members__)}",
        )
