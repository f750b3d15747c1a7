"""The users of each device, from partitions, leases and the states of devices.

`gc-monitor` and `gc-info` show the results of this module. It uses only the server's replies, so it
is the same for every family of devices.
"""

from __future__ import annotations

from typing import NamedTuple

from podwright.client._client import Client
from podwright.errors import InvalidRequest, NotFound
from podwright.fabric import IPU, Attachment, Family, family_named
from podwright.wire import (
    DeviceInfo,
    DeviceRef,
    LeaseInfo,
    PartitionInfo,
    ReadyState,
    ServerInfo,
    device_sets,
    read_holder,
)

#: The server's name for a caller of whom it knows nothing.
_NAMELESS = "anonymous"


class User(NamedTuple):
    """A program on a device, according to its lease. pid 0, host empty: the holder did not tell."""

    user: str
    host: str
    pid: int
    program: str
    lease: str
    expires_in: float


class DeviceUse(NamedTuple):
    """One device of a partition.

    id: the number to which a program attaches: in a reconfigurable partition that of the device
    alone, else that of its GCD. routing: its place in the partition. state: `used`, `free`, or the
    reason why it is neither: `resetting`, `down`, and the like.
    """

    id: int
    gcd: int
    routing: int
    device: DeviceRef
    state: str
    users: tuple[User, ...]


class ShownUse(NamedTuple):
    """A partition with its devices. first: the number of its first device in the listing.

    attributes: of each device, in routing order, as its machine reports them.
    """

    info: PartitionInfo
    family: Family
    uses: tuple[DeviceUse, ...]
    attributes: tuple[dict[str, str], ...]
    first: int = 0

    @property
    def noun(self) -> str:
        """The noun for one of these devices: IPU, GPU."""
        return self.family.device_noun

    @property
    def target(self) -> str:
        """The place of a single device in gc-info's words: `Fabric`, or `Host`."""
        return "Fabric" if self.family.attachment is Attachment.FABRIC else "Host"


def read_device_uses(
    client: Client, server_info: ServerInfo, *, partition: str = "", list_all: bool = False
) -> list[ShownUse]:
    """Return the partitions to show, with the users of their devices.

    partition: the only one to show. Without it, the caller's own partitions are shown, or with
    `list_all` all of them. A partition that was made without a name, over TCP on a server that
    asks for none, counts as everybody's own: its maker may be this user. The numbers of devices
    continue from one partition to the next, as in gc-info. Raises NotFound.
    """
    partitions = client.list_partitions()
    if partition:
        chosen_partitions = [
            partition_info for partition_info in partitions if partition_info.name == partition
        ]
        if not chosen_partitions:
            existing_names = (
                ", ".join(partition_info.name for partition_info in partitions[:8]) or "none"
            )
            raise NotFound(
                f"there is no partition {partition!r}", would_work=f"there are: {existing_names}"
            )
    else:
        chosen_partitions = [
            partition_info
            for partition_info in partitions
            if list_all
            or {server_info.caller, _NAMELESS} & {partition_info.owner, partition_info.creator}
        ]
    families_by_cluster = (
        _family_by_cluster(client)
        if chosen_partitions and "podwright.v1" in server_info.apis
        else {}
    )
    device_infos: dict[tuple[str, int, int], DeviceInfo] = {}
    for cluster, allocation in sorted(
        {
            (partition_info.cluster, partition_info.allocation)
            for partition_info in chosen_partitions
        }
    ):
        for device in (
            client.list_devices(cluster=cluster, allocation=allocation)
            if families_by_cluster
            else ()
        ):
            device_infos[cluster, device.device.domain, device.device.offset] = device
    partition_uses, first_number = [], 0
    for partition_info in chosen_partitions:
        partition_use = _listed_partition(
            partition_info,
            families_by_cluster.get(partition_info.cluster, IPU),
            device_infos,
            first_number,
        )
        partition_uses.append(partition_use)
        first_number += len(device_sets(partition_info)) if is_listed(partition_info) else 0
    return partition_uses


def only_used(partition_uses: list[ShownUse]) -> list[ShownUse]:
    """Return the partitions with those of their devices that a program uses."""
    return [
        partition_use._replace(
            uses=tuple(member_use for member_use in partition_use.uses if member_use.users)
        )
        for partition_use in partition_uses
    ]


def is_listed(partition_info: PartitionInfo) -> bool:
    """Return whether programs can attach to the partition's devices."""
    return partition_info.ready_state is ReadyState.ACTIVE


def _family_by_cluster(client: Client) -> dict[str, Family]:
    return {cluster.name: family_named(cluster.family) or IPU for cluster in client.list_clusters()}


def _listed_partition(
    partition_info: PartitionInfo,
    family: Family,
    device_infos: dict[tuple[str, int, int], DeviceInfo],
    first_number: int,
) -> ShownUse:
    ids_by_routing = {
        device_set.routing[0]: device_set.id
        for device_set in device_sets(partition_info)
        if len(device_set.routing) == 1
    }
    member_uses: list[DeviceUse] = []
    attributes: list[dict[str, str]] = []
    for gcd_index, gcd_devices in enumerate(partition_info.gcds):
        for device in gcd_devices:
            routing_index = len(member_uses)
            device_info = device_infos.get((partition_info.cluster, device.domain, device.offset))
            users = tuple(
                _device_user(lease)
                for lease in _leases_on_device(partition_info.leases, routing_index)
            )
            state = device_info.state if device_info else "IN_USE"
            state_word = ("used" if users else "free") if state == "IN_USE" else state.lower()
            shown_number = first_number + (
                ids_by_routing[routing_index] if partition_info.reconfigurable else gcd_index
            )
            member_uses.append(
                DeviceUse(shown_number, gcd_index, routing_index, device, state_word, users)
            )
            attributes.append(dict(device_info.attributes) if device_info else {})
    return ShownUse(partition_info, family, tuple(member_uses), tuple(attributes), first_number)


def _leases_on_device(leases: list[LeaseInfo], routing_index: int) -> list[LeaseInfo]:
    """Return the leases that cover a device. Of a job's lease and one within it, only the inner one
    counts.
    """
    covering_leases = [
        lease for lease in leases if not lease.devices or routing_index in lease.devices
    ]
    outer_lease_ids = {lease.parent for lease in covering_leases}
    return [lease for lease in covering_leases if lease.id not in outer_lease_ids]


def _device_user(lease: LeaseInfo) -> User:
    holder = read_holder(lease.holder)
    return User(lease.owner, holder.host, holder.pid, holder.program, lease.id, lease.expires_in)


def device_of(
    partition_uses: list[ShownUse], device_number: int
) -> tuple[ShownUse, tuple[DeviceUse, ...]]:
    """Return the partition and the devices that a number of the listing stands for.

    Raises InvalidRequest.
    """
    for use in partition_uses:
        for device_set in device_sets(use.info) if is_listed(use.info) else ():
            if use.first + device_set.id == device_number:
                return use, tuple(use.uses[index] for index in device_set.routing)
    raise InvalidRequest(
        f"there is no device {device_number}", would_work="gc-info -l lists those that there are"
    )
