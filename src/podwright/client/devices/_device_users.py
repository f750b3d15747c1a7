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


class User(NamedTuple):
    """A program on a device, according to its lease. pid 0, host empty: the holder did not tell."""

    user: str
    host: str
    pid: int
    program: str
    lease: str
    expires_in: float


class Use(NamedTuple):
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
    uses: tuple[Use, ...]
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
    client: Client, me: ServerInfo, *, partition: str = "", list_all: bool = False
) -> list[ShownUse]:
    """Return the partitions to show, with the users of their devices.

    partition: the only one to show. Without it, the caller's own partitions are shown, or with
    `list_all` all of them. The numbers of devices continue from one partition to the next, as in
    gc-info. Raises NotFound.
    """
    partitions = client.list_partitions()
    if partition:
        chosen = [info for info in partitions if info.name == partition]
        if not chosen:
            names = ", ".join(info.name for info in partitions[:8]) or "none"
            raise NotFound(f"there is no partition {partition!r}", would_work=f"there are: {names}")
    else:
        chosen = [
            info for info in partitions if list_all or me.caller in (info.owner, info.creator)
        ]
    families = _families(client) if chosen and "podwright.v1" in me.apis else {}
    states: dict[tuple[str, int, int], DeviceInfo] = {}
    for cluster, allocation in sorted({(info.cluster, info.allocation) for info in chosen}):
        for device in (
            client.list_devices(cluster=cluster, allocation=allocation) if families else ()
        ):
            states[cluster, device.device.domain, device.device.offset] = device
    uses, first_number = [], 0
    for info in chosen:
        one_shown = _device_use(info, families.get(info.cluster, IPU), states, first_number)
        uses.append(one_shown)
        first_number += len(device_sets(info)) if is_listed(info) else 0
    return uses


def is_listed(info: PartitionInfo) -> bool:
    """Return whether programs can attach to the partition's devices."""
    return info.ready_state is ReadyState.ACTIVE


def _families(client: Client) -> dict[str, Family]:
    return {c.name: family_named(c.family) or IPU for c in client.list_clusters()}


def _device_use(
    info: PartitionInfo,
    family: Family,
    states: dict[tuple[str, int, int], DeviceInfo],
    first: int,
) -> ShownUse:
    numbers = {s.routing[0]: s.id for s in device_sets(info) if len(s.routing) == 1}
    uses: list[Use] = []
    attributes: list[dict[str, str]] = []
    for gcd, devices in enumerate(info.gcds):
        for device in devices:
            routing = len(uses)
            known = states.get((info.cluster, device.domain, device.offset))
            users = tuple(_user(lease) for lease in _holding(info.leases, routing))
            state = known.state if known else "IN_USE"
            word = ("used" if users else "free") if state == "IN_USE" else state.lower()
            number = first + (numbers[routing] if info.reconfigurable else gcd)
            uses.append(Use(number, gcd, routing, device, word, users))
            attributes.append(dict(known.attributes) if known else {})
    return ShownUse(info, family, tuple(uses), tuple(attributes), first)


def _holding(leases: list[LeaseInfo], routing: int) -> list[LeaseInfo]:
    """Return the leases that cover a device. Of a job's lease and one within it, only the inner one
    counts.
    """
    covering = [lease for lease in leases if not lease.devices or routing in lease.devices]
    outer = {lease.parent for lease in covering}
    return [lease for lease in covering if lease.id not in outer]


def _user(lease: LeaseInfo) -> User:
    holder = read_holder(lease.holder)
    return User(lease.owner, holder.host, holder.pid, holder.program, lease.id, lease.expires_in)


def device_of(uses: list[ShownUse], number: int) -> tuple[ShownUse, tuple[Use, ...]]:
    """Return the partition and the devices that a number of the listing stands for.

    Raises InvalidRequest.
    """
    for use in uses:
        for device_set in device_sets(use.info) if is_listed(use.info) else ():
            if use.first + device_set.id == number:
                return use, tuple(use.uses[place] for place in device_set.routing)
    raise InvalidRequest(
        f"there is no device {number}", would_work="gc-info -l lists those that there are"
    )
